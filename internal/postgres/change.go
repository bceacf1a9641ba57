package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// storedChange contains the effects of changes on locked tasks.
type storedChange struct {
	moves   []storedMove
	moved   []changedStep
	touched []changedStep
	left    []*stepState // steps that are no longer enqueued

	Enqueued   []tasker.ID
	Namespaces []string
	ToDecide   []tasker.StepRef
	human      []tasker.StepRef // steps that may wait for people, or did
	children   []tasker.StepRef // steps that no longer wait for child tasks
	now        time.Time
}

// storedMove is a move with the moves that the history records with it.
type storedMove struct {
	core.Move
	task              tasker.ID
	movesID           *int64
	enqueued, claimed *time.Time
}

type changedStep struct{ *stepState }

// collectChanges returns what must be stored of changes.
func collectChanges(now time.Time, list []*core.Change, states loadedTasks) (storedChange, error) {
	out := storedChange{now: now}
	namespaces := map[string]bool{}
	for _, c := range list {
		if err := c.Err(); err != nil {
			return out, err
		}
		t := states.tasks[c.Task.ID]
		for _, m := range c.Moves {
			out.moves = append(out.moves, t.newMove(m))
		}
		for _, s := range c.Moved {
			row := t.rows[s.ID]
			out.moved = append(out.moved, changedStep{row})
			was, _ := s.Was()
			if was == tasker.StepEnqueued {
				out.left = append(out.left, row)
			}
			if s.State == tasker.StepEnqueued {
				out.Enqueued = append(out.Enqueued, s.ID)
				namespaces[row.namespace] = true
			}
			out.note(t, s, was)
		}
		for _, s := range c.Touched {
			out.touched = append(out.touched, changedStep{t.rows[s.ID]})
			out.note(t, s, s.State)
		}
	}
	for name := range namespaces {
		out.Namespaces = append(out.Namespaces, name)
	}
	slices.Sort(out.Namespaces)
	return out, nil
}

// note records a step that must be decided now, or that begins or ends a wait for people or a child
// task.
func (c *storedChange) note(t *taskState, s *core.Step, was tasker.StepState) {
	ref := tasker.StepRef{TaskUUID: t.ID, StepUUID: s.ID}
	if s.State == tasker.StepPending && s.DecideAt != nil {
		c.ToDecide = append(c.ToDecide, ref)
	}
	if s.Type == tasker.ExternalStep && was != s.State && (was == tasker.StepPending || s.State == tasker.StepPending) {
		c.human = append(c.human, ref)
	}
	if s.Type == tasker.ChildStep && was == tasker.StepPending && s.State != was {
		c.children = append(c.children, ref)
	}
}

// newMove returns a move with the enqueuing and the claim of the attempt that it ends.
func (t *taskState) newMove(m core.Move) storedMove {
	s := t.rows[m.Step]
	out := storedMove{Move: m, task: t.ID}
	if s.unwritten > 0 {
		out.movesID = s.movesID
		if s.unwritten != 2 {
			out.enqueued = s.enqueuedAt
			if was, _ := s.Was(); was == tasker.StepEnqueued {
				out.enqueued = &s.since
			}
		}
		if s.unwritten >= 2 {
			out.claimed = s.claimedAt
		}
		s.unwritten = 0 // later moves of the step do not record them again
	}
	return out
}

// newUnwritten returns which moves of the attempt that a step begins are not in the history yet.
func (s changedStep) newUnwritten() int32 {
	was, _ := s.Was()
	switch {
	case s.State == tasker.StepInProgress:
		return 3
	case s.State == tasker.StepEnqueued && was == tasker.StepPending && !s.Stored.Enqueued:
		return 1
	default:
		return 0
	}
}

var stepMoveColumns = columns[storedMove]{
	newColumn("task_uuid uuid", func(m *storedMove) tasker.ID { return m.task }),
	newColumn("step_uuid uuid", func(m *storedMove) tasker.ID { return m.Step }),
	newColumn("from_state text", func(m *storedMove) string { return string(m.From) }),
	newColumn("to_state text", func(m *storedMove) string { return string(m.To) }),
	newColumn("event text", func(m *storedMove) string { return string(m.Event) }),
	newColumn("attempt int", func(m *storedMove) int32 { return int32(m.Attempt) }),
	newColumn("worker_uuid uuid", func(m *storedMove) pgtype.UUID { return toNullableUUID(m.Worker) }),
	newColumn("actor text", func(m *storedMove) string { return m.Actor }),
	newColumn("reason text", func(m *storedMove) string { return m.Reason }),
	newColumn("detail text", func(m *storedMove) *string { return nilIfEmptyDoc(m.Detail) }),
	newColumn("moves_id bigint", func(m *storedMove) *int64 { return m.movesID }),
	newColumn("enqueued_at timestamptz", func(m *storedMove) *time.Time { return m.enqueued }),
	newColumn("claimed_at timestamptz", func(m *storedMove) *time.Time { return m.claimed }),
	newColumn("operation_uuid uuid", func(m *storedMove) pgtype.UUID { return toNullableUUID(m.Operation) }),
}

