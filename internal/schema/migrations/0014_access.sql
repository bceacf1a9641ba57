-- API keys, sessions and the audit log.

CREATE TABLE tasker.api_keys (
    key_uuid     uuid PRIMARY KEY,
    name         text NOT NULL,
    grants       text[] NOT NULL,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    revoked_by   text,
    CONSTRAINT api_key_name_is_short CHECK (length(name) >= 1 AND length(name) <= 100),
    CONSTRAINT api_key_revoked_by_somebody CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);
COMMENT ON TABLE tasker.api_keys IS 'Keys with which programs sign in. What is recorded as the actor is key:name. Revoked keys are kept: history names them.';
COMMENT ON COLUMN tasker.api_keys.grants IS 'What the key may do: role@namespace, with * for all namespaces.';
COMMENT ON COLUMN tasker.api_keys.last_used_at IS 'Written at most once a minute.';
CREATE UNIQUE INDEX api_key_name_is_unique ON tasker.api_keys (name) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_time ON tasker.api_keys (created_at DESC, key_uuid DESC);

CREATE FUNCTION tasker.note_access_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM tasker.access_changes WHERE change_id IN (
        SELECT change_id FROM tasker.access_changes
        WHERE changed_at < clock_timestamp() - interval '1 hour'
        ORDER BY change_id LIMIT 20 FOR UPDATE SKIP LOCKED
    );
    INSERT INTO tasker.access_changes DEFAULT VALUES;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.note_access_change() IS 'Counts a change that may take access away from somebody, for servers that remember it.';
CREATE TRIGGER key_change_is_noted AFTER UPDATE OF grants, expires_at, revoked_at, name ON tasker.api_keys
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.note_access_change();

CREATE TRIGGER key_removal_is_noted AFTER DELETE ON tasker.api_keys
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.note_access_change();

CREATE TRIGGER revoked_key_stays_revoked BEFORE UPDATE ON tasker.api_keys
    FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NULL)
    EXECUTE FUNCTION tasker.refuse_restored_access('a key');

CREATE TABLE tasker.api_key_secrets (
    prefix     text PRIMARY KEY,
    key_uuid   uuid NOT NULL,
    digest     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ends_at    timestamptz,
    CONSTRAINT api_key_digest_is_sha256 CHECK (octet_length(digest) = 32),
    CONSTRAINT api_key_secrets_key_uuid_fkey FOREIGN KEY (key_uuid) REFERENCES tasker.api_keys (key_uuid)
);
COMMENT ON TABLE tasker.api_key_secrets IS 'Secrets of keys: one of each, and for a while the one before, when a key is rotated.';
COMMENT ON COLUMN tasker.api_key_secrets.prefix IS 'How the secret begins. It is shown, so that a key that was found somewhere can be looked up.';
CREATE INDEX api_key_secrets_of_key ON tasker.api_key_secrets (key_uuid);

CREATE TRIGGER secret_change_is_noted AFTER DELETE OR UPDATE ON tasker.api_key_secrets
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.note_access_change();

CREATE TRIGGER secret_ends_no_later BEFORE UPDATE ON tasker.api_key_secrets
    FOR EACH ROW WHEN (COALESCE(NEW.ends_at, 'infinity') > COALESCE(OLD.ends_at, 'infinity'))
    EXECUTE FUNCTION tasker.refuse_restored_access('a secret');

CREATE TABLE tasker.sessions (
    session_uuid uuid PRIMARY KEY,
    digest       bytea NOT NULL,
    subject      text NOT NULL,
    key_uuid     uuid,
    groups       text[] NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    ends_at      timestamptz NOT NULL,
    ended_at     timestamptz,
    CONSTRAINT session_digest_is_sha256 CHECK (octet_length(digest) = 32),
    CONSTRAINT sessions_digest_key UNIQUE (digest),
    CONSTRAINT sessions_key_uuid_fkey FOREIGN KEY (key_uuid) REFERENCES tasker.api_keys (key_uuid)
);
COMMENT ON TABLE tasker.sessions IS 'Sessions of browsers. Those that have ended are removed after a day.';
COMMENT ON COLUMN tasker.sessions.key_uuid IS 'The key that signed in; the session ends with it. Null for a person from an identity provider.';
COMMENT ON COLUMN tasker.sessions.groups IS 'The groups of the person, as the identity provider said at sign-in.';
COMMENT ON COLUMN tasker.sessions.seen_at IS 'The last request, to the minute; a session that is not used for long enough ends.';
CREATE INDEX sessions_by_end ON tasker.sessions (ends_at);
CREATE INDEX sessions_by_subject ON tasker.sessions (subject, created_at);

CREATE TRIGGER ended_session_stays_ended BEFORE UPDATE ON tasker.sessions
    FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL AND NEW.ended_at IS NULL)
    EXECUTE FUNCTION tasker.refuse_restored_access('a session');

CREATE TRIGGER session_change_is_noted AFTER UPDATE OF ends_at, ended_at ON tasker.sessions
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.note_access_change();

CREATE TABLE tasker.sign_ins (
    digest     bytea PRIMARY KEY,
    state      text NOT NULL,
    nonce      text NOT NULL,
    verifier   text NOT NULL,
    back       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT sign_in_digest_is_sha256 CHECK (octet_length(digest) = 32)
);
COMMENT ON TABLE tasker.sign_ins IS 'Browsers that are at the identity provider. A row goes with the end of the sign-in, or after ten minutes.';
CREATE INDEX sign_ins_by_time ON tasker.sign_ins (created_at);

CREATE TABLE tasker.access_changes (
    change_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE tasker.access_changes IS 'Changes that take access away from somebody. Servers ask every other second which rows there are; those of the last hour are kept, and each new one removes some that are older.';

CREATE TABLE tasker.audit_events (
    audit_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    actor      text NOT NULL,
    action     text NOT NULL,
    subject    text NOT NULL,
    data       jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE tasker.audit_events IS 'What happened to Tasker itself and who did it: events that could not be sent, and what operators did about it. It only grows.';
CREATE INDEX audit_events_by_action ON tasker.audit_events (action, audit_id DESC);

CREATE FUNCTION tasker.audit_only_grows() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the audit log only grows' USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION tasker.audit_only_grows() IS 'Refuses to change or remove what was recorded.';
CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON tasker.audit_events
    FOR EACH STATEMENT
    EXECUTE FUNCTION tasker.audit_only_grows();

CREATE TRIGGER audit_never_changes BEFORE DELETE OR UPDATE ON tasker.audit_events
    FOR EACH ROW
    EXECUTE FUNCTION tasker.audit_only_grows();
