-- An investigation that gives a task of a schedule up ends it for the schedule.
CREATE TRIGGER entry_gave_up_scheduled_task
    AFTER UPDATE OF resolution_status ON tasker.tasks_dlq
    FOR EACH ROW WHEN (OLD.resolution_status = 'pending' AND NEW.resolution_status = 'permanently_failed')
    EXECUTE FUNCTION tasker.follow_scheduled_task();
