package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// LockTasks locks tasks until the transaction ends. The steps of a task may be moved only under
// this lock.
func (tx *Tx) LockTasks(ctx context.Context, tasks []tasker.ID) error {
	return exec(ctx, tx, "lock tasks", statement("lockTasks"), tasks)
}

// LockFreeTasks locks those of the tasks that are not locked by another transaction, and returns
// them.
func (tx *Tx) LockFreeTasks(ctx context.Context, tasks []tasker.ID) ([]tasker.ID, error) {
	list, err := collectColumn[tasker.ID](ctx, tx, statement("lockFreeTasks"), tasks)
	return list, wrapError(err, "lock tasks")
}

// Settled describes the state of a task before and after the change of its steps.
type Settled struct {
	TaskUUID tasker.ID
	Was      tasker.TaskState
	Since    time.Time // when the task entered the state Was
	State    tasker.TaskState
	Followed *int // number of updated investigations; nil if the task neither is nor was in error
}

// Operator describes who causes a change, and why.
type Operator struct {
	Actor  string // empty for an automatic change
	Reason string
}

// SettleTasks updates the states of locked tasks after their steps have changed. It ignores tasks
// that have not started or have already ended. The states are derived from all steps, so that no
// counter can drift.
func (tx *Tx) SettleTasks(ctx context.Context, tasks []tasker.ID, by Operator) ([]Settled, error) {
	rows, err := tx.countSteps(ctx, tasks)
	if err != nil {
		return nil, err
	}
	settled, err := collect[Settled](ctx, tx, statement("settleTasks"), append(restColumns.toArrays(rows), by.Actor != "", by.Actor, by.Reason)...)
	return settled, wrapError(err, "settle tasks")
}

// restingTask is a task with the stable state that its steps determine.
type restingTask struct {
	task    tasker.ID
	counts  core.Counts
	rests   tasker.TaskState
	changed bool // this transaction has changed a step of it
}

// countSteps determines the stable states of tasks from all their steps.
func (tx *Tx) countSteps(ctx context.Context, tasks []tasker.ID) ([]restingTask, error) {
	list, err := queryRows(ctx, tx, scanCounts, statement("countSteps"), []any{tasks})
	for i := range list {
		list[i].changed = list[i].changed || tx.joined // in a savepoint, xmin is not the id of the transaction
	}
	return list, wrapError(err, "count steps")
}

func scanCounts(row pgx.CollectableRow) (r restingTask, err error) {
	n := &r.counts
	var phase tasker.TaskPhase
	err = row.Scan(&r.task, &phase, &n.Open, &n.Active, &n.Retrying, &n.Failed, &n.RetryAt, &n.WaitUntil, &r.changed)
	r.rests = n.RestingState(phase)
	return r, err
}

// progressEvery is the minimum time between two changes of the staleness deadline of a task.
const progressEvery = time.Second

// restsOf returns the stable states of changed tasks, except those that have made progress recently
// and remain in process. It also returns the tasks whose steps must be counted.
func restsOf(states loadedTasks, changes []*core.Change) (rests []restingTask, uncounted []tasker.ID) {
	for _, c := range changes {
		if len(c.Moved)+len(c.Touched) == 0 {
			continue
		}
		t := states.tasks[c.Task.ID]
		n, known := t.Count()
		if !known {
			uncounted = append(uncounted, t.ID)
			continue
		}
		r := restingTask{task: t.ID, counts: n, rests: n.RestingState(t.Phase), changed: true}
		if r.rests != tasker.TaskStepsInProcess || t.State != r.rests || states.now.Sub(t.since) > progressEvery {
			rests = append(rests, r)
		}
	}
	return rests, uncounted
}

var restColumns = columns[restingTask]{
	newColumn("task_uuid uuid", func(r *restingTask) tasker.ID { return r.task }),
	newColumn("rests text", func(r *restingTask) string { return string(r.rests) }),
	newColumn("retry_at timestamptz", func(r *restingTask) *time.Time { return r.counts.RetryAt }),
	newColumn("wait_until timestamptz", func(r *restingTask) *time.Time { return r.counts.WaitUntil }),
	newColumn("changed bool", func(r *restingTask) bool { return r.changed }),
}
