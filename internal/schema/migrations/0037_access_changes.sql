-- Who takes access away from somebody waits for nobody else who does: a row that all of them
-- updated was locked until the first had committed, in psql for as long as somebody thinks.
-- Each change has a row of its own now, and servers compare which rows there are.

CREATE TABLE tasker.access_changes (
    change_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE tasker.access_changes IS 'Changes that take access away from somebody. Servers ask every other second which rows there are; those of the last hour are kept, and each new one removes some that are older.';

-- Removed are some rows that nobody else is removing. Of a row that is written before and
-- committed after another, both are seen: it is the set that counts, not the largest id.
CREATE OR REPLACE FUNCTION tasker.note_access_change() RETURNS trigger
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

-- Servers of the previous version read the number, and the first key is made by one
-- transaction at a time: a view has no row to lock for that.
DROP TABLE tasker.access_revision;

CREATE FUNCTION tasker.lock_access_revision() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('tasker.access_revision', 0));
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION tasker.lock_access_revision() IS 'Has an update of the view wait for others, as one of a row would.';

-- As of this migration: views/access_revision.sql replaces it.
CREATE VIEW tasker.access_revision AS
SELECT true AS only_row, coalesce(bit_xor(hashint8extended(change_id, 0)), 0) AS revision
FROM tasker.access_changes;
CREATE TRIGGER revision_is_locked INSTEAD OF UPDATE ON tasker.access_revision
    FOR EACH ROW EXECUTE FUNCTION tasker.lock_access_revision();
