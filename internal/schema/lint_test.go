package schema_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker/internal/schema"
)

// baseline is the last file of the first version. Servers run while a later migration is applied.
const baseline = "migrations/0014"

var (
	sqlNoise     = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|'(?:[^']|'')*'`)
	newTable     = regexp.MustCompile(`(?i)\bCREATE (?:TABLE|VIEW) (?:IF NOT EXISTS )?(\S+)`)
	onTable      = regexp.MustCompile(`(?i)^(?:CREATE (?:UNIQUE )?INDEX .*? ON|ALTER TABLE(?: IF EXISTS)?(?: ONLY)?|UPDATE(?: ONLY)?|DELETE FROM(?: ONLY)?|INSERT INTO) ([a-z_.]+)`)
	triggerOn    = regexp.MustCompile(`(?i)^CREATE (?:OR REPLACE )?(?:CONSTRAINT )?TRIGGER .*? ON ([a-z_.]+)`)
	ownTable     = regexp.MustCompile(`^INSERT INTO tasker\.(ready_steps|claims) `) // no server of the previous version uses them
	renamed      = regexp.MustCompile(`(?i)^ALTER TABLE (tasker\.)(\S+) RENAME TO (\S+)$`)
	partOf       = regexp.MustCompile(`(?i)^ALTER (?:INDEX|SEQUENCE) (tasker\.\S+)_(?:pkey|transition_id_seq) RENAME TO `)
	droppedTable = regexp.MustCompile(`(?i)^DROP TABLE (tasker\.\S+)$`)
	smallTable   = regexp.MustCompile(`^tasker\.(staleness_thresholds|redaction|emission_sinks|schema_migrations|task_settle_paths|lease_keys?)$`)
)

