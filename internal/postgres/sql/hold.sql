-- name: versionedOperations
SELECT operation_uuid, worker_at_least FROM tasker.operations WHERE worker_at_least IS NOT NULL AND settled_at IS NULL;

-- name: selectOpenHolds
SELECT
    h.hold_uuid AS uuid, h.kind, h.namespace, coalesce(h.handler, '') AS handler, coalesce(h.task_name, '') AS task_name, coalesce(h.step_name, '') AS step_name,
    h.case_id, coalesce(h.cause, '') AS cause, coalesce(h.cause_key, '') AS cause_key, h.reason, h.owner, h.state, h.blocks, h.waves, h.wave, h.wave_since,
    h.wave_steps, h.began_at, h.ends_at, h.warned_at, h.next_probe_at, h.probes, h.failed_probes, h.released, h.ended_at, h.updated_at,
    (SELECT count(*) FROM (SELECT FROM tasker.held_steps q WHERE q.hold_uuid = h.hold_uuid LIMIT 100000 /* MaxHeldCount */) n) AS held,
    (SELECT count(*) FROM tasker.hold_releases r WHERE r.hold_uuid = h.hold_uuid AND r.outcome IS NULL) AS in_flight
FROM tasker.holds h
WHERE h.ended_at IS NULL AND ($1 = '' OR h.namespace = $1) AND ($2::text[] IS NULL OR h.namespace = ANY ($2))
  AND ($3::uuid IS NULL OR (h.began_at, h.hold_uuid) < (SELECT b.began_at, b.hold_uuid FROM tasker.holds b WHERE b.hold_uuid = $3))
ORDER BY h.began_at DESC, h.hold_uuid DESC
LIMIT $4;

-- name: selectHolds
SELECT
    h.hold_uuid AS uuid, h.kind, h.namespace, coalesce(h.handler, '') AS handler, coalesce(h.task_name, '') AS task_name, coalesce(h.step_name, '') AS step_name,
    h.case_id, coalesce(h.cause, '') AS cause, coalesce(h.cause_key, '') AS cause_key, h.reason, h.owner, h.state, h.blocks, h.waves, h.wave, h.wave_since,
    h.wave_steps, h.began_at, h.ends_at, h.warned_at, h.next_probe_at, h.probes, h.failed_probes, h.released, h.ended_at, h.updated_at,
    (SELECT count(*) FROM (SELECT FROM tasker.held_steps q WHERE q.hold_uuid = h.hold_uuid LIMIT 100000 /* MaxHeldCount */) n) AS held,
    (SELECT count(*) FROM tasker.hold_releases r WHERE r.hold_uuid = h.hold_uuid AND r.outcome IS NULL) AS in_flight
FROM tasker.holds h
WHERE true AND ($1 = '' OR h.namespace = $1) AND ($2::text[] IS NULL OR h.namespace = ANY ($2))
  AND ($3::uuid IS NULL OR (h.began_at, h.hold_uuid) < (SELECT b.began_at, b.hold_uuid FROM tasker.holds b WHERE b.hold_uuid = $3))
ORDER BY h.began_at DESC, h.hold_uuid DESC
LIMIT $4;

-- name: openHolds
SELECT
h.hold_uuid AS uuid, h.kind, h.namespace, coalesce(h.handler, '') AS handler, coalesce(h.task_name, '') AS task_name, coalesce(h.step_name, '') AS step_name,
h.case_id, coalesce(h.cause, '') AS cause, coalesce(h.cause_key, '') AS cause_key, h.reason, h.owner, h.state, h.blocks, h.waves, h.wave, h.wave_since,
h.wave_steps, h.began_at, h.ends_at, h.warned_at, h.next_probe_at, h.probes, h.failed_probes, h.released, h.ended_at, h.updated_at, 0::bigint AS held, 0::bigint AS in_flight FROM tasker.holds h WHERE h.ended_at IS NULL ORDER BY h.hold_uuid;

-- name: countHolds
SELECT kind, state, count(*) AS holds FROM tasker.holds WHERE ended_at IS NULL GROUP BY kind, state;

