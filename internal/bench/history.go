package bench

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// historyTimes is how many times as much finished work there is as new work.
const historyTimes = 10

// history measures whether work that has ended slows down work that has not: the
// same drain of one-step tasks in process on empty tables, and after ten others,
// vacuumed.
// Of each, half as many tasks as group drain has.
func (b *bench) history(ctx context.Context) error {
	n := max(b.Tasks/2, 1)
	empty := figure{name: "one-step tasks drained, empty tables", unit: "steps/s"}
	full := figure{name: fmt.Sprintf("one-step tasks drained, %d × as many finished", historyTimes), unit: "steps/s", baseline: empty.name}
	for range b.Runs {
		took, err := b.drain(ctx, b.direct(), single, n)
		if err != nil {
			return err
		}
		b.note(empty, float64(n)/took.Seconds())
	}
	for done := 1; done < historyTimes; done++ { // the last run above was the first
		if err := b.enqueue(ctx, b.direct(), single, n); err != nil {
			return err
		}
		if _, err := b.empty(ctx, b.direct(), n); err != nil {
			return err
		}
	}
	for range b.Runs {
		// What has ended a while ago has been vacuumed.
		if _, err := b.db.Pool().Exec(ctx, `VACUUM ANALYZE`, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		if err := b.enqueue(ctx, b.direct(), single, n); err != nil {
			return err
		}
		took, err := b.empty(ctx, b.direct(), n)
		if err != nil {
			return err
		}
		b.note(full, float64(n)/took.Seconds())
	}
	return nil
}
