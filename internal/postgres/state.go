package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// smallTask is the maximum number of steps of a task that are counted when the task is loaded.
const smallTask = 64

// taskState is the loaded state of a locked task.
type taskState struct {
	core.Task
	since time.Time // when the task entered its state, or last made progress in it
	rows  map[tasker.ID]*stepState

	total  int         // number of steps, at most smallTask + 1; 0 if they were not counted
	counts core.Counts // of these steps
}

// stepState is the loaded state of a step with the columns that only this package uses.
type stepState struct {
	core.Step
	taskUUID           tasker.ID
	namespace, handler string
	priority           int
	since              time.Time
	unwritten          int // which moves of the attempt the history does not have yet: 1 enqueue, 2 claim, 3 both
	movesID            *int64
	enqueuedAt         *time.Time
	claimedAt          *time.Time
}

// loadedTasks contains the states of locked tasks, and the time.
type loadedTasks struct {
	tasks map[tasker.ID]*taskState
	now   time.Time
}

// ordered returns the tasks in the order of their ids, in which they are stored.
func (l loadedTasks) ordered() []*taskState {
	return slices.SortedFunc(maps.Values(l.tasks), func(a, b *taskState) int { return slices.Compare(a.ID[:], b.ID[:]) })
}

// loadRequest names the tasks to load.
type loadRequest struct {
	tasks []tasker.ID      // distinct
	steps []tasker.StepRef // load only these and the steps that they affect
	whole bool             // load all steps
}

// batchSender sends statements together.
type batchSender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// queue adds the statements of the request to a batch.
func (r loadRequest) queue(b *pgx.Batch) {
	if r.whole {
		b.Queue(statement("loadTasks"), r.tasks, 0)
		b.Queue(statement("loadWholeTasks"), r.tasks)
	} else {
		tasks, steps := toRefArrays(r.steps)
		b.Queue(statement("loadTasks"), r.tasks, smallTask+1)
		b.Queue(statement("loadSteps"), tasks, steps)
	}
	b.Queue(statement("loadClock"))
}

// read reads the results of the statements of the request.
func (r loadRequest) read(results pgx.BatchResults) (loadedTasks, error) {
	l := loadedTasks{tasks: make(map[tasker.ID]*taskState, len(r.tasks))}
	found, err := scanBatchRows(results, scanTask)
	if err != nil {
		return l, fmt.Errorf("load tasks: %w", err)
	}
	for _, t := range found {
		t.Whole = r.whole
		l.tasks[t.ID] = t
	}
	steps, err := scanBatchRows(results, newStepScanner().scan)
	if err != nil {
		return l, fmt.Errorf("load steps: %w", err)
	}
	l.add(steps)
	return l, classifyError(results.QueryRow().Scan(&l.now))
}

// add adds steps to their tasks.
func (l loadedTasks) add(steps []*stepState) {
	for _, s := range steps {
		t := l.tasks[s.taskUUID]
		if t == nil || t.rows[s.ID] != nil {
			continue
		}
		t.rows[s.ID] = s
		t.Steps = append(t.Steps, &s.Step)
	}
}

// loadTasks loads the states of locked tasks.
func loadTasks(ctx context.Context, s batchSender, r loadRequest) (loadedTasks, error) {
	var batch pgx.Batch
	r.queue(&batch)
	results := s.SendBatch(ctx, &batch)
	l, err := r.read(results)
	if closed := results.Close(); err == nil {
		err = classifyError(closed)
	}
	if err == nil {
		err = l.complete(ctx, s, r)
	}
	return l, err
}

// complete loads the items that the items among the steps of the request affect, and counts the steps
// that were not loaded.
func (l loadedTasks) complete(ctx context.Context, s batchSender, r loadRequest) error {
	if !r.whole {
		if err := l.loadItems(ctx, s, r.steps); err != nil {
			return err
		}
	}
	for _, t := range l.tasks {
		slices.SortFunc(t.Steps, func(a, b *core.Step) int { return slices.Compare(a.ID[:], b.ID[:]) })
		if !t.Whole && t.total <= smallTask {
			others := t.counts.Without(t.Steps)
			t.Others = &others
		}
	}
	return nil
}