var movedStepColumns = columns[changedStep]{
	newColumn("task_uuid uuid", func(s *changedStep) tasker.ID { return s.taskUUID }),
	newColumn("step_uuid uuid", func(s *changedStep) tasker.ID { return s.ID }),
	newColumn("was_state text", func(s *changedStep) string { was, _ := s.Was(); return string(was) }),
	newColumn("was_fence bigint", func(s *changedStep) int64 { _, fence := s.Was(); return fence }),
	newColumn("state text", func(s *changedStep) string { return string(s.State) }),
	newColumn("fence bigint", func(s *changedStep) int64 { return s.Fence }),
	newColumn("attempts int", func(s *changedStep) int32 { return int32(s.Attempts) }),
	newColumn("parents_open int", func(s *changedStep) int32 { return int32(s.OpenParents) }),
	newColumn("retry_at timestamptz", func(s *changedStep) *time.Time { return s.RetryAt }),
	newColumn("awaits_worker_since timestamptz", func(s *changedStep) *time.Time { return s.AwaitsWorker }),
	newColumn("queue_expiries int", func(s *changedStep) int32 { return int32(s.QueueExpiries) }),
	newColumn("decide_at timestamptz", func(s *changedStep) *time.Time { return s.DecideAt }),
	newColumn("decided_at timestamptz", func(s *changedStep) *time.Time { return s.DecidedAt }),
	newColumn("wait_until timestamptz", func(s *changedStep) *time.Time { return s.WaitUntil }),
	newColumn("remind_at timestamptz", func(s *changedStep) *time.Time { return s.RemindAt }),
	newColumn("reminders int", func(s *changedStep) int32 { return int32(s.Reminders) }),
	newColumn("worker_uuid uuid", func(s *changedStep) pgtype.UUID { return toNullableUUID(s.Worker) }),
	newColumn("inputs_bytes bigint", func(s *changedStep) *int64 { return s.InputBytes }),
	newColumn("kept_report text", func(s *changedStep) *string { return nilIfEmptyDoc(s.Stored.Kept) }),
	newColumn("skip_reason text", func(s *changedStep) *string { return s.skipReason() }),
	newColumn("result text", func(s *changedStep) *string { return nilIfEmptyDoc(s.Stored.Result) }),
	newColumn("result_size int", func(s *changedStep) int32 { return int32(s.Stored.ResultSize) }),
	newColumn("error text", func(s *changedStep) *string { return nilIfEmptyDoc(s.Stored.Error) }),
	newColumn("reported_fence bigint", func(s *changedStep) *int64 { return s.Stored.Reported }),
	newColumn("digest bytea", func(s *changedStep) []byte { return s.Stored.Digest }),
	newColumn("no_digest bool", func(s *changedStep) bool { return s.Stored.NoDigest }),
	newColumn("unwritten int", func(s *changedStep) int32 { return s.newUnwritten() }),
	newColumn("items_free int", func(s *changedStep) int32 { return s.items().free }),
	newColumn("item_next int", func(s *changedStep) int32 { return s.items().next }),
}

var touchedStepColumns = columns[changedStep]{
	newColumn("task_uuid uuid", func(s *changedStep) tasker.ID { return s.taskUUID }),
	newColumn("step_uuid uuid", func(s *changedStep) tasker.ID { return s.ID }),
	newColumn("begun bool", func(s *changedStep) bool { return s.Stored.Begun }),
	newColumn("parents_open int", func(s *changedStep) int32 { return int32(s.OpenParents) }),
	newColumn("inputs_bytes bigint", func(s *changedStep) *int64 { return s.InputBytes }),
	newColumn("decide_at timestamptz", func(s *changedStep) *time.Time { return s.DecideAt }),
	newColumn("decided_at timestamptz", func(s *changedStep) *time.Time { return s.DecidedAt }),
	newColumn("wait_until timestamptz", func(s *changedStep) *time.Time { return s.WaitUntil }),
	newColumn("remind_at timestamptz", func(s *changedStep) *time.Time { return s.RemindAt }),
	newColumn("items_free int", func(s *changedStep) int32 { return s.items().free }),
	newColumn("item_next int", func(s *changedStep) int32 { return s.items().next }),
	newColumn("item_under_way int", func(s *changedStep) *int32 { return s.items().underWay }),
}

// skipReason returns why a step is skipped, or nil if it is not.
func (s *changedStep) skipReason() *string {
	if s.State != tasker.StepSkipped {
		return nil
	}
	return &s.Stored.SkipReason
}

