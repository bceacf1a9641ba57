-- name: setSettings
SELECT pg_backend_pid(), array_agg(set_config(name, value, false) ORDER BY place)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS s (name, value, place);

-- name: countLost
SELECT count(*) FROM unnest($1::text[], $2::text[]) AS s (name, value) WHERE value IS DISTINCT FROM current_setting(name, true);

-- name: selectProcessID
SELECT pg_backend_pid();

-- name: exchangeSettings
-- Sets the parameters of a session and returns their previous values, in order. The first column of
-- a row is computed before the second one changes it.
SELECT coalesce(current_setting(name, true), '') AS before, set_config(name, value, false) AS after
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS s (name, value, place)
ORDER BY place;

-- name: restoreSettings
-- This is not exchangeSettings, because a plan is invalid after a change of search_path.
SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS s (name, value);
