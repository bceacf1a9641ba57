-- name: leaseKey
SELECT secret FROM tasker.lease_key WHERE only_row;
