-- name: findParts
-- Returns the objects of the schema, and each column of its tables and views.
SELECT 'SCHEMA' AS kind, 'tasker' AS object, 'tasker' AS name, '' AS col, false AS is_view, true AS is_open
UNION ALL
SELECT 'TABLE', 'tasker.' || quote_ident(c.relname), c.relname::text, a.attname::text, c.relkind IN ('v', 'm'),
    a.atttypid NOT IN ('json'::regtype, 'jsonb'::regtype, 'bytea'::regtype)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'tasker'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
UNION ALL
SELECT 'ROUTINE', format('tasker.%I(%s)', p.proname, pg_get_function_identity_arguments(p.oid)), p.proname::text, '',
    false, p.provolatile <> 'v'
FROM pg_proc p
WHERE p.pronamespace = 'tasker'::regnamespace AND p.prorettype <> 'trigger'::regtype;

-- name: findPrivileges
-- Returns the privileges that the owner has granted to the roles $1 and $2, and those that PUBLIC has on
-- functions.
WITH granted AS (
    SELECT 'SCHEMA' AS kind, 'tasker' AS object, '' AS col, n.nspowner AS owner, e.*
    FROM pg_namespace n, aclexplode(n.nspacl) e
    WHERE n.nspname = 'tasker'
    UNION ALL
    SELECT 'TABLE', 'tasker.' || quote_ident(c.relname), '', c.relowner, e.*
    FROM pg_class c, aclexplode(c.relacl) e
    WHERE c.relnamespace = 'tasker'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
    UNION ALL
    SELECT 'TABLE', 'tasker.' || quote_ident(c.relname), a.attname, c.relowner, e.*
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped, aclexplode(a.attacl) e
    WHERE c.relnamespace = 'tasker'::regnamespace
    UNION ALL
    SELECT 'ROUTINE', format('tasker.%I(%s)', p.proname, pg_get_function_identity_arguments(p.oid)), '', p.proowner, e.*
    FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) e
    WHERE p.pronamespace = 'tasker'::regnamespace
)
SELECT g.kind, g.object, g.col, coalesce(r.rolname::text, '') AS grantee, g.privilege_type AS privilege
FROM granted g
LEFT JOIN pg_roles r ON r.oid = g.grantee
WHERE g.grantor = g.owner AND (r.rolname IN ($1, $2) OR (g.grantee = 0 AND g.kind = 'ROUTINE'));

-- name: missingPrivileges
-- Returns those of the privileges $3 on the columns $2 (or '') of the tables $1 that the user lacks, and
-- the functions that the user may not execute.
SELECT array(
    SELECT format('%s on %s', p, t)
    FROM unnest($1::text[], $2::text[], $3::text[]) AS w (t, c, p)
    WHERE NOT CASE WHEN p = 'USAGE' THEN has_sequence_privilege('tasker.' || t, p)
        WHEN c <> '' THEN has_column_privilege('tasker.' || t, c, p)
        ELSE has_table_privilege('tasker.' || t, p) END
    UNION ALL
    SELECT format('EXECUTE on %s', p.proname)
    FROM pg_proc p
    WHERE p.pronamespace = 'tasker'::regnamespace AND p.prorettype <> 'trigger'::regtype
        AND NOT has_function_privilege(p.oid, 'EXECUTE')
);
