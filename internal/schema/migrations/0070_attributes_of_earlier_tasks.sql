-- tasker:no-transaction
-- Tasks of before there was the table, a few at a time: each batch is committed, and holds up nobody.
DO $$
DECLARE
    _after uuid := '00000000-0000-0000-0000-000000000000';
    _last  uuid;
BEGIN
    LOOP
        SELECT b.task_uuid INTO _last
        FROM (SELECT t.task_uuid FROM tasker.tasks t WHERE t.task_uuid > _after ORDER BY t.task_uuid LIMIT 500) b
        ORDER BY b.task_uuid DESC LIMIT 1;
        EXIT WHEN _last IS NULL;
        WITH batch AS MATERIALIZED (
            SELECT t.task_uuid, t.namespace, t.tags, t.correlation_id, t.initiator, t.source_system
            FROM tasker.tasks t
            WHERE t.task_uuid > _after AND t.task_uuid <= _last
            ORDER BY t.task_uuid
            FOR KEY SHARE
        )
        INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value)
        SELECT b.task_uuid, b.namespace, w.name, w.value
        FROM batch b
        CROSS JOIN LATERAL (
            SELECT DISTINCT 'tag', g.tag FROM unnest(b.tags) AS g (tag)
            UNION ALL SELECT 'correlation_id', b.correlation_id WHERE b.correlation_id NOT IN ('', b.task_uuid::text)
            UNION ALL SELECT 'initiator', b.initiator WHERE b.initiator <> ''
            UNION ALL SELECT 'source_system', b.source_system WHERE b.source_system <> ''
        ) w (name, value)
        WHERE NOT EXISTS (
            SELECT FROM tasker.task_attributes a
            WHERE a.task_uuid = b.task_uuid AND a.name IN ('tag', 'correlation_id', 'initiator', 'source_system')
        );
        COMMIT;
        _after := _last;
    END LOOP;
END
$$;
