package postgres

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// manyTagged creates 20,000 tasks in namespace a with the tag common, one in a thousand also with the
// tag seldom, and 20 in namespace b with both tags.
const manyTagged = `
INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', ''), ('b', 'b', '1.0.0', '{}', '', '');
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, tags, correlation_id, initiator, source_system, idempotency_key, created_at, updated_at)
SELECT tasker.uuid_generate_v7(), m.template_uuid, m.namespace, 'b', '1.0.0', 'complete', now(), '{}',
    CASE WHEN n % 1000 = 0 OR m.namespace = 'b' THEN ARRAY['common', 'seldom'] ELSE ARRAY['common'] END,
    'c-' || n, 'i-' || n % 7, 's-' || n % 7, 'k-' || n, now(), now()
FROM tasker.task_templates m, generate_series(1, 20000) n
WHERE m.namespace = 'a' OR n <= 20;
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value)
SELECT t.task_uuid, t.namespace, w.name, w.value
FROM tasker.tasks t
CROSS JOIN LATERAL (
    SELECT 'tag', g.tag FROM unnest(t.tags) AS g (tag)
    UNION ALL VALUES ('customer', 'customer ' || substr(t.correlation_id, 3)::int % 3), ('correlation_id', t.correlation_id), ('initiator', t.initiator), ('source_system', t.source_system)
) w (name, value);
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, number_value)
SELECT t.task_uuid, t.namespace, 'risk', substr(t.correlation_id, 3)::numeric / 100 FROM tasker.tasks t;
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, time_value)
SELECT t.task_uuid, t.namespace, 'due', timestamptz '2026-01-01 00:00:00Z' + make_interval(secs => substr(t.correlation_id, 3)::int) FROM tasker.tasks t;
ANALYZE;`

// vacuum removes the dead rows of a table. It repeats this until all pages are marked as visible, which
// transactions that run at the same time delay.
func vacuum(t *testing.T, db *DB, table string) {
	t.Helper()
	for range 200 {
		execute(t, db, "VACUUM "+table)
		visible, err := queryValue[bool](t.Context(), db.pool, `SELECT relallvisible >= relpages FROM pg_class WHERE oid = $1::text::regclass`, table)
		if err != nil {
			t.Fatal(err)
		}
		if visible {
			return
		}
	}
	t.Fatalf("pages of %s are not visible to all transactions", table)
}

