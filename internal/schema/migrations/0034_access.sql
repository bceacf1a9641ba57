-- Who may use the API and the pages: keys of programs and sessions of browsers. What is
-- stored of a secret is its SHA-256: secrets have 130 random bits, so that no one guesses
-- them from it.

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
    CONSTRAINT api_key_name_is_short CHECK (length(name) BETWEEN 1 AND 100),
    CONSTRAINT api_key_revoked_by_somebody CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);
COMMENT ON TABLE tasker.api_keys IS 'Keys with which programs sign in. What is recorded as the actor is key:name. Revoked keys are kept: history names them.';
COMMENT ON COLUMN tasker.api_keys.grants IS 'What the key may do: role@namespace, with * for all namespaces.';
COMMENT ON COLUMN tasker.api_keys.last_used_at IS 'Written at most once a minute.';
CREATE UNIQUE INDEX api_key_name_is_unique ON tasker.api_keys (name) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_time ON tasker.api_keys (created_at DESC, key_uuid DESC);

CREATE TABLE tasker.api_key_secrets (
    prefix     text PRIMARY KEY,
    key_uuid   uuid NOT NULL REFERENCES tasker.api_keys,
    digest     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ends_at    timestamptz,
    CONSTRAINT api_key_digest_is_sha256 CHECK (octet_length(digest) = 32)
);
COMMENT ON TABLE tasker.api_key_secrets IS 'Secrets of keys: one of each, and for a while the one before, when a key is rotated.';
COMMENT ON COLUMN tasker.api_key_secrets.prefix IS 'How the secret begins. It is shown, so that a key that was found somewhere can be looked up.';
CREATE INDEX api_key_secrets_of_key ON tasker.api_key_secrets (key_uuid);

CREATE TABLE tasker.sessions (
    session_uuid uuid PRIMARY KEY,
    digest       bytea NOT NULL UNIQUE,
    subject      text NOT NULL,
    key_uuid     uuid REFERENCES tasker.api_keys,
    groups       text[] NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    ends_at      timestamptz NOT NULL,
    ended_at     timestamptz,
    CONSTRAINT session_digest_is_sha256 CHECK (octet_length(digest) = 32)
);
COMMENT ON TABLE tasker.sessions IS 'Sessions of browsers. Those that have ended are removed after a day.';
COMMENT ON COLUMN tasker.sessions.key_uuid IS 'The key that signed in; the session ends with it. Null for a person from an identity provider.';
COMMENT ON COLUMN tasker.sessions.groups IS 'The groups of the person, as the identity provider said at sign-in.';
COMMENT ON COLUMN tasker.sessions.seen_at IS 'The last request, to the minute; a session that is not used for long enough ends.';
CREATE INDEX sessions_by_end ON tasker.sessions (ends_at);

-- Servers remember who somebody is, and look here every other second whether any of that
-- has changed, also when somebody changes it by hand.
CREATE TABLE tasker.access_revision (
    only_row boolean PRIMARY KEY DEFAULT true,
    revision bigint NOT NULL,
    CONSTRAINT access_revision_is_one_row CHECK (only_row)
);
COMMENT ON TABLE tasker.access_revision IS 'Counts changes that take access away from somebody. Servers ask for it every other second.';
INSERT INTO tasker.access_revision (revision) VALUES (1);

CREATE FUNCTION tasker.note_access_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE tasker.access_revision SET revision = revision + 1;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tasker.note_access_change() IS 'Counts a change that may take access away from somebody, for servers that remember it.';
CREATE TRIGGER key_change_is_noted AFTER UPDATE OF grants, expires_at, revoked_at, name ON tasker.api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.note_access_change();
CREATE TRIGGER key_removal_is_noted AFTER DELETE ON tasker.api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.note_access_change();
CREATE TRIGGER secret_change_is_noted AFTER UPDATE OR DELETE ON tasker.api_key_secrets
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.note_access_change();
CREATE TRIGGER session_change_is_noted AFTER UPDATE OF ends_at, ended_at ON tasker.sessions
    FOR EACH STATEMENT EXECUTE FUNCTION tasker.note_access_change();

ALTER TABLE tasker.workers ADD COLUMN registered_by text;
COMMENT ON COLUMN tasker.workers.registered_by IS 'The subject that registered the worker; null where nobody signs in.';
