package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// A HoldOfStep describes the hold or limit that keeps a step from being claimed.
type HoldOfStep struct {
	HoldUUID                                   *tasker.ID // nil if no hold covers the step
	HoldKind, HoldOwner, HoldReason, HoldState string
	HoldBlocks                                 bool
	HoldWave, HoldWaves                        int
	HoldBegan, HoldEnds, HoldProbe             *time.Time

	LimitOfStep

	HoldOthers *int64 // number of other steps that the hold blocks, up to the requested maximum plus one
}

// A LimitOfStep describes the limit that keeps an enqueued step from being claimed.
type LimitOfStep struct {
	LimitKind, LimitNamespace, LimitName, LimitKey string // the kind is empty if no limit blocks the step
	LimitMax                                       int
	LimitRate                                      float64
	LimitTaken                                     int64 // used slots of the key
	LimitWeight                                    int   // number of slots that the step requires
	LimitSince                                     *time.Time
	LimitHolder                                    *tasker.ID // task that has held a slot for longest
	LimitHolderStep                                string
	LimitHolderSince                               *time.Time
}

// HeldInQueue describes the parked steps of a queue. Counts do not exceed
// [tasker.MaxExplainedQueue] by more than one.
type HeldInQueue struct {
	Steps int64        // steps parked because of holds
	Hold  *tasker.Hold `db:"-"` // one of these holds, or nil
	Whole bool         `db:"-"` // the hold covers the whole queue

	Limited      int64 // steps parked because of limits
	LimitedSince *time.Time
	Limit        tasker.LimitRef `db:"-"` // limit of the step that has been parked since LimitedSince
	LimitMax     int             // slots per key; 0 for a rate limit
}

// HeldInQueue describes the parked steps of a queue.
func (db *DB) HeldInQueue(ctx context.Context, namespace, handler string) (HeldInQueue, error) {
	type row struct {
		HeldInQueue
		WholeHold, SomeHold *tasker.ID
		tasker.LimitRef
	}
	r, err := queryOne[row](ctx, db.pool, statement("selectHeldInQueue"), namespace, handler, tasker.MaxExplainedQueue)
	if err != nil {
		return HeldInQueue{}, fmt.Errorf("find the parked steps of a queue: %w", err)
	}
	r.Whole, r.Limit = r.WholeHold != nil, r.LimitRef
	if id := cmp.Or(r.WholeHold, r.SomeHold); id != nil {
		if r.Hold, err = queryOne[tasker.Hold](ctx, db.pool, statement("oneHold"), *id,
			access.EverywhereScope().List()); err != nil {
			return r.HeldInQueue, fmt.Errorf("read hold %s: %w", *id, err)
		}
		if r.Hold != nil {
			access.RedactHold(ctx, r.Hold)
		}
	}
	return r.HeldInQueue, nil
}

// RefuseHeldItems returns a Conflict if a hold covers steps that the operation would enqueue.
func (db *DB) RefuseHeldItems(ctx context.Context, operation tasker.ID) error {
	return refuseHeldItems(ctx, db.pool, operation)
}

// RefuseHeldItems is [DB.RefuseHeldItems] within the transaction.
func (tx *Tx) RefuseHeldItems(ctx context.Context, operation tasker.ID) error {
	return refuseHeldItems(ctx, tx, operation)
}

func refuseHeldItems(ctx context.Context, q querier, operation tasker.ID) error {
	type row struct {
		UUID  tasker.ID
		Owner string
		Steps int64
	}
	h, err := queryOne[row](ctx, q, statement("selectHoldOfItems"), operation)
	if err != nil {
		return fmt.Errorf("find the held steps of operation %s: %w", operation, err)
	}
	if h == nil {
		return nil
	}
	return tasker.Errorf(tasker.Conflict, "hold %s (owner %s) covers %d of the steps: they would be enqueued but "+
		"not claimed; release or probe the hold first", h.UUID, h.Owner, h.Steps).
		WithDetails(map[string]string{"hold_uuid": h.UUID.String()})
}
