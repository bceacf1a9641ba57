package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker/internal/pgtest"
)

// breakSnapshots makes the snapshot of a task fail by a statement of PL/pgSQL.
func (p *findPosition) breakSnapshots(task, statement string) {
	p.Helper()
	p.exec(fmt.Sprintf(`
		ALTER FUNCTION tasker.task_snapshots RENAME TO sound_snapshots;
		CREATE FUNCTION tasker.task_snapshots(p_tasks uuid[], p_states text[], p_since timestamptz[], p_by text, p_at timestamptz, p_cuts jsonb DEFAULT NULL)
		RETURNS TABLE (task_uuid uuid, snapshot jsonb, plain boolean) LANGUAGE plpgsql AS $$
		BEGIN
			IF '%s' = ANY (p_tasks) THEN
				%s;
			END IF;
			RETURN QUERY SELECT * FROM tasker.sound_snapshots(p_tasks, p_states, p_since, p_by, p_at);
		END $$`, task, statement))
}

const openBoth = `
	SELECT tasker.create_dlq_entries(array_agg(task_uuid ORDER BY task_uuid), array_agg('staleness_timeout'::tasker.dlq_reason), array_agg('steps_in_process'::text),
		'sweep', array_agg('error'::text), array_agg(now()), array_agg((
			SELECT s.step_uuid FROM tasker.workflow_steps s WHERE s.task_uuid = t.task_uuid AND s.state = 'error' LIMIT 1
		)), 'tasker', NULL, array_agg('{}'::jsonb))
	FROM tasker.tasks t`

// Whatever fails, the investigation opens with the facts, and the others that are
// opened with it lose nothing.
func TestAnInvestigationOpensWithoutItsSnapshot(t *testing.T) {
	t.Parallel()
	for why, statement := range map[string]string{
		"too large (SQLSTATE 54000)":                                    `RAISE EXCEPTION 'too large' USING ERRCODE = '54000'`,
		"out of memory (SQLSTATE 53200)":                                `RAISE EXCEPTION 'out of memory' USING ERRCODE = '53200'`,
		"broken (SQLSTATE XX000)":                                       `RAISE EXCEPTION 'broken' USING ERRCODE = 'XX000'`,
		"canceling statement due to statement timeout (SQLSTATE 57014)": `PERFORM pg_sleep(60)`,
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			p := migrated(t)
			sound := p.big(pgtest.BigTask{Steps: 3, Failed: 3})
			poisoned := p.big(pgtest.BigTask{Steps: 3, Failed: 3, FailureContext: `'{"password": "s3cret"}'::jsonb`})
			p.breakSnapshots(poisoned, statement)
			p.exec(`SET statement_timeout = '2s'`)
			p.exec(openBoth)
			p.exec(`SET statement_timeout = 0`)
			late := strings.Contains(why, "57014") // then no time is left for a snapshot of the other
			if got := p.text(`SELECT (task_snapshot ? 'task')::text FROM tasker.tasks_dlq WHERE task_uuid = '` + sound + `'`); got != fmt.Sprint(!late) {
				t.Errorf("of the sound task there is: %s", got)
			}
			got := p.text(`
				SELECT format('%s; %s in %s, step %s: %s', s ->> 'snapshot_failed', s ->> 'current_state', s ->> 'namespace',
					left(s -> 'steps' -> 0 ->> 'name', 4), s -> 'steps' -> 0 -> 'error' ->> 'message')
				FROM tasker.tasks_dlq d, LATERAL (SELECT d.task_snapshot AS s) x WHERE task_uuid = '` + poisoned + `'`)
			if want := why + "; error in shop, step step: attempt 1 of step "; !strings.HasPrefix(got, want) {
				t.Errorf("the entry of the task whose snapshot fails says %q, want %q", got, want)
			}
			if got := p.text(`SELECT concat(d.task_snapshot, o.data) FROM tasker.tasks_dlq d JOIN tasker.outbox o USING (dlq_entry_uuid) WHERE d.task_uuid = '` + poisoned + `'`); strings.Contains(got, "s3cret") {
				t.Errorf("a secret is on record: %s", got)
			}
			if got := p.text(`SELECT string_agg(event, ' ') FROM tasker.tasks_dlq_history`); got != "created created" {
				t.Errorf("history: %s", got)
			}
		})
	}
}

// What concerns the transaction and not the snapshot is left to whoever tries the
// transaction again.
func TestAConflictIsNotTakenForAFailingSnapshot(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01", "55P03"} {
		p := migrated(t)
		task := p.big(pgtest.BigTask{Steps: 3, Failed: 3})
		p.breakSnapshots(task, `RAISE EXCEPTION 'conflict' USING ERRCODE = '`+code+`'`)
		p.refusedAs(openBoth, code)
	}
}

// A task that fails in many steps at once gets one investigation, with one snapshot,
// and a line in its history for each other step; one that is open already gets a line
// for each, and no snapshot is built.
func TestManyFailuresOfATaskAreOneInvestigation(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	task := p.big(pgtest.BigTask{Steps: 5, Failed: 5})
	const open = `
		SELECT count(e)::text FROM (
			SELECT array_agg(s.task_uuid) AS tasks, array_agg(s.step_uuid ORDER BY s.name) AS steps, array_agg('max_retries_exceeded'::tasker.dlq_reason) AS reasons,
				array_agg('retries_exhausted'::text) AS details, array_agg('error'::text) AS states, array_agg(now()) AS since, array_agg(NULL::jsonb) AS metadata
			FROM tasker.workflow_steps s
		) a, tasker.create_dlq_entries(a.tasks, a.reasons, a.details, 'inline', a.states, a.since, a.steps, 'tasker', NULL, a.metadata) e`
	if got := p.text(open); got != "1" {
		t.Errorf("%s investigations were opened", got)
	}
	p.exec(`CREATE SEQUENCE public.built`) // which counts also what is rolled back
	p.breakSnapshots(task, `PERFORM nextval('public.built')`)
	if got := p.text(open); got != "0" {
		t.Errorf("%s investigations were opened beside the one", got)
	}
	if got := p.text(`SELECT is_called::text FROM public.built`); got != "false" {
		t.Error("a snapshot is built although an investigation is open")
	}
	got := p.texts(`
		SELECT format('%s %s', h.event, coalesce((SELECT s.name FROM tasker.workflow_steps s WHERE s.step_uuid = coalesce((h.metadata ->> 'step_uuid')::uuid, d.step_uuid)), '?'))
		FROM tasker.tasks_dlq_history h JOIN tasker.tasks_dlq d USING (dlq_entry_uuid) ORDER BY h.history_id`)
	if diff := cmp.Diff([]string{
		"created step_1", "step_failed step_2", "step_failed step_3", "step_failed step_4", "step_failed step_5",
		"step_failed step_1", "step_failed step_2", "step_failed step_3", "step_failed step_4", "step_failed step_5",
	}, got); diff != "" {
		t.Error(diff)
	}
	if got := p.text(`SELECT count(*)::text FROM tasker.outbox`); got != "10" {
		t.Errorf("%s events were told", got)
	}
}
