package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
)

// A TaskPosition is a position among the transitions of a task: after those of the task up to
// TaskAfter, those of its steps up to the history row StepAfter, and those of attempts in progress
// before Since. The zero position is before the first transition.
type TaskPosition struct {
	TaskAfter, StepAfter int64
	Since                time.Time
}

// A FollowedTask is a task whose transitions are read after a position.
type FollowedTask struct {
	UUID tasker.ID
	TaskPosition
}

// A TaskChange is a transition of a followed task.
type TaskChange struct {
	tasker.Transition
	Place  int       // of the task in the request
	RowID  int64     // history row with the transition; 0 while the attempt is in progress
	ReadAt time.Time // time of the database
}

// A FollowedState is the state of a followed task.
type FollowedState struct {
	Place             int
	State             tasker.TaskState // empty if the task does not exist
	PermanentlyFailed bool             // its investigation ended so, and it is not being compensated
}

var followedColumns = columns[FollowedTask]{
	newColumn("task_uuid uuid", func(t *FollowedTask) tasker.ID { return t.UUID }),
	newColumn("task_after bigint", func(t *FollowedTask) int64 { return t.TaskAfter }),
	newColumn("step_after bigint", func(t *FollowedTask) int64 { return t.StepAfter }),
	newColumn("since timestamptz", func(t *FollowedTask) time.Time { return t.Since }),
}

// TaskPosition returns the position after all transitions of a task.
func (db *DB) TaskPosition(ctx context.Context, task tasker.ID) (TaskPosition, error) {
	return queryRequired[TaskPosition](ctx, db.pool, nil, "read the position of a task", statement("taskPosition"), task)
}

// TaskStates returns the states of tasks. Their places are those in the list.
func (db *DB) TaskStates(ctx context.Context, list []FollowedTask) ([]FollowedState, error) {
	args := append([]any{places(list)}, followedColumns[:1].toArrays(list)...)
	rows, err := collect[FollowedState](ctx, db.pool, statement("taskStates"), args...)
	return rows, wrapError(err, "read the states of tasks")
}

// TaskChanges returns the transitions of tasks after their positions, by task and time. It reads at
// most limit history rows of the steps of each task.
func (db *DB) TaskChanges(ctx context.Context, list []FollowedTask, limit int) ([]TaskChange, error) {
	args := append([]any{places(list)}, followedColumns.toArrays(list)...)
	rows, err := collect[TaskChange](ctx, db.pool, statement("taskChanges"), append(args, limit)...)
	return rows, wrapError(err, "read the transitions of tasks")
}

func places(list []FollowedTask) []int32 {
	numbers := make([]int32, len(list))
	for i := range list {
		numbers[i] = int32(i)
	}
	return numbers
}
