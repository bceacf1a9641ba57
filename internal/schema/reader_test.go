package schema_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker/internal/pgtest"
)

// markTexts writes a marker with the name of its column into every text, document and secret of the
// database. The rows of the fixture keep what a constraint asks for; every table gets one more row
// without constraints.
const markTexts = `
SET session_replication_role = replica;
DO $$
DECLARE
	_column record;
	_table  record;
BEGIN
	CREATE TEMPORARY TABLE texts AS
	SELECT c.oid AS relation, c.oid::regclass AS name, a.attname, a.attnum,
		format(CASE t.typname
			WHEN 'jsonb' THEN $f$jsonb_build_object('assignee', %1$L::text, 'message', %1$L::text)$f$
			WHEN 'json' THEN 'to_json(%L::text)'
			WHEN 'bytea' THEN 'convert_to(%L, ''UTF8'')'
			WHEN '_text' THEN 'ARRAY[%L]'
			ELSE '%L' END, format('marker:%s.%s', c.relname, a.attname)) AS marker
	FROM pg_class c
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
	JOIN pg_type t ON t.oid = a.atttypid AND t.typname IN ('text', '_text', 'json', 'jsonb', 'bytea')
	WHERE c.relnamespace = 'tasker'::regnamespace AND c.relkind IN ('r', 'p');
	FOR _column IN SELECT * FROM texts LOOP
		BEGIN
			EXECUTE format('UPDATE %s SET %I = %s', _column.name, _column.attname, _column.marker);
		EXCEPTION WHEN check_violation OR unique_violation OR foreign_key_violation THEN
		END;
	END LOOP;
	FOR _table IN
		SELECT CASE contypid WHEN 0 THEN 'TABLE ' || conrelid::regclass ELSE 'DOMAIN ' || contypid::regtype END AS name, conname
		FROM pg_constraint
		WHERE contype = 'c' AND connamespace = 'tasker'::regnamespace
	LOOP
		EXECUTE format('ALTER %s DROP CONSTRAINT %I', _table.name, _table.conname);
	END LOOP;
	FOR _table IN
		SELECT c.oid::regclass AS name, string_agg(quote_ident(a.attname), ', ') AS columns,
			string_agg(coalesce(x.marker, CASE t.typcategory
				WHEN 'A' THEN '''{}''' WHEN 'B' THEN 'false' WHEN 'N' THEN '-77' WHEN 'D' THEN 'now()' WHEN 'T' THEN '''1 s''' ELSE
				CASE WHEN t.typname = 'uuid' THEN 'gen_random_uuid()' WHEN t.typtype = 'e' THEN format('enum_first(NULL::%s)', t.oid::regtype) WHEN t.typname = 'pg_snapshot' THEN '''7:7:''' ELSE '''7''' END END), ', ') AS values
		FROM pg_class c
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN texts x ON x.relation = c.oid AND x.attnum = a.attnum
		WHERE c.relnamespace = 'tasker'::regnamespace AND c.relkind IN ('r', 'p')
		GROUP BY c.oid
	LOOP
		EXECUTE format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE VALUES (%s) ON CONFLICT DO NOTHING', _table.name, _table.columns, _table.values);
	END LOOP;
END
$$`

// openTexts lists by reason the columns of texts that the reader may select, in whatever table.
var openTexts = map[string]string{
	"words that Tasker chooses": `act action backoff catch_up day_match detail_code event expected_state field from_state join_rule
		kind original_detail_code outcome overlap paused_for phase rest_from rest_to severity skip_reason source state step_state step_type
		subject_kind to_state told_state tolerate topic type`,
	"names that are labels of dashboards": `attributes handler handlers name namespace namespaces nominal_key sink step_name task_name template_name worker_name`,
	"versions, checksums and keys of messages": `checksum dedup_key fixed_in plan_digest task_version template_version version worker_at_least
		worker_uuid worker_version`,
	"names of people and keys": `actor assigned_by changed_by created_by detected_by owner paused_by planned_by registered_by retired_by revoked_by
		set_by started_by subject`,
	"roles of keys":      `grants`,
	"times of schedules": `cron except_days zone`,
	"fields by which callers tag and correlate tasks, which every viewer of the API reads": `correlation_id initiator parent_correlation_id source_system tags`,
	"documentation of a template":                                  `description`,
	"the normalized pattern and the type of an error":              `error_pattern error_type`,
	"the assignee of an investigation, which the queue view shows": `metadata`,
}

// The reader selects every column that it may, and finds only texts that are meant to be open.
func TestTheReaderFindsNoTextOfUsers(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneEntry)
	p.exec(markTexts)
	marker := regexp.MustCompile(`marker:(\w+)\.(\w+)`)
	reader := p.as(pgtest.ReaderRole)
	columns := reader.texts(`SELECT format('%I.%I', table_name, column_name) FROM information_schema.columns WHERE table_schema = 'tasker' ORDER BY 1`)
	open, unused := map[string]bool{}, map[string]bool{}
	for _, list := range openTexts {
		for column := range strings.FieldsSeq(list) {
			open[column], unused[column] = true, true
		}
	}
	for _, column := range columns {
		table, name, _ := strings.Cut(column, ".")
		for _, text := range reader.texts(`SELECT DISTINCT coalesce(` + name + `::text, '') FROM tasker.` + table) {
			for _, found := range marker.FindAllStringSubmatch(text, -1) {
				delete(unused, found[2])
				if !open[found[2]] {
					t.Errorf("the reader finds the text of %s.%s in %s", found[1], found[2], column)
				}
			}
		}
	}
	if len(unused) > 0 {
		t.Errorf("the reader does not find %v: remove the lines from openTexts", slices.Sorted(maps.Keys(unused)))
	}
	if !slices.Contains(columns, "v_dlq_investigation_queue.error_pattern") {
		t.Errorf("the reader has only %v", columns)
	}
}