-- name: oneHold
SELECT
h.hold_uuid AS uuid, h.kind, h.namespace, coalesce(h.handler, '') AS handler, coalesce(h.task_name, '') AS task_name, coalesce(h.step_name, '') AS step_name,
h.case_id, coalesce(h.cause, '') AS cause, coalesce(h.cause_key, '') AS cause_key, h.reason, h.owner, h.state, h.blocks, h.waves, h.wave, h.wave_since,
h.wave_steps, h.began_at, h.ends_at, h.warned_at, h.next_probe_at, h.probes, h.failed_probes, h.released, h.ended_at, h.updated_at,
(SELECT count(*) FROM (SELECT FROM tasker.held_steps q WHERE q.hold_uuid = h.hold_uuid LIMIT 100000 /* MaxHeldCount */) n) AS held,
(SELECT count(*) FROM tasker.hold_releases r WHERE r.hold_uuid = h.hold_uuid AND r.outcome IS NULL) AS in_flight FROM tasker.holds h WHERE h.hold_uuid = $1 AND ($2::text[] IS NULL OR h.namespace = ANY ($2));

-- name: holdHistory
SELECT changed_at AS at, event, actor, reason, metadata
FROM tasker.hold_history WHERE hold_uuid = $1 ORDER BY change_id DESC LIMIT $2;

-- name: holdReleases
SELECT task_uuid, step_uuid, wave, fence, released_at, coalesce(outcome, '') AS outcome, failure, judged_at
FROM tasker.hold_releases WHERE hold_uuid = $1 ORDER BY released_at DESC, step_uuid LIMIT $2;

-- name: lockHolds
SELECT pg_advisory_xact_lock(hashtextextended('tasker.holds', 0));

-- name: insertHold
INSERT INTO tasker.holds (hold_uuid, kind, namespace, handler, task_name, step_name, case_id, cause, cause_key, reason, owner, ends_at, next_probe_at)
VALUES ($1, $2, $3, nullif($4, ''), nullif($5, ''), nullif($6, ''), $7, nullif($8, ''), nullif($9, ''), $10, $11,
    coalesce($12, clock_timestamp() + $13::interval), CASE WHEN $2 = 'breaker' THEN clock_timestamp() + $14::interval END)
RETURNING extract(epoch FROM ends_at - clock_timestamp())::float8;

-- name: holdOfSameTarget
SELECT h.hold_uuid FROM tasker.holds h
WHERE h.blocks AND h.namespace = $1 AND coalesce(h.handler, '') = $2 AND coalesce(h.task_name, '') = $3 AND coalesce(h.step_name, '') = $4
LIMIT 1;

-- name: countOpenHolds
SELECT count(*) AS in_all, count(*) FILTER (WHERE namespace = $1) AS of_namespace FROM tasker.holds WHERE ended_at IS NULL;

-- name: recordHold
INSERT INTO tasker.hold_history (hold_uuid, event, actor, reason, metadata) VALUES ($1, $2, $3, nullif($4, ''), $5::text::jsonb);

-- name: lockHold
SELECT FROM tasker.holds WHERE hold_uuid = $1 FOR NO KEY UPDATE;

-- name: tryLockHold
SELECT clock_timestamp() FROM tasker.holds WHERE hold_uuid = $1 AND ended_at IS NULL FOR NO KEY UPDATE SKIP LOCKED;

-- name: moveHold
UPDATE tasker.holds
SET state = $2, blocks = $3, waves = $4, wave = $5, wave_since = $6, wave_steps = $7, ends_at = $8, warned_at = $9, next_probe_at = $10,
    probes = $11, failed_probes = $12, released = $13, owner = $14, updated_at = clock_timestamp(),
    ended_at = CASE WHEN $2 = 'ended' THEN clock_timestamp() END
WHERE hold_uuid = $1;

-- name: endHeldReleases
UPDATE tasker.hold_releases SET outcome = 'gone', judged_at = clock_timestamp() WHERE hold_uuid = $1 AND outcome IS NULL;

-- name: holdExtendedAt
SELECT max(changed_at) FROM tasker.hold_history WHERE hold_uuid = $1 AND event = $2;

-- name: pruneHolds
DELETE FROM tasker.holds WHERE hold_uuid IN (
    SELECT h.hold_uuid FROM tasker.holds h
    WHERE h.ended_at < clock_timestamp() - $1::interval AND h.began_at < clock_timestamp() - $1::interval
    ORDER BY h.began_at LIMIT $2
    FOR UPDATE SKIP LOCKED
);
