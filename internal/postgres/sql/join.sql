-- name: readSettings
SELECT coalesce(current_setting(name, true), '') FROM unnest($1::text[]) WITH ORDINALITY AS n (name, place) ORDER BY place;

-- name: useSettings
SELECT set_config(name, value, true) FROM unnest($1::text[], $2::text[]) AS s (name, value);

-- name: readsCommitted
SELECT current_setting('transaction_isolation');
