package postgres

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// A report of one success is concluded by short statements where nothing else is to be looked at: see
// functions/conclude_success.sql. An idle system has hardly any other reports, and the statements for those of all kinds take 0.5 ms to begin.
// What it cannot conclude it leaves alone, and the report goes the general way.

// concludeSuccess has the parameters of tasker.conclude_success.
const concludeSuccess = `
SELECT concluded, asks, coalesce(enqueued, '{}') AS enqueued, coalesce(namespaces, '{}') AS namespaces, coalesce(namespace, '') AS namespace, coalesce(handler, '') AS handler
FROM tasker.conclude_success($1, $2, $3, $4, $5::text::jsonb, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`

// fastPathCooldown is how many single reports skip the fast way after one that failed it.
const fastPathCooldown = 7

// fastPath says which reports of one success are worth the short statements.
type fastPath struct{ left atomic.Int32 }

func (s *fastPath) allow() bool {
	if s.left.Load() <= 0 {
		return true
	}
	s.left.Add(-1)
	return false
}

// mayConcludeAlone reports whether the outcomes of a report, all successes, are one that the short statements may conclude.
func (db *DB) mayConcludeAlone(list []Conclusion, next *NextClaim, l claimMode) bool {
	if len(list) != 1 || list[0].Reason != "" || next != nil && (next.Limit <= 0 || !db.mayClaim(next, l)) {
		return false
	}
	return db.singles.allow()
}

// reportSingle is [DB.Report] of one success. concluded is false if nothing is changed.
func (db *DB) reportSingle(ctx context.Context, c *Conclusion, next *NextClaim, l claimMode) (result Concluded, claimed ClaimResult, concluded bool, err error) {
	args := db.aloneArgs(c, next, l)
	var rows []concludedAlone
	err = retry(ctx, func() (err error) {
		var batch pgx.Batch
		batch.Queue(concludeSuccess, args...)
		if next != nil {
			batch.Queue(claimReady)
		}
		results := db.pool.SendBatch(ctx, &batch)
		defer func() { _ = results.Close() }()
		if rows, err = answered[concludedAlone](results); err != nil {
			return fmt.Errorf("conclude step: %w", err)
		}
		if next != nil {
			if claimed, err = readClaim(results, 0); err != nil {
				return err
			}
		}
		return results.Close() // only now is it committed
	})
	if err != nil || !rows[0].Concluded || rows[0].Asks {
		db.singles.left.Store(fastPathCooldown)
	}
	if err != nil || !rows[0].Concluded {
		return Concluded{}, ClaimResult{}, false, err
	}
	db.heads.taken(claimed.Steps)
	if rows[0].Asks && !next.OnlyReady {
		claimed = db.claimAfter(ctx, next, claimed)
	}
	result = Concluded{Moved: []int{0}, Enqueued: rows[0].Enqueued, Namespaces: rows[0].Namespaces}
	if db.queue.report {
		result.Queues = []Queue{{rows[0].Namespace, rows[0].Handler}}
	}
	return result, claimed, true, nil
}

// aloneArgs are the arguments of concludeSuccess.
func (db *DB) aloneArgs(c *Conclusion, next *NextClaim, l claimMode) []any {
	var want NextClaim // nothing
	ranges := &headRanges{}
	if next != nil {
		want, ranges = *next, next.ranges(l)
	}
	return []any{
		c.TaskUUID, c.StepUUID, c.Fence, *c.Worker, docOrNil(c.Body), c.ResultSize, c.Digest, db.queue.ttlMS, db.queue.announce,
		want.Limit, want.Lease, noNil(want.Without), tasker.MaxInputBytes, maxStepSize, tasker.MaxClaimBytes,
		ranges.namespaces, ranges.handlers, ranges.low, ranges.high, ranges.since,
	}
}

type concludedAlone struct {
	Concluded  bool
	Asks       bool
	Enqueued   []tasker.ID
	Namespaces []string
	Namespace  string
	Handler    string
}