// A page is read from the index of a filter condition in its order, so that other tasks cost nothing.
func TestAPageOfFoundTasksIsReadFromItsIndex(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for statement := range strings.SplitSeq(manyTagged, ";") {
		execute(t, db, statement)
	}
	vacuum(t, db, "tasker.task_attributes")
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	now := time.Now()
	attributes := func(texts ...string) (list []comparison) {
		for _, text := range texts {
			a, err := tasker.ParseAttributeFilter(text)
			if err == nil {
				var c comparison
				c, err = toComparison(a, map[string]tasker.AttributeType{"customer": "text", "risk": "number", "due": "time"}[a.Name])
				list = append(list, c)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return list
	}
	var behind tasker.ID // 15,000 newer ones
	if err := conn.QueryRow(t.Context(), `SELECT task_uuid FROM tasker.tasks WHERE namespace = 'a' ORDER BY task_uuid DESC OFFSET 15000 LIMIT 1`).Scan(&behind); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		filter     tasker.TaskFilter
		index      string
		found      int // with a page of 50
		pages      int // read at most
		attributes []comparison
	}{
		"an attribute":                {tasker.TaskFilter{}, "task_attributes_by_text", 51, 500, attributes("customer:customer 1")},
		"… that nobody has":           {tasker.TaskFilter{}, "task_attributes_by_text", 0, 20, attributes("customer:nobody")},
		"… and another":               {tasker.TaskFilter{}, "task_attributes_by_text", 51, 2000, attributes("customer:customer 1", "risk:>100")},
		"… and a tag":                 {tasker.TaskFilter{Tags: []string{"common"}}, "task_attributes_by_text", 51, 1000, attributes("customer:customer 1")},
		"an attribute that is seldom": {tasker.TaskFilter{}, "task_attributes_by_number", 2, 50, attributes("risk:0.07")},
		"a range":                     {tasker.TaskFilter{}, "task_attributes_by_number", 51, 500, attributes("risk:>100")},
		"a small range":               {tasker.TaskFilter{}, "task_attributes_by_number", 14, 100, attributes("risk:<=0.07")},
		"a range of times":            {tasker.TaskFilter{}, "task_attributes_by_time", 51, 500, attributes("due:>=2026-01-01T01:00:00Z")},
		"a tag":                       {tasker.TaskFilter{Tags: []string{"common"}}, "task_attributes_by_text", 51, 500, nil},
		"… in a namespace":            {tasker.TaskFilter{Tags: []string{"common"}, Namespace: "b"}, "task_attributes_by_text", 20, 150, nil},
		"… far behind":                {tasker.TaskFilter{Tags: []string{"common"}, Offset: 15_000}, "task_attributes_by_text", 51, 1500, nil},
		"… behind a task":             {tasker.TaskFilter{Tags: []string{"common"}, Before: behind}, "task_attributes_by_text", 51, 500, nil},
		"… and a state of none":       {tasker.TaskFilter{Tags: []string{"common"}, State: tasker.TaskError}, "tasks_by_state", 0, 20, nil},
		"an attribute and such one":   {tasker.TaskFilter{State: tasker.TaskError}, "tasks_by_state", 0, 20, attributes("customer:customer 1")},
		"all behind a task":           {tasker.TaskFilter{Before: behind}, "tasks_pkey", 51, 300, nil},
		"a template's behind a task":  {tasker.TaskFilter{Namespace: "a", Name: "b", Before: behind}, "tasks_of_template", 51, 300, nil},
		"two tags":                    {tasker.TaskFilter{Tags: []string{"seldom", "common"}}, "task_attributes_by_text", 40, 500, nil},
		"… the frequent one first":    {tasker.TaskFilter{Tags: []string{"common", "seldom"}}, "task_attributes_by_text", 40, 500, nil},
		"… and a state":               {tasker.TaskFilter{Tags: []string{"common"}, State: tasker.TaskComplete}, "task_attributes_by_text", 51, 1000, nil},
		"… and a time":                {tasker.TaskFilter{Tags: []string{"common"}, CreatedAfter: now.Add(2 * time.Minute)}, "task_attributes_by_text", 0, 20, nil},
		"a correlation id":            {tasker.TaskFilter{CorrelationID: "c-7"}, "task_attributes_by_text", 2, 50, nil},
		"an initiator":                {tasker.TaskFilter{Initiator: "i-3"}, "task_attributes_by_text", 51, 500, nil},
		"a system":                    {tasker.TaskFilter{SourceSystem: "s-3"}, "task_attributes_by_text", 51, 500, nil},
		"an idempotency key":          {tasker.TaskFilter{IdempotencyKey: "k-7"}, "task_idempotency_key_is_unique", 2, 50, nil},
		"a time":                      {tasker.TaskFilter{CreatedAfter: now.Add(2 * time.Minute)}, "tasks_pkey", 0, 10, nil},
		"a time of a namespace":       {tasker.TaskFilter{Namespace: "a", CreatedBefore: now.Add(-time.Hour)}, "tasks_of_template", 0, 20, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tt.filter.Limit = 50
			var err error
			if tt.filter.Tags, err = db.sortRarestFirst(t.Context(), tt.filter, access.EverywhereScope()); err != nil {
				t.Fatal(err)
			}
			by := newSearchPlan(tt.filter, tt.attributes)
			few, err := db.shouldReadState(t.Context(), tt.filter, by)
			if err != nil {
				t.Fatal(err)
			}
			if few {
				by = nil
			}
			sql, args := buildTaskQuery(tt.filter, access.EverywhereScope(), by, tt.attributes)
			if by != nil && by.isRange() && !strings.Contains(sql, "CASE WHEN a.task_uuid >=") { // with a million tasks the index of the tasks would be read
				t.Errorf("a range of ids can be read from an index:\n%s", sql)
			}
			if rows := count(t.Context(), t, conn.Conn(), sql, args); rows != tt.found {
				t.Errorf("%d are found, want %d", rows, tt.found)
			}
			if n, plan := pagesOfAnyValues(t, conn.Conn(), sql, args); n > tt.pages || !strings.Contains(plan, tt.index) {
				t.Errorf("reads %d pages, want %d at most, by %s:\n%s", n, tt.pages, tt.index, plan)
			}
		})
	}
}