// itemColumns contains the columns of a map step with items.
type itemColumns struct {
	free, next int32
	underWay   *int32
}

func (s *changedStep) items() itemColumns {
	if s.Items == nil {
		return itemColumns{}
	}
	c := itemColumns{free: int32(s.Items.Free), next: int32(s.Items.Next)}
	if n := s.Items.UnderWay; n != nil {
		underWay := int32(*n)
		c.underWay = &underWay
	}
	return c
}

// storeOptions configures how a change is stored.
type storeOptions struct {
	queue queue
	lease time.Duration // of steps that the reporting worker claims
}

// enqueue adds the statements that store the change to a batch.
func (c *storedChange) enqueue(b *pgx.Batch, o storeOptions) {
	if len(c.left) > 0 {
		b.Queue(statement("leaveQueue"), leftStepColumns.toArrays(c.left)...)
	}
	if len(c.moved) > 0 {
		args := append([]any{c.now, o.queue.ttlMS, o.queue.announce, o.lease}, stepMoveColumns.toArrays(c.moves)...)
		b.Queue(statement("moveSteps"), append(args, movedStepColumns.toArrays(c.moved)...)...)
	}
	if len(c.touched) > 0 {
		b.Queue(statement("touchSteps"), append([]any{c.now}, touchedStepColumns.toArrays(c.touched)...)...)
	}
}

var leftStepColumns = columns[*stepState]{
	newColumn("namespace text", func(s **stepState) string { return (*s).namespace }),
	newColumn("handler text", func(s **stepState) string { return (*s).handler }),
	newColumn("priority int", func(s **stepState) int32 { return int32((*s).priority) }),
	newColumn("state_since timestamptz", func(s **stepState) time.Time { return (*s).since }),
	newColumn("step_uuid uuid", func(s **stepState) tasker.ID { return (*s).ID }),
}

// read reads the results of the statements.
func (c *storedChange) read(results pgx.BatchResults) error {
	for _, n := range []int{len(c.left), len(c.moved), len(c.touched)} {
		if n == 0 {
			continue
		}
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf("store steps: %w", classifyError(err))
		}
	}
	return nil
}

// store stores changes of locked tasks.
func (tx *Tx) store(ctx context.Context, states loadedTasks, changes []*core.Change) (storedChange, error) {
	stored, err := collectChanges(states.now, changes, states)
	if err != nil || len(stored.moved)+len(stored.touched) == 0 {
		return stored, err
	}
	if len(stored.left) > 0 {
		if err := tx.deleteHeldSteps(ctx, mapSlice(stored.left, func(s *stepState) tasker.StepRef { return tasker.StepRef{TaskUUID: s.taskUUID, StepUUID: s.ID} })); err != nil {
			return stored, err
		}
	}
	var batch pgx.Batch
	stored.enqueue(&batch, storeOptions{queue: tx.queue})
	results := tx.SendBatch(ctx, &batch)
	err = stored.read(results)
	if closed := results.Close(); err == nil {
		err = classifyError(closed)
	}
	if err == nil && len(stored.human) > 0 {
		err = tx.followHumanSteps(ctx, stored.human)
	}
	if err == nil && len(stored.children) > 0 {
		tasks, steps := toRefArrays(stored.children)
		err = exec(ctx, tx, "leave child tasks", statement("leaveChildTasks"), tasks, steps)
	}
	return stored, err
}

// changeWhole loads locked tasks with all their steps, applies do to each, and stores the changes.
func (tx *Tx) changeWhole(ctx context.Context, tasks []tasker.ID, do func(*core.Change)) (storedChange, error) {
	return tx.change(ctx, loadRequest{tasks: tasks, whole: true}, do)
}

// changeSteps is changeWhole for a change that affects only the given steps and those that depend on
// them.
func (tx *Tx) changeSteps(ctx context.Context, steps []tasker.StepRef, do func(*core.Change)) (storedChange, error) {
	tasks := uniqueTasks(mapSlice(steps, func(s tasker.StepRef) tasker.ID { return s.TaskUUID }))
	return tx.change(ctx, loadRequest{tasks: tasks, steps: steps}, do)
}

func (tx *Tx) change(ctx context.Context, r loadRequest, do func(*core.Change)) (storedChange, error) {
	if len(r.tasks) == 0 {
		return storedChange{}, nil
	}
	states, err := loadTasks(ctx, tx, r)
	if err != nil {
		return storedChange{}, err
	}
	var changes []*core.Change
	for _, t := range states.ordered() {
		c := core.Begin(&t.Task, states.now)
		do(c)
		changes = append(changes, c)
	}
	return tx.store(ctx, states, changes)
}

func nilIfEmptyDoc(doc json.RawMessage) *string { return nilIfEmpty(string(doc)) }
