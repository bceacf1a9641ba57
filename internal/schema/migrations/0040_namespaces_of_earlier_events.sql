-- tasker:no-transaction
-- Events of before there was the column, a few at a time: each batch is committed, and holds up nobody.
DO $$
DECLARE
    _after bigint := -1;
    _last  bigint;
BEGIN
    LOOP
        SELECT max(b.position) INTO _last
        FROM (SELECT o.position FROM tasker.outbox o WHERE o.position > _after ORDER BY o.position LIMIT 2000) b;
        EXIT WHEN _last IS NULL;
        UPDATE tasker.outbox o SET namespace = t.namespace
        FROM tasker.tasks t
        WHERE o.position > _after AND o.position <= _last AND o.namespace IS NULL AND t.task_uuid = o.task_uuid;
        COMMIT;
        _after := _last;
    END LOOP;
END
$$;
