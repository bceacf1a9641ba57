package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
)

// Pruned describes a batch of [DB.PruneTasks].
type Pruned struct {
	Removed int
	Seen    int
	More    bool       // there are more tasks
	Last    *tasker.ID // last task that was read, after which the next batch begins; nil if none was read
}

// PruneBounds limits a batch of [DB.PruneTasks]. The steps of its last task may exceed Steps.
type PruneBounds struct{ Tasks, Steps int }

// PruneTasks removes tasks that are in a final state, have not changed for age and were never
// investigated. It begins after the given task and stays within bounds.
func (db *DB) PruneTasks(ctx context.Context, state tasker.TaskState, after tasker.ID, age time.Duration, bounds PruneBounds) (p Pruned, err error) {
	type batch struct {
		Old  []tasker.ID
		Seen int
		More bool
		Last *tasker.ID
	}
	err = db.InTx(ctx, func(tx *Tx) error {
		b, err := queryRequired[batch](ctx, tx, nil, "lock tasks", statement("lockOldTasks"), string(state), after, firstIDAt(time.Now().Add(-age)), age, bounds.Tasks, bounds.Steps)
		if err != nil {
			return err
		}
		removed, err := tx.Exec(ctx, statement("pruneTasks"), b.Old)
		p = Pruned{Removed: int(removed.RowsAffected()), Seen: b.Seen, More: b.More, Last: b.Last}
		return err
	})
	return p, wrapError(err, "remove finished tasks")
}

// NextToPrune returns the first task in a state that follows the given task, or nil if there is
// none.
func (db *DB) NextToPrune(ctx context.Context, state tasker.TaskState, after tasker.ID) (*tasker.ID, error) {
	id, err := queryFirst[tasker.ID](ctx, db.pool, statement("nextToPrune"), string(state), after)
	return id, wrapError(err, "find the next task to prune")
}

// firstIDAt returns an id that precedes all ids created at t or later.
func firstIDAt(t time.Time) tasker.ID {
	var id tasker.ID
	for i, ms := 5, t.UnixMilli(); i >= 0; i-- {
		id[i] = byte(ms)
		ms >>= 8
	}
	return id
}
