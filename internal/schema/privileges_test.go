package schema_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/schema"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a text with a file in testdata, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-golden +database): %s\nif that is intended: go test ./internal/schema -run %s -update", path, diff, t.Name())
	}
}

// as is the database for a role.
func (p *findPosition) as(role string) *findPosition {
	p.Helper()
	other := &findPosition{T: p.T, url: p.db.As(role), db: p.db}
	other.conn = other.connect()
	return other
}

// Every privilege of the roles, and of PUBLIC, is a line of a file that is reviewed:
// a new table, column or function changes it.
func TestPrivilegesAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	got := migrated(t).texts(`
		WITH grants AS (
			SELECT 'schema ' || n.nspname AS object, '' AS col, e.*
			FROM pg_namespace n, aclexplode(n.nspacl) e
			WHERE n.nspname = 'tasker'
			UNION ALL
			SELECT CASE c.relkind WHEN 'v' THEN 'view ' WHEN 'S' THEN 'sequence ' ELSE 'table ' END || c.relname, '', e.*
			FROM pg_class c, aclexplode(c.relacl) e
			WHERE c.relnamespace = 'tasker'::regnamespace
			UNION ALL
			SELECT 'table ' || c.relname, a.attname, e.*
			FROM pg_class c
			JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(a.attacl) e
			WHERE c.relnamespace = 'tasker'::regnamespace
			UNION ALL
			SELECT 'function ' || p.proname, '', e.*
			FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) e
			WHERE p.pronamespace = 'tasker'::regnamespace
		)
		SELECT format('%s: %s may %s%s', object, coalesce(replace(r.rolname, '` + pgtest.RolePrefix + `_', ''), 'everybody'),
			string_agg(DISTINCT g.privilege_type || CASE WHEN g.is_grantable THEN ' and grant it' ELSE '' END, ', '),
			coalesce(' (' || string_agg(DISTINCT nullif(g.col, ''), ', ') || ')', ''))
		FROM grants g
		LEFT JOIN pg_roles r ON r.oid = g.grantee
		WHERE r.rolname IS DISTINCT FROM '` + pgtest.MigrateRole + `'
		GROUP BY object, r.rolname
		ORDER BY 1`)
	slices.Sort(got)
	golden(t, "testdata/privileges.txt", strings.Join(got, "\n")+"\n")
}

