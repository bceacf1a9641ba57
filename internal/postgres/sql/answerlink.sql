-- name: selectAnswerLinks
SELECT
    l.link_uuid AS uuid, l.task_uuid, l.step_uuid, l.assignee,
    CASE WHEN l.used_at IS NOT NULL THEN 'used' WHEN l.revoked_at IS NOT NULL THEN 'revoked' WHEN l.expires_at <= clock_timestamp() THEN 'expired'
        WHEN s.fence = l.fence AND s.state = 'pending' AND s.decide_at IS NULL AND a.waiting AND a.assignee = l.assignee THEN 'open' ELSE 'void' END AS state, l.created_by, l.created_at, l.expires_at, l.used_at, l.revoked_at, l.revoked_by
FROM tasker.answer_links l
JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid
JOIN tasker.human_steps a ON a.task_uuid = l.task_uuid AND a.step_uuid = l.step_uuid
WHERE l.task_uuid = $1 AND l.step_uuid = $2
ORDER BY l.link_uuid DESC
LIMIT $3;

-- name: answerLinkByDigest
SELECT
    l.link_uuid AS uuid, l.task_uuid, l.step_uuid, l.assignee,
    CASE WHEN l.used_at IS NOT NULL THEN 'used' WHEN l.revoked_at IS NOT NULL THEN 'revoked' WHEN l.expires_at <= clock_timestamp() THEN 'expired'
        WHEN s.fence = l.fence AND s.state = 'pending' AND s.decide_at IS NULL AND a.waiting AND a.assignee = l.assignee THEN 'open' ELSE 'void' END AS state, l.created_by, l.created_at, l.expires_at, l.used_at, l.revoked_at, l.revoked_by
FROM tasker.answer_links l
JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid
JOIN tasker.human_steps a ON a.task_uuid = l.task_uuid AND a.step_uuid = l.step_uuid WHERE l.digest = $1;

-- name: countOpenLinks
SELECT count(*)
FROM tasker.answer_links l
JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid
JOIN tasker.human_steps a ON a.task_uuid = l.task_uuid AND a.step_uuid = l.step_uuid
WHERE l.task_uuid = $1 AND l.step_uuid = $2 AND
    CASE WHEN l.used_at IS NOT NULL THEN 'used' WHEN l.revoked_at IS NOT NULL THEN 'revoked' WHEN l.expires_at <= clock_timestamp() THEN 'expired'
        WHEN s.fence = l.fence AND s.state = 'pending' AND s.decide_at IS NULL AND a.waiting AND a.assignee = l.assignee THEN 'open' ELSE 'void' END = 'open';

-- name: dropEndedLinks
DELETE FROM tasker.answer_links WHERE link_uuid IN (
    SELECT l.link_uuid
FROM tasker.answer_links l
JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid
JOIN tasker.human_steps a ON a.task_uuid = l.task_uuid AND a.step_uuid = l.step_uuid
    WHERE l.task_uuid = $1 AND l.step_uuid = $2 AND
    CASE WHEN l.used_at IS NOT NULL THEN 'used' WHEN l.revoked_at IS NOT NULL THEN 'revoked' WHEN l.expires_at <= clock_timestamp() THEN 'expired'
        WHEN s.fence = l.fence AND s.state = 'pending' AND s.decide_at IS NULL AND a.waiting AND a.assignee = l.assignee THEN 'open' ELSE 'void' END <> 'open'
    ORDER BY l.link_uuid DESC
    OFFSET $3
);

-- name: addAnswerLink
INSERT INTO tasker.answer_links (link_uuid, task_uuid, step_uuid, fence, assignee, digest, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() + $8::interval);

-- name: useAnswerLink
UPDATE tasker.answer_links u
SET used_at = clock_timestamp()
FROM tasker.answer_links l
JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid
JOIN tasker.human_steps a ON a.task_uuid = l.task_uuid AND a.step_uuid = l.step_uuid
WHERE u.link_uuid = l.link_uuid AND l.link_uuid = $1 AND u.used_at IS NULL AND u.revoked_at IS NULL AND u.expires_at > clock_timestamp() AND
    CASE WHEN l.used_at IS NOT NULL THEN 'used' WHEN l.revoked_at IS NOT NULL THEN 'revoked' WHEN l.expires_at <= clock_timestamp() THEN 'expired'
        WHEN s.fence = l.fence AND s.state = 'pending' AND s.decide_at IS NULL AND a.waiting AND a.assignee = l.assignee THEN 'open' ELSE 'void' END = 'open';

-- name: revokeAnswerLink
UPDATE tasker.answer_links SET revoked_at = clock_timestamp(), revoked_by = $4
WHERE link_uuid = $3 AND task_uuid = $1 AND step_uuid = $2 AND used_at IS NULL AND revoked_at IS NULL;

-- name: endedAnswerLink
SELECT
    l.link_uuid AS uuid, l.task_uuid, l.step_uuid, l.assignee,
    CASE WHEN l.used_at IS NOT NULL THEN 'used' WHEN l.revoked_at IS NOT NULL THEN 'revoked' WHEN l.expires_at <= clock_timestamp() THEN 'expired'
        WHEN s.fence = l.fence AND s.state = 'pending' AND s.decide_at IS NULL AND a.waiting AND a.assignee = l.assignee THEN 'open' ELSE 'void' END AS state, l.created_by, l.created_at, l.expires_at, l.used_at, l.revoked_at, l.revoked_by
FROM tasker.answer_links l
JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid
JOIN tasker.human_steps a ON a.task_uuid = l.task_uuid AND a.step_uuid = l.step_uuid WHERE l.link_uuid = $3 AND l.task_uuid = $1 AND l.step_uuid = $2;