// What a statement on a table that servers use must not say, and what instead.
var forbidden = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)^CREATE (UNIQUE )?INDEX (IF NOT EXISTS )?[a-z_]+ ON`), "CREATE INDEX CONCURRENTLY in a file of its own (-- tasker:no-transaction)"},
	{regexp.MustCompile(`(?i)\bALTER (COLUMN )?[a-z_]+ (SET DATA )?TYPE\b`), "a new column: changing a type rewrites the table"},
	{regexp.MustCompile(`(?i)\bSET NOT NULL\b`), "CHECK (… IS NOT NULL) NOT VALID, and VALIDATE CONSTRAINT in a file of its own"},
	{regexp.MustCompile(`(?i)\bADD (CONSTRAINT|CHECK|FOREIGN KEY|UNIQUE|PRIMARY KEY)\b`), "ADD CONSTRAINT … NOT VALID, and VALIDATE CONSTRAINT in a file of its own"},
	{regexp.MustCompile(`(?i)\bADD COLUMN [^,]*\b(CHECK|REFERENCES|UNIQUE|PRIMARY KEY|GENERATED)\b`), "a plain column, and a constraint as NOT VALID"},
	{regexp.MustCompile(`(?i)\bADD COLUMN [^,]*DEFAULT (clock_timestamp|gen_random_uuid|random|nextval|tasker\.)`), "a constant default: this one rewrites the table"},
	{regexp.MustCompile(`(?i)\b(DROP|RENAME) COLUMN\b|\bRENAME TO\b|^DROP TABLE\b|^TRUNCATE\b|\bSET (LOGGED|UNLOGGED|TABLESPACE)\b`), "nothing: servers of the previous version use what is there"},
	{regexp.MustCompile(`(?i)\bVALIDATE CONSTRAINT\b`), "a file of its own (-- tasker:no-transaction)"},
	{regexp.MustCompile(`(?i)^DROP INDEX\b`), "DROP INDEX CONCURRENTLY in a file of its own (-- tasker:no-transaction)"},
	{regexp.MustCompile(`(?i)^(UPDATE|DELETE)\b|^INSERT INTO .*\bSELECT\b`), "a loop of the server that works in batches"},
}

// wrongStatements lists what would stop running servers, or keep them waiting.
func wrongStatements(sql string) []string {
	alone := strings.HasPrefix(sql, "-- tasker:no-transaction")
	plain := sqlNoise.ReplaceAllStringFunc(sql, func(noise string) string {
		if strings.HasPrefix(noise, "-") || strings.HasPrefix(noise, "/") {
			return " "
		}
		return "''"
	})
	made := map[string]bool{}
	for _, m := range newTable.FindAllStringSubmatch(plain, -1) {
		made[m[1]] = true
	}
	var wrong []string
	for statement := range strings.SplitSeq(plain, ";") {
		statement = strings.Join(strings.Fields(statement), " ")
		if m := renamed.FindStringSubmatch(statement); m != nil && made[m[1]+m[2]] {
			continue // a view stands in for it
		}
		if m := droppedTable.FindStringSubmatch(statement); m != nil && made[m[1]] {
			continue // as above
		}
		if m := partOf.FindStringSubmatch(statement); m != nil && made[m[1]] {
			continue // of such a table
		}
		table := onTable.FindStringSubmatch(statement)
		if table != nil && (made[table[1]] || smallTable.MatchString(table[1])) {
			continue
		}
		for _, f := range forbidden {
			allowed := strings.Contains(statement, "NOT VALID") && strings.HasPrefix(f.instead, "ADD CONSTRAINT") ||
				alone && ownTable.MatchString(statement) || alone && strings.HasPrefix(statement, "DROP INDEX CONCURRENTLY IF EXISTS ") ||
				alone && strings.Contains(f.instead, "a file of its own") && regexp.MustCompile(`(?i)^ALTER TABLE \S+ VALIDATE CONSTRAINT \S+$`).MatchString(statement)
			if f.pattern.MatchString(statement) && !allowed {
				wrong = append(wrong, statement+": use "+f.instead)
			}
		}
		if strings.HasPrefix(strings.ToUpper(statement), "LOCK ") {
			wrong = append(wrong, statement+": use nothing: a migration locks the one table that it changes")
		}
	}
	if used := usedTables(plain, made); len(used) > 1 {
		wrong = append(wrong, "it changes "+strings.Join(used, " and ")+": use a file for each of them, because a transaction that waits for one table must not hold another")
	}
	return wrong
}

// usedTables are the tables that a migration changes and has not made, by their new names.
func usedTables(plain string, made map[string]bool) []string {
	var used []string
	for statement := range strings.SplitSeq(plain, ";") {
		if m := renamed.FindStringSubmatch(strings.Join(strings.Fields(statement), " ")); m != nil {
			used = append(used, m[1]+m[3])
			continue
		}
		for _, p := range []*regexp.Regexp{onTable, triggerOn} {
			m := p.FindStringSubmatch(strings.Join(strings.Fields(statement), " "))
			if m != nil && !made[m[1]] && !slices.Contains(used, m[1]) {
				used = append(used, m[1])
			}
		}
	}
	return used
}

// Every migration from now on is applied while servers run and tables are large.
func TestMigrationsDoNotStopServers(t *testing.T) {
	t.Parallel()
	for path, sql := range schema.Embedded().Migrations() {
		if path[:len(baseline)] <= baseline {
			continue
		}
		for _, wrong := range wrongStatements(sql) {
			t.Errorf("%s: %s", path, wrong)
		}
	}
}

func TestWhatStopsServersIsFound(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]bool{
		"CREATE INDEX a ON tasker.tasks (n);":                                                                       true,
		"CREATE TABLE tasker.more (n int); CREATE INDEX a ON tasker.more (n);":                                      false,
		"-- tasker:no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS a ON tasker.tasks (n);":                  false,
		"ALTER TABLE tasker.tasks ADD COLUMN n int;":                                                                false,
		"ALTER TABLE tasker.tasks ADD COLUMN n int NOT NULL DEFAULT 0;":                                             false,
		"ALTER TABLE tasker.tasks ADD COLUMN n uuid DEFAULT gen_random_uuid();":                                     true,
		"ALTER TABLE tasker.tasks ADD COLUMN n int CHECK (n > 0);":                                                  true,
		"ALTER TABLE tasker.tasks ADD CONSTRAINT c CHECK (n > 0);":                                                  true,
		"ALTER TABLE tasker.tasks ADD CONSTRAINT c CHECK (n > 0) NOT VALID;":                                        false,
		"ALTER TABLE tasker.tasks VALIDATE CONSTRAINT c;":                                                           true,
		"-- tasker:no-transaction\nALTER TABLE tasker.tasks VALIDATE CONSTRAINT c;":                                 false,
		"ALTER TABLE tasker.tasks ALTER COLUMN name TYPE varchar;":                                                  true,
		"ALTER TABLE tasker.tasks ALTER COLUMN name SET NOT NULL;":                                                  true,
		"ALTER TABLE tasker.tasks DROP COLUMN name;":                                                                true,
		"UPDATE tasker.tasks SET n = 1;":                                                                            true,
		"UPDATE tasker.redaction SET n = 1;":                                                                        false,
		"ALTER TABLE tasker.tasks ADD COLUMN n int; ALTER TABLE tasker.workflow_steps ADD COLUMN n int;":            true,
		"ALTER TABLE tasker.redaction ADD COLUMN n int; ALTER TABLE tasker.tasks ADD COLUMN n int;":                 true,
		"ALTER TABLE tasker.tasks RENAME TO task_rows;":                                                             true,
		"ALTER TABLE tasker.tasks RENAME TO task_rows; CREATE VIEW tasker.tasks AS SELECT * FROM tasker.task_rows;": false,
		"DROP TABLE tasker.access_revision;":                                                                        true,
		"DROP TABLE tasker.access_revision; CREATE VIEW tasker.access_revision AS SELECT 1 AS revision;":            false,
		"DROP INDEX tasker.tasks_by_state;":                                                                         true,
		"-- tasker:no-transaction\nDROP INDEX CONCURRENTLY IF EXISTS tasker.tasks_by_state;":                        false,
		"-- tasker:no-transaction\nINSERT INTO tasker.tasks (n) SELECT n FROM tasker.more;":                         true,
		"LOCK TABLE tasker.tasks;":                                                                                  true,
		"COMMENT ON TABLE tasker.tasks IS 'UPDATE; DROP COLUMN';":                                                   false,
	} {
		if wrong := wrongStatements(sql); (len(wrong) > 0) != want {
			t.Errorf("%q: found %q", sql, wrong)
		}
	}
}
