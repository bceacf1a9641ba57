package postgres

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// concludeSuccess concludes a report of a single success in simple cases. See
// functions/conclude_success.sql. On an idle system, most reports are of this kind, and the general
// statements take 0.5 ms to start. If it changes nothing, the general statements conclude the
// report.
const concludeSuccess = `
SELECT concluded, asks, coalesce(enqueued, '{}') AS enqueued, coalesce(namespaces, '{}') AS namespaces, coalesce(namespace, '') AS namespace, coalesce(handler, '') AS handler
FROM tasker.conclude_success($1, $2, $3, $4, $5::text::jsonb, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`

// fastPathCooldown is the number of reports that skip the fast path after it was not applicable.
const fastPathCooldown = 7

// circuit decides for which reports concludeSuccess is tried.
type circuit struct{ cooldown atomic.Int32 }

func (s *circuit) allow() bool {
	if s.cooldown.Load() <= 0 {
		return true
	}
	s.cooldown.Add(-1)
	return false
}

// canConcludeSingle reports whether to try concludeSuccess for a report of successes.
func (db *DB) canConcludeSingle(list []Conclusion, next *NextClaim, l claimMode) bool {
	if len(list) != 1 || list[0].Reason != "" || next != nil && (next.Limit <= 0 || !db.canClaim(next, l)) {
		return false
	}
	return db.singles.allow()
}

// reportSingle is [DB.Report] for a single success. If concluded is false, nothing has been
// changed.
func (db *DB) reportSingle(ctx context.Context, c *Conclusion, next *NextClaim, l claimMode) (result Concluded, claimed ClaimResult, concluded bool, err error) {
	args := db.newSingleArgs(c, next, l)
	var rows []singleResult
	err = retry(ctx, func() (err error) {
		var batch pgx.Batch
		batch.Queue(concludeSuccess, args...)
		if next != nil {
			batch.Queue(claimReady)
		}
		results := db.pool.SendBatch(ctx, &batch)
		defer func() { _ = results.Close() }()
		if rows, err = readBatchRows[singleResult](results); err != nil {
			return fmt.Errorf("conclude step: %w", err)
		}
		if next != nil {
			if claimed, err = readClaim(results, 0); err != nil {
				return err
			}
		}
		return results.Close() // this commits the transaction
	})
	if err != nil || !rows[0].Concluded || rows[0].Asks {
		db.singles.cooldown.Store(fastPathCooldown)
	}
	if err != nil || !rows[0].Concluded {
		return Concluded{}, ClaimResult{}, false, err
	}
	db.heads.addClaimed(claimed.Steps)
	if rows[0].Asks && !next.OnlyReady {
		claimed = db.claimAfter(ctx, next, claimed)
	}
	result = Concluded{Moved: []int{0}, Enqueued: rows[0].Enqueued, Namespaces: rows[0].Namespaces}
	if db.queue.report {
		result.Queues = []Queue{{rows[0].Namespace, rows[0].Handler}}
	}
	return result, claimed, true, nil
}

func (db *DB) newSingleArgs(c *Conclusion, next *NextClaim, l claimMode) []any {
	var want NextClaim
	ranges := &headRanges{}
	if next != nil {
		want, ranges = *next, next.headRanges(l)
	}
	return []any{
		c.TaskUUID, c.StepUUID, c.Fence, *c.Worker, nilIfEmptyDoc(c.Body), c.ResultSize, c.Digest, db.queue.ttlMS, db.queue.announce,
		want.Limit, want.Lease, nonNil(want.Without), tasker.MaxInputBytes, maxStepSize, tasker.MaxClaimBytes,
		ranges.namespaces, ranges.handlers, ranges.low, ranges.high, ranges.since,
	}
}

type singleResult struct {
	Concluded  bool
	Asks       bool
	Enqueued   []tasker.ID
	Namespaces []string
	Namespace  string
	Handler    string
}
