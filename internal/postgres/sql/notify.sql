-- name: notify
SELECT pg_notify($1, m) FROM unnest($2::text[]) m;
