-- tasker:no-transaction
ALTER TABLE tasker.operations VALIDATE CONSTRAINT operation_act_is_known;
