-- tasker:no-transaction
-- In the order of their positions. A sender that holds some of them is waited for, without holding others
-- that it may come to: a batch locks its rows before it changes them, in the order in which senders do.
DO $$
DECLARE
    _after bigint := -1;
    _last  bigint;
BEGIN
    LOOP
        SELECT max(b.position) INTO _last
        FROM (SELECT o.position FROM tasker.outbox o WHERE o.position > _after ORDER BY o.position LIMIT 500) b;
        EXIT WHEN _last IS NULL;
        WITH batch AS MATERIALIZED (
            SELECT e.sink, e.position, o.namespace
            FROM tasker.emission_sinks s
            JOIN tasker.emissions e ON e.sink = s.sink AND e.position > _after AND e.position <= _last
            JOIN tasker.outbox o ON o.position = e.position
            WHERE e.namespace IS NULL
            ORDER BY e.sink, e.position
            FOR UPDATE OF e
        )
        UPDATE tasker.emissions e SET namespace = b.namespace
        FROM batch b
        WHERE e.sink = b.sink AND e.position = b.position;
        COMMIT;
        _after := _last;
    END LOOP;
END
$$;
