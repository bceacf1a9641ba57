package postgres

import (
	"context"

	"tasker.example/tasker"
)

// SetBasePriorities stores the base priority of each reason, in minutes of age. It reports whether
// any has changed. The new values apply only to investigations that are opened or raised
// afterwards.
func (db *DB) SetBasePriorities(ctx context.Context, of map[tasker.Reason]int) (changed bool, err error) {
	reasons, minutes := make([]string, 0, len(of)), make([]int, 0, len(of))
	for reason, m := range of {
		reasons, minutes = append(reasons, string(reason)), append(minutes, m)
	}
	tag, err := db.pool.Exec(ctx, statement("setBasePriorities"), reasons, minutes)
	return tag.RowsAffected() > 0, wrapError(err, "set base priorities")
}