func TestTheServerRoleCannotDoMore(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneEntry)
	p.exec(markTexts) // which fills every table
	p.exec(`
		UPDATE tasker.step_history SET task_uuid = (SELECT min(task_uuid::text)::uuid FROM tasker.tasks_dlq);
		UPDATE tasker.task_history SET task_uuid = (SELECT min(task_uuid::text)::uuid FROM tasker.tasks_dlq);
		UPDATE tasker.workflow_steps SET task_uuid = (SELECT min(task_uuid::text)::uuid FROM tasker.tasks_dlq), state = 'complete';
		UPDATE tasker.operations SET settled_at = NULL;
		UPDATE tasker.operation_items SET operation_uuid = (SELECT operation_uuid FROM tasker.operations);
		CREATE SCHEMA other; CREATE TABLE other.secret (n int); CREATE TABLE public.secret (n int); CREATE TABLE tasker.secret (n int);`)
	server := p.as(pgtest.ServerRole)
	for sql, want := range map[string]string{
		`DROP TABLE tasker.tasks`:                                         "must be owner of table tasks",
		`DROP SCHEMA tasker CASCADE`:                                      "must be owner of schema tasker",
		`DROP FUNCTION tasker.case_key`:                                   "must be owner of function",
		`DROP VIEW tasker.v_dlq_dashboard`:                                "must be owner of view",
		`TRUNCATE tasker.tasks`:                                           "permission denied for table tasks",
		`TRUNCATE tasker.workers`:                                         "permission denied for table workers",
		`ALTER TABLE tasker.tasks ADD COLUMN n int`:                       "must be owner of table tasks",
		`ALTER TABLE tasker.tasks_dlq DISABLE TRIGGER ALL`:                "must be owner of table tasks_dlq",
		`CREATE TABLE tasker.mine (n int)`:                                "permission denied for schema tasker",
		`CREATE FUNCTION tasker.mine() RETURNS int LANGUAGE sql RETURN 1`: "permission denied for schema tasker",
		`CREATE TABLE public.mine (n int)`:                                "permission denied for schema public",
		`CREATE SCHEMA mine`:                                              "permission denied for database",
		`CREATE ROLE mine`:                                                "permission denied to create role",
		`CREATE TRIGGER mine BEFORE INSERT ON tasker.tasks EXECUTE FUNCTION tasker.audit_only_grows()`: "permission denied for table tasks",
		`SELECT FROM other.secret`:                                               "permission denied for schema other",
		`SELECT FROM public.secret`:                                              "permission denied for table secret",
		`SELECT FROM tasker.secret`:                                              "permission denied for table secret",
		`SELECT passwd FROM pg_shadow`:                                           "permission denied for view pg_shadow",
		`SET session_replication_role = replica`:                                 "permission denied to set parameter",
		`COPY tasker.tasks TO PROGRAM 'cat'`:                                     "pg_execute_server_program",
		`UPDATE tasker.tasks_dlq_history SET actor = 'bob'`:                      "permission denied for table tasks_dlq_history",
		`DELETE FROM tasker.tasks_dlq_history`:                                   "permission denied for table tasks_dlq_history",
		`DELETE FROM tasker.tasks_dlq`:                                           "permission denied for table tasks_dlq",
		`UPDATE tasker.task_history SET actor = 'bob'`:                           "permission denied for table task_history",
		`UPDATE tasker.step_history SET actor = 'bob'`:                           "permission denied for table step_history",
		`UPDATE tasker.audit_events SET actor = 'bob'`:                           "permission denied for table audit_events",
		`DELETE FROM tasker.audit_events`:                                        "permission denied for table audit_events",
		`UPDATE tasker.schema_migrations SET checksum = ''`:                      "permission denied for table schema_migrations",
		`UPDATE tasker.tasks_dlq SET detail_code = 'harmless'`:                   "never changes", // of a privilege that it has
		`UPDATE tasker.api_keys SET grants = '{admin@*}'`:                        "permission denied for table api_keys",
		`UPDATE tasker.api_keys SET expires_at = NULL`:                           "permission denied for table api_keys",
		`UPDATE tasker.api_key_secrets SET digest = ''`:                          "permission denied for table api_key_secrets",
		`UPDATE tasker.api_keys SET revoked_at = NULL, revoked_by = NULL`:        "a key that has ended stays ended",
		`UPDATE tasker.api_key_secrets SET ends_at = NULL`:                       "a secret that has ended stays ended",
		`UPDATE tasker.api_key_secrets SET ends_at = ends_at + interval '1 day'`: "a secret that has ended stays ended",
		`UPDATE tasker.sessions SET groups = '{admins}'`:                         "permission denied for table sessions",
		`UPDATE tasker.sessions SET ends_at = ends_at + interval '1 day'`:        "permission denied for table sessions",
		`UPDATE tasker.sessions SET ended_at = NULL`:                             "a session that has ended stays ended",
		`UPDATE tasker.outbox SET data = '{}'`:                                   "permission denied for table outbox",
		`UPDATE tasker.answer_links SET assignee = 'eve'`:                        "permission denied for table answer_links",
		`UPDATE tasker.answer_links SET used_at = NULL`:                          "an answer link that has ended stays ended",
		`UPDATE tasker.answer_links SET revoked_at = NULL`:                       "an answer link that has ended stays ended",
		`DELETE FROM tasker.step_history`:                                        "rows of step_history are not removed",
		`DELETE FROM tasker.task_history`:                                        "rows of task_history are not removed",
		`DELETE FROM tasker.workflow_steps`:                                      "rows of workflow_steps are not removed",
		`DELETE FROM tasker.operations`:                                          "rows of operations are not removed",
		`DELETE FROM tasker.operation_items`:                                     "rows of operation_items are not removed",
		`UPDATE tasker.operation_items SET task_uuid = gen_random_uuid()`:        "permission denied for table operation_items",
	} {
		server.refusedAs(sql, want)
	}
}

