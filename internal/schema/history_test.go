package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// underWay is a task with a step that was claimed, of which the history has nothing yet.
const underWay = oneTask + `
	INSERT INTO tasker.task_history (task_uuid, from_state, to_state, created_at) SELECT task_uuid, 'pending', state, state_since FROM tasker.tasks;
	INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
		parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, worker_uuid,
		lease_expires_at, last_attempted_at, unwritten, moves_id, enqueued_at)
	SELECT task_uuid, '00000000-0000-7000-8000-00000000000a', 'a', 'standard', 'a', 'run', 0, 'in_progress', '2020-01-01 00:02Z', '{}', '{}',
		0, 2, 3, true, 'constant', 1, 1, false, now(), now(), '00000000-0000-7000-8000-0000000000ff',
		now(), '2020-01-01 00:02Z', 3, nextval('tasker.step_history_transition_id_seq'), '2020-01-01 00:01Z'
	FROM tasker.tasks; `

// history returns the moves of all steps in their order, without their ids.
func (p *findPosition) history() []string {
	p.Helper()
	return p.texts(`
		SELECT concat_ws(' ', from_state, event, to_state, attempt, right(worker_uuid::text, 2),
			CASE WHEN created_at < '2021-01-01' THEN to_char(created_at AT TIME ZONE 'UTC', 'HH24:MI') END)
		FROM tasker.workflow_step_transitions
		ORDER BY transition_id`)
}

// Moves of an attempt are visible before and after the row that ends it contains them.
func TestMovesAreReadBeforeTheyAreWritten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		want   []string
	}{
		"under way": {``, []string{"pending enqueue enqueued 2 00:01", "enqueued claim in_progress 2 ff 00:02"}},
		"ended with them": {
			`UPDATE tasker.workflow_steps SET state = 'complete', lease_expires_at = NULL, unwritten = 0;
			INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, created_at, moves_id, enqueued_at, claimed_at)
			SELECT task_uuid, step_uuid, 'in_progress', 'complete', 'succeed', attempts, worker_uuid, now(), moves_id, enqueued_at, last_attempted_at FROM tasker.workflow_steps`,
			[]string{"pending enqueue enqueued 2 00:01", "enqueued claim in_progress 2 ff 00:02", "in_progress succeed complete 2 ff"},
		},
		"claimed, and enqueued by another row": {`UPDATE tasker.workflow_steps SET unwritten = 2`, []string{"enqueued claim in_progress 2 ff 00:02"}},
		"only a heartbeat": {
			`UPDATE tasker.workflow_steps SET lease_expires_at = now() + interval '1 minute'`,
			[]string{"pending enqueue enqueued 2 00:01", "enqueued claim in_progress 2 ff 00:02"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := migrated(t)
			p.exec(underWay + c.change)
			if diff := cmp.Diff(c.want, p.history()); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			written := p.text(`SELECT (unwritten = 0)::text FROM tasker.workflow_steps`)
			if moved := len(c.want) > 2; (written == "true") != moved {
				t.Errorf("the step moved: %v; its history is written: %s", moved, written)
			}
		})
	}
}

// A row of a task's history is a path, and is read as its moves.
func TestAPathIsReadAsItsMoves(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(underWay)
	got := p.texts(`SELECT concat_ws(' ', from_state, event, to_state) FROM tasker.task_transitions ORDER BY transition_id`)
	want := []string{"pending initialize initializing", "initializing enqueue_steps enqueuing_steps", "enqueuing_steps start steps_in_process"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history of the task (-want +got):\n%s", diff)
	}
	if fits := p.text(`
		SELECT (max(p.ordinal) <= min(s.increment_by))::text
		FROM tasker.task_settle_paths p, pg_sequences s
		WHERE s.sequencename = 'task_history_transition_id_seq'`); fits != "true" {
		t.Error("a path has more moves than a row has ids")
	}
}
