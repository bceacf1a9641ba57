-- Lease tokens are signed, so that only the worker that was given one can use it.
-- The key is made here, once, from 244 random bits, and shared by all servers of
-- the database.

CREATE TABLE tasker.lease_key (
    only_row   boolean PRIMARY KEY DEFAULT true,
    secret     bytea NOT NULL,
    used_from  timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT lease_key_is_one_row CHECK (only_row),
    CONSTRAINT lease_key_is_long_enough CHECK (octet_length(secret) >= 32)
);
COMMENT ON TABLE tasker.lease_key IS 'The key that signs lease tokens. Whoever reads it can report results in the name of any worker.';
COMMENT ON COLUMN tasker.lease_key.used_from IS 'Leases claimed from then on have signed tokens. Set by the first server that knows signed tokens to a day later, because older servers and workers run meanwhile; null until then.';

-- A database that no worker has used has nothing older to wait for.
INSERT INTO tasker.lease_key (secret, used_from)
SELECT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    CASE WHEN NOT EXISTS (SELECT FROM tasker.workers) THEN clock_timestamp() END;
