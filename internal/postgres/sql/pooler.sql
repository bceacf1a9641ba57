-- name: setSettings
SELECT pg_backend_pid(), array_agg(set_config(name, value, false) ORDER BY place)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS s (name, value, place);

-- name: countLost
SELECT count(*) FROM unnest($1::text[], $2::text[]) AS s (name, value) WHERE value IS DISTINCT FROM current_setting(name, true);

-- name: selectProcessID
SELECT pg_backend_pid();