// Dashboards show how many, since when and why, and not what users have sent.
func TestTheReaderReadsWhatDashboardsShowAndNoPayload(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneEntry)
	reader := p.as(pgtest.ReaderRole)
	for _, view := range []string{"v_dlq_dashboard", "v_task_staleness_monitoring", "v_task_state_analysis"} {
		reader.text(`SELECT count(*)::text FROM (SELECT * FROM tasker.` + view + `) v`)
	}
	for _, sql := range []string{
		`SELECT count(error_pattern || assignee)::text FROM tasker.v_dlq_investigation_queue`,
		`SELECT string_agg(state, '') FROM tasker.tasks`,
		`SELECT count(*)::text FROM tasker.workflow_steps WHERE state = 'enqueued'`,
		`SELECT count(*)::text FROM tasker.get_task_staleness(10)`,
		`SELECT coalesce(max(last_heartbeat_at)::text, '') FROM tasker.workers`,
		`SELECT max(version)::text FROM tasker.schema_migrations`,
	} {
		reader.text(sql)
	}
	for sql, want := range map[string]string{
		`SELECT context FROM tasker.tasks`:                                                                  "permission denied for table tasks",
		`SELECT * FROM tasker.tasks`:                                                                        "permission denied for table tasks",
		`SELECT results FROM tasker.workflow_steps`:                                                         "permission denied for table workflow_steps",
		`SELECT error FROM tasker.workflow_steps`:                                                           "permission denied for table workflow_steps",
		`SELECT detail FROM tasker.workflow_step_transitions`:                                               "permission denied for view workflow_step_transitions",
		`SELECT detail FROM tasker.step_history`:                                                            "permission denied for table step_history",
		`SELECT task_snapshot FROM tasker.tasks_dlq`:                                                        "permission denied for table tasks_dlq",
		`SELECT resolution_notes FROM tasker.tasks_dlq`:                                                     "permission denied for table tasks_dlq",
		`SELECT error_message FROM tasker.v_dlq_investigation_queue`:                                        "permission denied for view v_dlq_investigation_queue",
		`SELECT data FROM tasker.outbox`:                                                                    "permission denied for table outbox",
		`SELECT source FROM tasker.task_templates`:                                                          "permission denied for table task_templates",
		`SELECT secret FROM tasker.lease_key`:                                                               "permission denied for table lease_key",
		`SELECT key FROM tasker.limit_keys`:                                                                 "permission denied for table limit_keys",
		`SELECT key FROM tasker.task_limits`:                                                                "permission denied for table task_limits",
		`SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state) FROM tasker.tasks`: "permission denied for function create_dlq_entry",
		`UPDATE tasker.tasks SET priority = 9`:                                                              "permission denied for table tasks",
		`DELETE FROM tasker.workers`:                                                                        "permission denied for table workers",
		`SELECT FROM tasker.tasks FOR UPDATE`:                                                               "permission denied for table tasks",
	} {
		reader.refusedAs(sql, want)
	}
}

