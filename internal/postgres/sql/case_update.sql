-- name: lockCase
SELECT namespace FROM tasker.cases WHERE case_id = $1 FOR NO KEY UPDATE;

-- name: recordCase
INSERT INTO tasker.case_history (case_id, event, actor, notes, metadata) VALUES ($1, $2, $3, nullif($4, ''), $5::text::jsonb);

-- name: updateCase
UPDATE tasker.cases c
SET owner = CASE WHEN $2::text IS NULL THEN c.owner ELSE nullif($2, '') END,
    owned_until = CASE WHEN $2::text IS NULL THEN c.owned_until WHEN $2 <> '' THEN now() + $3::interval END,
    snoozed_until = CASE WHEN $4 THEN $5::timestamptz ELSE c.snoozed_until END,
    snooze_above = CASE WHEN $4 THEN $6::bigint ELSE c.snooze_above END,
    fixed_in = CASE WHEN $7::text IS NULL THEN c.fixed_in ELSE nullif($7, '') END,
    state = n.state, state_since = CASE WHEN n.state = c.state THEN c.state_since ELSE clock_timestamp() END,
    updated_at = clock_timestamp()
FROM tasker.cases o
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN $4 AND $5::timestamptz IS NOT NULL AND o.state <> 'resolved' THEN 'resting'
        WHEN o.state = 'resting' AND $4 THEN 'ongoing'
        WHEN o.state IN ('new', 'regressed') AND ($2 <> '' OR $8) THEN 'ongoing'
        ELSE o.state
    END AS state
) n
WHERE c.case_id = $1 AND o.case_id = c.case_id
RETURNING c.state;

-- name: countCaseNotes
SELECT count(*) FROM (SELECT FROM tasker.case_history WHERE case_id = $1 AND notes IS NOT NULL LIMIT $2) n;

-- name: moveFingerprints
WITH moved AS (UPDATE tasker.case_fingerprints SET case_id = $2 WHERE case_id = $1 RETURNING 1)
SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM tasker.case_fingerprints WHERE case_id IN ($1, $2));

-- name: mergeCases
UPDATE tasker.cases
SET merged_into = CASE WHEN case_id = $1 THEN $2::uuid END, updated_at = clock_timestamp(),
    state = CASE WHEN case_id = $1 THEN 'resolved' WHEN state = 'resolved' THEN 'ongoing' ELSE state END,
    state_since = CASE WHEN case_id = $1 OR state = 'resolved' THEN clock_timestamp() ELSE state_since END,
    resolved_at = CASE WHEN case_id = $1 THEN clock_timestamp() END
WHERE case_id IN ($1, $2);

-- name: followIncident
-- Adds case $2 to the open incident of case $1, which would otherwise appear to be resolved.
INSERT INTO tasker.incident_cases (incident_id, case_id, told_state, told_entries)
SELECT ic.incident_id, $2, ic.told_state, ic.told_entries
FROM tasker.incident_cases ic
JOIN tasker.incidents i ON i.incident_id = ic.incident_id
WHERE ic.case_id = $1 AND i.ended_at IS NULL
  AND NOT EXISTS (
      SELECT FROM tasker.incident_cases oc JOIN tasker.incidents o ON o.incident_id = oc.incident_id
      WHERE oc.case_id = $2 AND o.ended_at IS NULL
  );

-- name: restoreFingerprints
-- Returns its own fingerprints to a case, and those of cases that were merged into it.
WITH RECURSIVE merged AS (
    SELECT $1::uuid AS case_id
    UNION
    SELECT c.case_id FROM merged m JOIN tasker.cases c ON c.merged_into = m.case_id
)
UPDATE tasker.case_fingerprints SET case_id = $1 WHERE home_case_id IN (SELECT case_id FROM merged);

-- name: unmergeCase
UPDATE tasker.cases SET merged_into = NULL, state = 'ongoing', state_since = clock_timestamp(), resolved_at = NULL, updated_at = clock_timestamp()
WHERE case_id = $1;

-- name: fingerprintsOfCase
SELECT fingerprint FROM tasker.case_fingerprints WHERE case_id = $1 ORDER BY fingerprint;

-- name: countSplitMembers
SELECT count(*) FROM tasker.case_members m WHERE m.ended_at IS NULL AND m.fingerprint = $1
    AND m.namespace = (SELECT c.namespace FROM tasker.case_fingerprints f JOIN tasker.cases c ON c.case_id = f.case_id WHERE f.fingerprint = $1) AND m.fingerprint_version > 0 AND CASE $2
    WHEN 'error_message' THEN strpos(m.error_message, $3) > 0
    WHEN 'error_type' THEN m.error_type = $3
    WHEN 'worker_version' THEN m.worker_version = $3
    WHEN 'task_version' THEN m.task_version = $3
END;

-- name: insertRefinement
INSERT INTO tasker.case_refinements (case_id, fingerprint, field, literal, actor, reason) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (fingerprint, field, literal) DO NOTHING;

-- name: countRefinements
SELECT count(*) FROM tasker.case_refinements WHERE fingerprint = $1;

-- name: selectSplitDepth
-- Counts the consecutive splits that led to a fingerprint.
WITH RECURSIVE came AS (
    SELECT $1::uuid AS fingerprint, 0 AS depth
    UNION ALL
    SELECT r.fingerprint, c.depth + 1
    FROM came c
    JOIN tasker.case_refinements r ON md5(concat_ws(E'\x1f', r.fingerprint, r.field, r.literal))::uuid = c.fingerprint
    WHERE c.depth < $2
)
SELECT max(depth) FROM came;

-- name: selectRefinementToApply
SELECT refinement_id, fingerprint, field, literal FROM tasker.case_refinements
WHERE applied_at IS NULL ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: reclassifySplitMembers
UPDATE tasker.case_members SET fingerprint_version = 0
            WHERE dlq_entry_uuid IN (SELECT m.dlq_entry_uuid FROM tasker.case_members m WHERE m.ended_at IS NULL AND m.fingerprint = $1
    AND m.namespace = (SELECT c.namespace FROM tasker.case_fingerprints f JOIN tasker.cases c ON c.case_id = f.case_id WHERE f.fingerprint = $1) AND m.fingerprint_version > 0 AND CASE $2
    WHEN 'error_message' THEN strpos(m.error_message, $3) > 0
    WHEN 'error_type' THEN m.error_type = $3
    WHEN 'worker_version' THEN m.worker_version = $3
    WHEN 'task_version' THEN m.task_version = $3
END LIMIT $4 FOR NO KEY UPDATE);

-- name: refinementApplied
UPDATE tasker.case_refinements SET applied_at = clock_timestamp() WHERE refinement_id = $1;
