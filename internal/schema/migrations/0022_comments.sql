-- A comment referred to a document that is not here.
COMMENT ON TYPE tasker.dlq_reason IS 'Why a task needs an operator; the detail code of an investigation says more.';