// What an upgrade makes anew has its privileges again, and what it adds has its own.
func TestAnUpgradeGrantsWhatIsNew(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(`
		DROP FUNCTION tasker.key_words CASCADE;
		REVOKE ALL ON TABLE tasker.workers FROM ` + pgtest.ServerRole + `;
		GRANT TRUNCATE ON TABLE tasker.tasks TO ` + pgtest.ServerRole + `;
		GRANT SELECT ON TABLE tasker.tasks TO ` + pgtest.ReaderRole + `;
		GRANT EXECUTE ON FUNCTION tasker.defer_work TO PUBLIC;
		UPDATE tasker.schema_migrations SET checksum = 'of another version' WHERE version = 0`)
	owner := p.as(pgtest.MigrateRole)
	owner.up(schema.Embedded())
	golden := migrated(t)
	const all = `SELECT string_agg(line, E'\n' ORDER BY line) FROM (
		SELECT format('%s %s', relname, array(SELECT a::text FROM unnest(relacl) a ORDER BY 1)) AS line FROM pg_class WHERE relnamespace = 'tasker'::regnamespace
		UNION ALL SELECT format('%s %s', proname, array(SELECT a::text FROM unnest(proacl) a ORDER BY 1)) FROM pg_proc WHERE pronamespace = 'tasker'::regnamespace
	) l`
	if diff := cmp.Diff(strings.Split(golden.text(all), "\n"), strings.Split(p.text(all), "\n")); diff != "" {
		t.Errorf("(-new +upgraded) %s", diff)
	}
	if names, err := schema.Up(t.Context(), owner.conn); err != nil || len(names) > 0 {
		t.Errorf("once more: %v, %v", names, err)
	}
}

// Servers can do all they do as the role of a server.
func TestTheServerRoleSufficesForServers(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	statements := serverStatements(t)
	p.as(pgtest.ServerRole).everyStatement(statements)
}

// The roles come to an installation that exists: it goes on, and gets its privileges
// with the next migrate up.
func TestRolesForAnInstallationThatExists(t *testing.T) {
	t.Parallel()
	p := empty(t)
	const owner = "tasker_test_all_in_one"
	p.exec(`DO $$ BEGIN IF to_regrole('` + owner + `') IS NULL THEN CREATE ROLE ` + owner + `; END IF; END $$`)
	p.exec(`DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO ` + owner + `', current_database()); END $$`)
	old := p.as(owner)
	old.up(schema.Embedded())
	p.Must(schema.Check(t.Context(), old.conn))
	statements := serverStatements(t)
	old.everyStatement(statements)

	sql, err := schema.RolesSQL(pgtest.RolePrefix)
	p.Must(err)
	for range 2 { // it may be run again
		p.exec(sql)
	}
	if err := schema.Check(t.Context(), old.conn); err != nil {
		t.Errorf("the server that runs: %v", err)
	}
	old.exec(`UPDATE tasker.tasks SET priority = priority + 1`)
	server := p.as(pgtest.ServerRole)
	if err := schema.Check(t.Context(), server.conn); err == nil || !strings.Contains(err.Error(), "run tasker migrate up") {
		t.Errorf("before migrate up: %v", err)
	}
	names, err := schema.Up(t.Context(), old.conn)
	if diff := cmp.Diff([]string{"privileges of the roles"}, names); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if got := old.text(`SELECT current_user::text`); got != owner {
		t.Errorf("after migrate up the session is that of %s", got)
	}
	if err := schema.Check(t.Context(), server.conn); err != nil {
		t.Errorf("after migrate up: %v", err)
	}
	server.exec(`UPDATE tasker.tasks SET priority = priority + 1`)
}

// login is the database for a user with a password, a member of the roles.
func (p *findPosition) login(memberOf ...string) *findPosition {
	p.Helper()
	name := "tasker_test_login_" + strings.ToLower(rand.Text()[:10])
	p.exec(`CREATE ROLE ` + name + ` LOGIN PASSWORD 'geheim'`)
	for _, role := range memberOf {
		p.exec(`GRANT ` + role + ` TO ` + name)
	}
	where, err := url.Parse(p.db.AdminURL)
	p.Must(err)
	where.User = url.UserPassword(name, "geheim")
	other := &findPosition{T: p.T, url: where.String(), db: p.db}
	p.Cleanup(func() {
		ctx := context.WithoutCancel(p.Context())
		conn, err := pgx.Connect(ctx, p.url)
		if err == nil {
			_, err = conn.Exec(ctx, `DROP OWNED BY `+name+`; DROP ROLE `+name, pgx.QueryExecModeSimpleProtocol)
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			p.Error(err)
		}
	})
	other.conn = other.connect()
	return other
}

