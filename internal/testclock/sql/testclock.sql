-- name: startClock
INSERT INTO test_clock.setting VALUES ($1, pg_catalog.clock_timestamp(), $2);

-- name: now
SELECT test_clock.clock_timestamp();

-- name: forward
UPDATE test_clock.setting
SET virtual = test_clock.clock_timestamp() + $1::interval, actual = pg_catalog.clock_timestamp();

-- name: setLockTimeout
SELECT set_config('lock_timeout', $1, true);

-- name: lockClock
LOCK TABLE test_clock.setting IN ACCESS EXCLUSIVE MODE;

-- name: wake
SELECT pg_notify($1, 'test-clock 0');
