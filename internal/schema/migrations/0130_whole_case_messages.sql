COMMENT ON COLUMN tasker.case_members.error_message IS 'The redacted message of the newest failure, as it is stored of the step.';
