-- name: findViews
-- Returns the views of the schema, except those of extensions.
SELECT
    c.oid, c.oid::regclass::text AS name, c.relname::text AS plain,
    CASE c.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END AS kind,
    c.xmin::text AS version
FROM pg_class c
WHERE c.relnamespace = 'tasker'::regnamespace
    AND c.relkind IN ('v', 'm')
    AND NOT EXISTS (
        SELECT FROM pg_depend e
        WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e'
    )
ORDER BY kind, name;

-- name: findRoutines
-- Returns the functions of the schema, except those that a default, constraint, index, trigger or policy
-- uses, directly or through another function. Those are only ever replaced.
WITH RECURSIVE routine AS (
    SELECT p.oid
    FROM pg_proc p
    WHERE p.pronamespace = 'tasker'::regnamespace
        AND NOT EXISTS (
            SELECT FROM pg_depend e
            WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e'
        )
), needed AS (
    SELECT r.oid
    FROM routine r
    JOIN pg_depend d ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = r.oid
    WHERE d.classid NOT IN ('pg_proc'::regclass, 'pg_rewrite'::regclass)
    UNION
    SELECT r.oid
    FROM needed n
    JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = n.oid AND d.refclassid = 'pg_proc'::regclass
    JOIN routine r ON r.oid = d.refobjid
)
SELECT p.oid, p.oid::regprocedure::text AS name, p.proname::text AS plain, 'ROUTINE' AS kind, p.xmin::text AS version
FROM routine r
JOIN pg_proc p ON p.oid = r.oid
WHERE r.oid NOT IN (SELECT oid FROM needed)
ORDER BY name;
