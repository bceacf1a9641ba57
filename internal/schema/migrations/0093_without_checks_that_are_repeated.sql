-- What they say is said by step_has_all_of_its_state and step_has_all_of_its_type.
ALTER TABLE tasker.workflow_steps
    DROP CONSTRAINT step_has_what_its_state_needs,
    DROP CONSTRAINT step_settings_are_those_of_its_type,
    DROP CONSTRAINT step_parents_open_counts,
    DROP CONSTRAINT step_item_is_whole,
    DROP CONSTRAINT child_step_has_its_task;