func TestMissingPrivilegesAreNamed(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	stranger, reader, server := p.login(), p.login(pgtest.ReaderRole), p.login(pgtest.ServerRole)
	_, up := schema.Up(t.Context(), stranger.conn)
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"a stranger that serves", schema.Check(t.Context(), stranger.conn), "lacks USAGE in the schema tasker; run tasker migrate up, and have a database administrator run: GRANT " + pgtest.ServerRole + " TO tasker_test_login_"},
		{"a reader that serves", schema.Check(t.Context(), reader.conn), "lacks DELETE on access_changes, INSERT on access_changes, "},
		{"a stranger that migrates", up, "GRANT " + pgtest.MigrateRole + " TO tasker_test_login_"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) || !errors.Is(tt.err, schema.ErrPrivileges) {
			t.Errorf("%s: %v, want %q", tt.name, tt.err, tt.want)
		}
	}
	if err := schema.Check(t.Context(), server.conn); err != nil {
		t.Errorf("the server: %v", err)
	}
}

// What one member of the role has migrated, another migrates on.
func TestMembersOfTheMigrateRoleTakeTurns(t *testing.T) {
	t.Parallel()
	p := empty(t)
	roles, err := schema.RolesSQL(pgtest.RolePrefix)
	p.Must(err)
	p.exec(roles)
	one, other := p.login(pgtest.MigrateRole), p.login(pgtest.MigrateRole)
	one.up(schema.Embedded().Through(10))
	other.up(schema.Embedded())
	if err := schema.Check(t.Context(), p.as(pgtest.ServerRole).conn); err != nil {
		t.Error(err)
	}
}

// Where nobody is a superuser, the owner of a database who may create roles can do it.
func TestTheOwnerOfADatabaseCreatesTheRoles(t *testing.T) {
	t.Parallel()
	p := empty(t)
	owner := p.login()
	name := owner.text(`SELECT current_user::text`)
	p.exec(`ALTER ROLE ` + name + ` CREATEROLE; DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO ` + name + `', current_database()); END $$`)
	prefix := strings.ReplaceAll(name, "login", "by")
	sql, err := schema.RolesSQL(prefix)
	p.Must(err)
	t.Cleanup(func() {
		roles := fmt.Sprintf("%[1]s_migrate, %[1]s_server, %[1]s_reader", prefix)
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, p.url)
		if err == nil {
			_, err = conn.Exec(ctx, `DROP OWNED BY `+roles+` CASCADE; DROP ROLE `+roles+`; DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO CURRENT_USER', current_database()); END $$`, pgx.QueryExecModeSimpleProtocol)
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		owner.exec(sql)
	}
	owner.up(schema.Embedded())
	if got := owner.text(`SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = 'tasker.tasks'::regclass`); got != prefix+"_migrate" {
		t.Errorf("the tables belong to %s", got)
	}
	if err := schema.Check(t.Context(), p.as(prefix+"_server").conn); err != nil {
		t.Error(err)
	}
}

func TestNamesOfRoles(t *testing.T) {
	t.Parallel()
	for prefix, valid := range map[string]bool{
		"tasker": true, "staging_2": true, "": false, "2nd": false, "Tasker": false, "a; DROP TABLE x": false, `a"b`: false,
		strings.Repeat("x", 50): true, strings.Repeat("x", 51): false,
	} {
		if _, err := schema.RolesSQL(prefix); (err == nil) != valid {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
