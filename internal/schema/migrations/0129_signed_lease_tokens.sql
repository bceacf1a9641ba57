-- Every lease token is signed.
ALTER TABLE tasker.lease_key DROP COLUMN used_from;