// loadItems loads the items that can get the slots of the given ones, and one of each map step that
// is in progress.
func (l loadedTasks) loadItems(ctx context.Context, s batchSender, named []tasker.StepRef) error {
	ended := map[tasker.StepRef]int32{}
	for _, ref := range named {
		if t := l.tasks[ref.TaskUUID]; t != nil && t.rows[ref.StepUUID] != nil && t.rows[ref.StepUUID].Item != nil {
			ended[tasker.StepRef{TaskUUID: t.ID, StepUUID: t.rows[ref.StepUUID].Item.Map}]++
		}
	}
	if len(ended) == 0 {
		return nil
	}
	mapSteps := slices.Collect(maps.Keys(ended))
	tasks, ids := toRefArrays(mapSteps)
	_, without := toRefArrays(named)
	var batch pgx.Batch
	batch.Queue(statement("loadItems"), tasks, ids, mapSlice(mapSteps, func(m tasker.StepRef) int32 { return ended[m] }), without)
	results := s.SendBatch(ctx, &batch)
	items, err := scanBatchRows(results, newStepScanner().scan)
	if closed := results.Close(); err == nil {
		err = classifyError(closed)
	}
	if err != nil {
		return fmt.Errorf("load items: %w", err)
	}
	l.add(items)
	for _, ref := range mapSteps {
		if m := l.tasks[ref.TaskUUID].rows[ref.StepUUID]; m != nil && m.Items != nil {
			m.Items.UnderWay = findUnderWay(m, items)
		}
	}
	return nil
}

// findUnderWay returns near which item of a map step the next search for an active one begins: the
// one that was found, or 100 before the last search.
func findUnderWay(m *stepState, items []*stepState) *int {
	for _, s := range items {
		if s.Item != nil && s.Item.Map == m.ID && (s.State == tasker.StepEnqueued || s.State == tasker.StepInProgress) {
			ordinal := s.Item.Ordinal
			return &ordinal
		}
	}
	from := m.Items.Total
	if m.Items.UnderWay != nil {
		from = *m.Items.UnderWay
	}
	if from -= 100; from < 0 {
		return nil // it starts again at the last item
	}
	return &from
}

func scanTask(row pgx.CollectableRow) (*taskState, error) {
	t := &taskState{rows: map[tasker.ID]*stepState{}}
	n := &t.counts
	return t, row.Scan(&t.ID, &t.State, &t.since, &t.Phase, &t.total, &n.Open, &n.Active, &n.Retrying, &n.Failed)
}

// stepScanner reads rows of steps. It reuses its destinations, because tasks are loaded often.
type stepScanner struct {
	step                   stepState
	decision               bool
	timeout, remind        int64
	total, limit, underWay *int
	free, next, ordinal    int
	mapUUID                *tasker.ID
	children               [][16]byte
	destinations           []any
}

func newStepScanner() *stepScanner {
	var n stepScanner
	s, r := &n.step, &n.step.Retry
	n.destinations = []any{ // pgx reads arrays of bytes much faster than tasker.ID
		(*[16]byte)(&s.taskUUID), (*[16]byte)(&s.ID), &s.Type, &n.decision, &s.Join, &s.namespace, &s.handler, &n.children,
		&r.Retryable, &r.MaxAttempts, &r.Backoff, &r.BaseMS, &r.MaxBackoffMS, &r.Jitter, &n.timeout, &n.remind, &s.priority,
		&s.State, &s.since, &s.Attempts, &s.Fence, &s.OpenParents, &s.RetryAt, &s.AwaitsWorker, &s.Unclaimed, &s.QueueExpiries,
		&s.DecideAt, &s.DecidedAt, &s.WaitUntil, &s.RemindAt, &s.Reminders, &s.Worker, &s.LeaseExpires,
		&n.total, &n.limit, &n.free, &n.next, &n.underWay, &n.mapUUID, &n.ordinal, &s.ResultBytes, &s.InputBytes,
		&s.unwritten, &s.movesID, &s.enqueuedAt, &s.claimedAt,
	}
	return &n
}

// scan reads a row.
func (n *stepScanner) scan(row pgx.CollectableRow) (*stepState, error) {
	if err := row.Scan(n.destinations...); err != nil {
		return nil, err
	}
	s := n.step
	s.Children = make([]tasker.ID, len(n.children))
	for i, id := range n.children {
		s.Children[i] = id
	}
	if n.decision {
		s.Type = tasker.DecisionStep
	}
	s.Timeout, s.Remind = time.Duration(n.timeout)*time.Millisecond, time.Duration(n.remind)*time.Second
	if n.total != nil {
		s.Items = &core.Items{Total: *n.total, Limit: n.limit, Free: n.free, Next: n.next, UnderWay: n.underWay}
	}
	if n.mapUUID != nil {
		s.Item = &core.Item{Map: *n.mapUUID, Ordinal: n.ordinal}
	}
	s.MarkLoaded()
	return &s, nil
}
