-- task_snapshot_cuts chooses what of a large task does not fit into its snapshot, which
-- has at most p_most bytes as text. The facts of every step always fit. Of the
-- documents those come first that say why the task is stuck: the errors of the steps
-- that stand in error, then earlier failures, the newest first, then the context, then
-- results, the small ones before the large ones. What does not fit is replaced by its
-- size, its digest and where to read it; an error keeps its type, the beginning
-- of its message, and whether it may be retried.
--
-- To know its size as text a document has to be spelled out, and some are fifty times
-- larger than they are stored. So no more than p_spell bytes are spelled, and one
-- document beyond that: after it a document is kept only if it fits whatever it is, and
-- otherwise cut without a size and a digest.
--
-- The result has a member for each document that is cut ("error STEP", "results STEP",
-- "failure TRANSITION", "move TRANSITION", "context TASK"), and "failures TASK" is how many failures of each step
-- are kept, if not all, and "steps TASK" which steps are shown, if not all.
CREATE OR REPLACE FUNCTION tasker.task_snapshot_cuts(
    p_task  uuid,
    p_shown uuid[], -- steps that are shown; null: all
    p_most  integer DEFAULT tasker.max_snapshot_bytes(),
    p_spell integer DEFAULT 67108864
) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off -- compiling takes seconds where a table has no statistics yet
AS $$
DECLARE
    _marker   constant integer := 256; -- bytes that are set aside for each document, for itself or what replaces it
    _left     bigint;
    _failures bigint; -- that are kept of each step
    _counts   bigint[];
    _spell    bigint := p_spell;
    _doc      record;
    _text     text;
    _bytes    bigint;
    _cut      jsonb;
    _words    jsonb;
    _keys     text[] := array_remove(ARRAY[CASE WHEN p_shown IS NOT NULL THEN 'steps ' || p_task END], NULL);
    _cuts     jsonb[] := array_remove(ARRAY[to_jsonb(p_shown)], NULL);
BEGIN
    SELECT p_most - 160000 - octet_length(tt.configuration::text) - s.facts - coalesce(octet_length(t.tags::text), 0) INTO _left
    FROM tasker.tasks t
    JOIN tasker.task_templates tt ON tt.template_uuid = t.template_uuid
    CROSS JOIN LATERAL (
        SELECT sum(800 + CASE WHEN s.map_step_uuid IS NULL AND s.items_total IS NULL THEN 0 ELSE 4400 END + octet_length(s.name) + octet_length(s.handler) + 140 * cardinality(s.parent_uuids)
            + _marker * num_nonnulls(s.results, s.error)) AS facts
        FROM tasker.snapshot_steps(t.task_uuid, p_shown) s
    ) s
    WHERE t.task_uuid = p_task;

    SELECT array_agg(f.failures) INTO _counts
    FROM (
        SELECT count(*) AS failures
        FROM tasker.workflow_step_transitions h
        WHERE h.task_uuid = p_task AND h.to_state = 'error' AND (p_shown IS NULL OR h.step_uuid IN (SELECT unnest(p_shown)))
        GROUP BY h.step_uuid
    ) f;
    SELECT coalesce(max(m.n), 1) INTO _failures
    FROM unnest(ARRAY[1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]) AS m (n)
    WHERE (SELECT sum(least(c.n, m.n)) FROM unnest(_counts) AS c (n)) * (200 + _marker) <= greatest(_left, 0);
    IF EXISTS (SELECT FROM unnest(_counts) AS c (n) WHERE c.n > _failures) THEN
        _keys := _keys || ('failures ' || p_task);
        _cuts := _cuts || to_jsonb(_failures);
    END IF;
    SELECT _left - coalesce(sum(least(c.n, _failures)), 0) * (200 + _marker) INTO _left FROM unnest(_counts) AS c (n);

    FOR _doc IN
        SELECT d.*, pg_column_size(d.doc) AS stored, pg_column_compression(d.doc) IS NOT NULL AS compressed
        FROM (
            SELECT CASE s.state WHEN 'error' THEN 1 ELSE 3 END AS rank, 0::bigint AS turn, 'error ' || s.step_uuid AS key, s.step_uuid, s.error AS doc
            FROM tasker.snapshot_steps(p_task, p_shown) s
            UNION ALL
            SELECT 2, -h.transition_id, 'failure ' || h.transition_id, h.step_uuid, h.detail
            FROM (
                SELECT o.transition_id, o.step_uuid, o.detail, row_number() OVER (PARTITION BY o.step_uuid ORDER BY o.transition_id DESC) AS newest
                FROM tasker.workflow_step_transitions o
                WHERE o.task_uuid = p_task AND o.to_state = 'error' AND (p_shown IS NULL OR o.step_uuid IN (SELECT unnest(p_shown)))
            ) h
            WHERE h.newest <= _failures
            UNION ALL
            (
                SELECT 3, -h.transition_id, 'move ' || h.transition_id, NULL, h.detail
                FROM tasker.task_transitions h
                WHERE h.task_uuid = p_task
                ORDER BY h.transition_id DESC
                LIMIT 50
            )
            UNION ALL
            SELECT 4, 0, 'context ' || t.task_uuid, NULL, t.context FROM tasker.tasks t WHERE t.task_uuid = p_task
            UNION ALL
            SELECT 5, 0, 'results ' || s.step_uuid, s.step_uuid, s.results FROM tasker.snapshot_steps(p_task, p_shown) s
        ) d
        WHERE d.doc IS NOT NULL
        ORDER BY d.rank, d.turn, pg_column_size(d.doc), d.key
    LOOP
        _text := NULL;
        _bytes := NULL;
        IF _spell > 0 THEN
            _text := _doc.doc::text;
            _bytes := octet_length(_text);
            _spell := _spell - _bytes;
            CONTINUE WHEN _bytes <= _marker;
            IF _bytes - _marker <= _left THEN
                _left := _left - (_bytes - _marker);
                CONTINUE;
            END IF;
        ELSIF NOT _doc.compressed AND 24 * _doc.stored - _marker <= _left THEN
            _left := _left - greatest(24 * _doc.stored - _marker, 0);
            CONTINUE;
        END IF;
        _cut := jsonb_build_object('omitted', true, 'bytes', _bytes, 'sha256', encode(sha256(convert_to(_text, 'UTF8')), 'hex'),
            'read_at', '/v1/tasks/' || p_task || coalesce('/workflow_steps/' || _doc.step_uuid, ''));
        IF _doc.rank < 3 OR _doc.key LIKE 'error %' THEN
            _words := jsonb_build_object('type', left(_doc.doc ->> 'type', 100), 'message', left(_doc.doc ->> 'message', 500),
                'retryable', _doc.doc -> 'retryable', 'attempt', _doc.doc -> 'attempt');
            IF octet_length(_words::text) <= _left THEN
                _left := _left - octet_length(_words::text);
                _cut := _cut || _words;
            END IF;
        END IF;
        _keys := _keys || _doc.key;
        _cuts := _cuts || _cut;
    END LOOP;
    RETURN (SELECT coalesce(jsonb_object_agg(c.key, c.cut), '{}') FROM unnest(_keys, _cuts) AS c (key, cut));
END
$$;
COMMENT ON FUNCTION tasker.task_snapshot_cuts(uuid, uuid[], integer, integer) IS 'What does not fit into the snapshot of a large task, and what stands there instead.';