func count(ctx context.Context, t *testing.T, conn *pgx.Conn, sql string, args []any) (n int) {
	t.Helper()
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM ("+sql+") x", args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// pagesOfAnyValues returns the generic plan of a statement, which the server uses, and the number of
// pages that it reads.
func pagesOfAnyValues(t *testing.T, conn *pgx.Conn, sql string, args []any) (n int, plan string) {
	t.Helper()
	prepared, err := conn.Prepare(t.Context(), "pages_"+t.Name(), sql)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]string, len(args))
	for i, arg := range args {
		if v := reflect.ValueOf(arg); !v.IsValid() || v.Kind() == reflect.Slice && v.IsNil() {
			values[i] = "NULL"
			continue
		}
		switch v := arg.(type) {
		case time.Time:
			values[i] = v.Format(time.RFC3339Nano)
		case []string:
			values[i] = formatTextArray(v)
		case pgtype.Numeric:
			text, err := v.Value()
			if err != nil {
				t.Fatal(err)
			}
			values[i] = fmt.Sprint(text)
		default:
			values[i] = fmt.Sprint(v)
		}
		values[i] = "'" + strings.ReplaceAll(values[i], "'", "''") + "'"
	}
	plan = lines(t.Context(), t, conn, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE "+pgx.Identifier{prepared.Name}.Sanitize()+"("+strings.Join(values, ", ")+")")
	for line := range strings.SplitSeq(plan, "\n") {
		if m := pagesRead.FindStringSubmatch(line); m != nil {
			hit, _ := strconv.Atoi(m[1])
			read, _ := strconv.Atoi(m[2])
			return hit + read, plan // the first line counts the whole plan
		}
	}
	t.Fatalf("no pages are read:\n%s", plan)
	return 0, ""
}

// A caller restricted to a namespace finds only its tasks.
func TestTasksAreFoundInTheNamespacesOfACaller(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for statement := range strings.SplitSeq(manyTagged, ";") {
		execute(t, db, statement)
	}
	b := access.WithScope(t.Context(), access.NamespaceScope("b"))
	for name, tt := range map[string]struct {
		filter tasker.TaskFilter
		found  int
	}{
		"a tag":              {tasker.TaskFilter{Tags: []string{"common"}}, 20},
		"a namespace beside": {tasker.TaskFilter{Tags: []string{"common"}, Namespace: "a"}, 0},
		"a correlation id":   {tasker.TaskFilter{CorrelationID: "c-7"}, 1},
		"a key":              {tasker.TaskFilter{IdempotencyKey: "k-7"}, 1},
	} {
		tt.filter.Limit = 50
		list, _, err := db.Tasks(b, tt.filter)
		for _, one := range list {
			if one.Namespace != "b" {
				t.Errorf("%s: found in %s", name, one.Namespace)
			}
		}
		if err != nil || len(list) != tt.found {
			t.Errorf("%s: %d are found, want %d, %v", name, len(list), tt.found, err)
		}
	}
}
