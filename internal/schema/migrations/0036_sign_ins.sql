-- A sign-in at an identity provider may begin at one server and end at another.
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
