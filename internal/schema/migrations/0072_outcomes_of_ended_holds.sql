-- Servers left the outcomes of steps in flight open when a hold ended, and their attempts did not
-- count from then on. There are at most as many such rows as steps were in flight at the ends of holds.
UPDATE tasker.hold_releases r
SET outcome = 'gone', judged_at = clock_timestamp()
FROM tasker.holds h
WHERE r.outcome IS NULL AND h.hold_uuid = r.hold_uuid AND h.ended_at IS NOT NULL;
