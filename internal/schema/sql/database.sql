-- name: findRoles
-- Derives the names of the roles from that of the owner of the schema, PREFIX_migrate.
SELECT o.rolname, s.rolname, r.rolname
FROM pg_namespace n
JOIN pg_roles o ON o.oid = n.nspowner
JOIN pg_roles s ON s.rolname = regexp_replace(o.rolname, '_migrate$', '_server')
JOIN pg_roles r ON r.rolname = regexp_replace(o.rolname, '_migrate$', '_reader')
WHERE n.nspname = 'tasker' AND o.rolname LIKE '%\_migrate';

-- name: currentUser
SELECT current_user;

-- name: describeDatabase
SELECT quote_ident(datname), pg_encoding_to_char(encoding), current_setting('server_version'),
    current_setting('server_version_num')::int
FROM pg_database WHERE datname = current_database();
