package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// Queue identifies the queue of a step in JSON.
type Queue struct {
	Namespace string `json:"n"`
	Handler   string `json:"h"`
}

// Concluded is the result of [Tx.ConcludeSteps]. Its integers are indexes of outcomes.
type Concluded struct {
	Moved         []int
	FailedForGood []int            // moved to error and not retried
	Enqueued      []tasker.ID      // steps that became ready and were enqueued
	Namespaces    []string         // namespaces of the enqueued steps
	ToDecide      []tasker.StepRef // steps that must be decided now
	Queues        []Queue          // queues of the moved steps, in order; nil unless Options.ReportQueues is set
}

// ConcludeSteps applies those outcomes that match and enqueues the steps that become ready. The
// caller must hold the task locks and settle the tasks afterwards.
func (tx *Tx) ConcludeSteps(ctx context.Context, list []core.Outcome) (Concluded, error) {
	var queued []tasker.StepRef
	for _, c := range list {
		if c.From == tasker.StepEnqueued {
			queued = append(queued, c.Ref())
		}
	}
	if len(queued) > 0 {
		if err := tx.LockEnqueued(ctx, queued); err != nil {
			return Concluded{}, err
		}
	}
	states, err := loadTasks(ctx, tx, newOutcomeRequest(list))
	if err != nil {
		return Concluded{}, err
	}
	uncounted, err := tx.findUncounted(ctx, list)
	if err != nil {
		return Concluded{}, err
	}
	decided := conclude(states, list, concludeOptions{uncounted: uncounted, queues: tx.queue.report})
	stored, err := tx.store(ctx, states, decided.changes)
	if err != nil {
		return Concluded{}, fmt.Errorf("conclude steps: %w", err)
	}
	return decided.addStored(stored), nil
}

func newOutcomeRequest(list []core.Outcome) loadRequest {
	return loadRequest{tasks: uniqueTasks(TaskIDs(list)), steps: mapSlice(list, func(c core.Outcome) tasker.StepRef { return c.Ref() })}
}

// findUncounted returns the steps whose failed attempts do not count.
func (tx *Tx) findUncounted(ctx context.Context, list []core.Outcome) (map[tasker.ID]bool, error) {
	var failed []tasker.StepRef
	for _, c := range list {
		if c.To() == tasker.StepError && c.Retryable && (c.Worker != nil || c.Expired) {
			failed = append(failed, c.Ref())
		}
	}
	if len(failed) == 0 {
		return nil, nil
	}
	tasks, steps := toRefArrays(failed)
	found, err := collectColumn[tasker.ID](ctx, tx, statement("uncountedAttempts"), tasks, steps)
	if err != nil {
		return nil, fmt.Errorf("find probes of holds: %w", err)
	}
	uncounted := make(map[tasker.ID]bool, len(found))
	for _, id := range found {
		uncounted[id] = true
	}
	return uncounted, nil
}

// decidedOutcomes contains what outcomes do to tasks.
type decidedOutcomes struct {
	Concluded
	changes []*core.Change
}

// addStored adds what was stored of the changes.
func (d decidedOutcomes) addStored(c storedChange) Concluded {
	d.Enqueued, d.Namespaces, d.ToDecide = c.Enqueued, c.Namespaces, c.ToDecide
	return d.Concluded
}

// concludeOptions configures conclude.
type concludeOptions struct {
	uncounted map[tasker.ID]bool // steps whose failed attempts do not count
	queues    bool               // return the queues of the steps

	worker tasker.ID             // the reporting worker
	takes  func(*stepState) bool // whether it claims a step that has become ready; may be nil
}

// conclude applies outcomes to the loaded tasks.
func conclude(states loadedTasks, list []core.Outcome, o concludeOptions) decidedOutcomes {
	var d decidedOutcomes
	changes := make(map[tasker.ID]*core.Change, len(states.tasks))
	for _, t := range states.ordered() {
		c := core.Begin(&t.Task, states.now)
		if o.takes != nil {
			c.Worker, c.Takes = o.worker, func(s *core.Step) bool { return o.takes(t.rows[s.ID]) }
		}
		changes[t.ID] = c
		d.changes = append(d.changes, c)
	}
	for _, i := range orderByStep(list) {
		v := list[i]
		v.Jitter, v.Uncounted = rand.Float64(), o.uncounted[v.StepUUID]
		c := changes[v.TaskUUID]
		if c == nil || !c.Conclude(v) {
			continue
		}
		d.Moved = append(d.Moved, i)
		if c.Task.Find(v.StepUUID).FailedForGood() {
			d.FailedForGood = append(d.FailedForGood, i)
		}
	}
	for _, c := range d.changes {
		c.Finish()
	}
	slices.Sort(d.Moved)
	slices.Sort(d.FailedForGood)
	if o.queues {
		d.Queues = make([]Queue, len(d.Moved))
		for n, i := range d.Moved {
			row := states.tasks[list[i].TaskUUID].rows[list[i].StepUUID]
			d.Queues[n] = Queue{Namespace: row.namespace, Handler: row.handler}
		}
	}
	return d
}

// orderByStep returns the indexes of outcomes in the order of their steps.
func orderByStep(list []core.Outcome) []int {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(slices.Compare(list[a].TaskUUID[:], list[b].TaskUUID[:]), slices.Compare(list[a].StepUUID[:], list[b].StepUUID[:]))
	})
	return order
}

// PendingReport is an accepted report that could not be applied yet.
type PendingReport struct {
	TaskUUID tasker.ID
	StepUUID tasker.ID
	Fence    int64
	Report   []byte
}

// PendingReports returns the pending reports of the steps.
func (db *DB) PendingReports(ctx context.Context, of []tasker.StepRef) ([]PendingReport, error) {
	return readPendingReports(ctx, db.pool, of)
}

// PendingReports is [DB.PendingReports] within the transaction.
func (tx *Tx) PendingReports(ctx context.Context, of []tasker.StepRef) ([]PendingReport, error) {
	return readPendingReports(ctx, tx, of)
}

func readPendingReports(ctx context.Context, q querier, of []tasker.StepRef) ([]PendingReport, error) {
	tasks, steps := toRefArrays(of)
	rows, err := collect[PendingReport](ctx, q, statement("pendingReports"), tasks, steps)
	return rows, wrapError(err, "read pending reports")
}

// toNullableUUID converts an optional id to a parameter. pgx would send a pointer as text.
func toNullableUUID(id *tasker.ID) pgtype.UUID {
	if id == nil {
		return pgtype.UUID{}
	}
	return pgtype.UUID{Bytes: *id, Valid: true}
}

// TaskIDs returns the distinct tasks of outcomes.
func TaskIDs(list []core.Outcome) []tasker.ID {
	return uniqueTasks(collectValues(list, func(c *core.Outcome) tasker.ID { return c.TaskUUID }))
}
