package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
)

// MapItems returns a page of a map step's items. It also returns the first ordinal of the next
// page, or 0 if there is none. It returns NotFound if the step does not exist.
func (db *DB) MapItems(ctx context.Context, task, step tasker.ID, f tasker.MapItemFilter) (list []tasker.Step, next int, err error) {
	type itemRow struct {
		tasker.Step
		Next *int
	}
	rows, err := collect[itemRow](ctx, db.pool, statement("selectItemsOfMap"), task, step, f.From, f.Limit+1, string(f.State), listBudget)
	if err != nil {
		return nil, 0, fmt.Errorf("list map items: %w", err)
	}
	if len(rows) == 0 {
		_, err = db.Step(ctx, task, step)
		return nil, 0, err
	}
	list = mapSlice(rows, func(r itemRow) tasker.Step { return r.Step })
	if n := rows[0].Next; n != nil {
		next = *n
	}
	completeSteps(ctx, list)
	return list, next, nil
}
