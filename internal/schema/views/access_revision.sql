-- Which rows there are in one number. A change that is written before another and committed
-- after it changes the number as well, as the largest id would not.
CREATE OR REPLACE VIEW tasker.access_revision AS
SELECT true AS only_row, coalesce(bit_xor(hashint8extended(change_id, 0)), 0) AS revision
FROM tasker.access_changes;
COMMENT ON VIEW tasker.access_revision IS 'A number that is another one after access was taken away from somebody.';
