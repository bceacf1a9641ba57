-- Links by which a step that waits for a person is answered once, without signing in. What is stored is the SHA-256 of the token.
CREATE TABLE tasker.answer_links (
    link_uuid  uuid PRIMARY KEY,
    task_uuid  uuid NOT NULL,
    step_uuid  uuid NOT NULL,
    fence      bigint NOT NULL,
    assignee   text COLLATE "C" NOT NULL,
    digest     bytea NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    revoked_at timestamptz,
    revoked_by text NOT NULL DEFAULT '',
    CONSTRAINT answer_link_digest_is_sha256 CHECK (octet_length(digest) = 32),
    CONSTRAINT answer_link_is_used_or_revoked CHECK (used_at IS NULL OR revoked_at IS NULL)
);
COMMENT ON TABLE tasker.answer_links IS 'Links by which a step that waits for a person is answered once, without signing in. Removed with the task.';
COMMENT ON COLUMN tasker.answer_links.fence IS 'The fence of the wait for which it was made: the step has another one after a reset.';
COMMENT ON COLUMN tasker.answer_links.assignee IS 'For whom it was made. It is worth nothing once the step is assigned to somebody else.';
COMMENT ON COLUMN tasker.answer_links.digest IS 'The SHA-256 of the token, which is shown once.';
CREATE UNIQUE INDEX answer_link_digest_is_unique ON tasker.answer_links (digest);
CREATE INDEX answer_links_of_step ON tasker.answer_links (task_uuid, step_uuid, link_uuid);
