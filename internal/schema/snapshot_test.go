package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stuck is the task of a watched database with steps, one of which depends on the
// other, failures and a history, so that its snapshot has all that one can have.
func stuck(t *testing.T) *findPosition {
	t.Helper()
	p := watched(t)
	p.exec(failures)
	p.exec(`UPDATE tasker.workflow_steps s SET parent_uuids = ARRAY[o.step_uuid] FROM tasker.workflow_steps o WHERE s.name = 'ship' AND o.name = 'charge'`)
	p.exec(`INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at)
		SELECT task_uuid, 'pending', 'initializing', 'initialize', created_at FROM tasker.tasks`)
	return p
}

// open opens an investigation of the task, after the one before has ended, and
// returns its snapshot.
func (p *findPosition) open() string {
	p.Helper()
	p.exec(`UPDATE tasker.tasks_dlq SET resolution_status = 'cancelled', resolved_at = now(), resolved_by = 'ann', resolution_notes = 'next'
		WHERE resolution_status = 'pending'`)
	p.exec(`SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state) FROM tasker.tasks`)
	return p.text(`SELECT task_snapshot::text FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`)
}

// Whether a snapshot has something to hide is asked of the documents in it, and
// once of the keys that are ours: so these must be all.
func TestTheKeysOfASnapshotAreKnown(t *testing.T) {
	t.Parallel()
	p := stuck(t)
	p.exec(`UPDATE tasker.step_history SET detail = NULL; UPDATE tasker.workflow_steps SET error = NULL`)
	const keys = `
		SELECT DISTINCT k COLLATE "C" AS key
		FROM tasker.tasks
		CROSS JOIN LATERAL (
			SELECT tasker.task_snapshot(task_uuid, state, NULL, 'x', now())
			UNION ALL
			SELECT snapshot FROM tasker.dlq_evidence(ARRAY[task_uuid], ARRAY[state], ARRAY[now()],
				ARRAY['00000000-0000-7000-8000-00000000000a'::uuid], 'x', now(), 'why')
		) AS s (snapshot), jsonb_path_query(s.snapshot, 'strict $.** ? (@.type() == "object")') AS o, jsonb_object_keys(o) AS k
		ORDER BY key`
	got := p.texts(keys)
	p.exec(`UPDATE tasker.workflow_steps SET error = jsonb_build_object('message', repeat('x', 5000000)),
		items_total = 1, map_step_uuid = step_uuid, item_ordinal = 0, state = 'error', item = '1'`) // which is cut
	got = slices.Compact(slices.Sorted(slices.Values(append(got, p.texts(keys)...))))
	want := p.texts(`SELECT k COLLATE "C" AS key FROM unnest(tasker.snapshot_keys()) AS k ORDER BY key`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshot_keys() and the keys of a snapshot (-known +written):\n%s", diff)
	}
}

// Each document that a snapshot shows is searched.
func TestNoDocumentOfASnapshotIsForgotten(t *testing.T) {
	t.Parallel()
	p := stuck(t)
	tables := []string{"tasks", "task_templates", "workflow_steps", "task_history", "step_history"}
	columns := p.texts(fmt.Sprintf(`
		SELECT format('%%I.%%I', table_name, column_name) FROM information_schema.columns
		WHERE table_schema = 'tasker' AND data_type = 'jsonb' AND table_name IN ('%s') AND column_name NOT IN ('kept_report', 'options')
		ORDER BY 1`, strings.Join(tables, "', '")))
	if !slices.Contains(columns, "tasks.context") || len(columns) < 6 {
		t.Fatalf("documents are in %v", columns)
	}
	for _, c := range columns {
		p.exec(`UPDATE tasker.tasks SET context = '{}'; UPDATE tasker.task_templates SET configuration = '{}';
			UPDATE tasker.workflow_steps SET results = NULL, error = NULL; UPDATE tasker.step_history SET detail = NULL; UPDATE tasker.task_history SET detail = NULL`)
		table, column, _ := strings.Cut(c, ".")
		if column == "item" {
			column = "map_step_uuid = step_uuid, item_ordinal = 0, state = 'error', item"
		}
		p.exec(fmt.Sprintf(`UPDATE tasker.%s SET %s = '{"message": "m", "deep": [{"Pass-Word": "s3cret"}]}'`, table, column))
		got := p.open()
		if strings.Contains(got, "s3cret") || !strings.Contains(got, `"Pass-Word": "[redacted]"`) {
			t.Errorf("of %s the snapshot shows %s", c, got)
		}
	}
}

// A rule may name a key that is ours.
func TestAKeyOfASnapshotMayBeHidden(t *testing.T) {
	t.Parallel()
	p := stuck(t)
	p.exec(`UPDATE tasker.redaction SET key_pattern = '^leaseexpiresat|priority$', key_words = '{leaseexpires,priority}'`)
	if got := p.open(); !strings.Contains(got, `"priority": "[redacted]"`) {
		t.Errorf("the snapshot shows %s", got)
	}
}
