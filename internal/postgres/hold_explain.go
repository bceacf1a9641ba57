package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// holdOfStep joins steps s of tasks t with the hold or limit that blocks an enqueued step. $5 is
// the maximum count of the other steps that the hold blocks; null to skip counting.
var holdOfStep = `
LEFT JOIN tasker.held_steps q ON s.state = 'enqueued' AND q.task_uuid = t.task_uuid AND q.step_uuid = s.step_uuid AND q.state_since = s.state_since
LEFT JOIN LATERAL (
    SELECT h.*, CASE WHEN $5::bigint IS NOT NULL THEN (
        SELECT count(*) FROM (SELECT FROM tasker.held_steps o WHERE o.hold_uuid = h.hold_uuid AND o.step_uuid <> s.step_uuid LIMIT $5::bigint + 1) o
    ) END AS others
    FROM (
        SELECT * FROM tasker.holds h WHERE h.hold_uuid = q.hold_uuid AND h.ended_at IS NULL
        UNION ALL
        SELECT * FROM tasker.holds h
        WHERE h.blocks AND s.state = 'enqueued' AND q.hold_uuid IS NULL AND h.namespace = s.namespace AND (h.handler IS NULL OR h.handler = s.handler)
          AND (h.task_name IS NULL OR h.task_name = t.name) AND ` + inStep("s") + `
          AND q.released_by IS DISTINCT FROM h.hold_uuid
          AND NOT EXISTS (
              SELECT FROM tasker.ready_steps r
              WHERE (r.namespace, r.handler, r.priority, r.state_since, r.step_uuid) = (s.namespace, s.handler, s.priority, s.state_since, s.step_uuid)
                AND r.released_by = h.hold_uuid
          )
    ) h
    ORDER BY h.hold_uuid LIMIT 1
) hd ON true
LEFT JOIN LATERAL (
    SELECT l.kind, l.namespace, l.name, k.key, l.max_in_progress, l.per_second, coalesce(q.held_at, s.state_since) AS held_at,
        (SELECT coalesce(sum(n.weight), 0) FROM (SELECT h.weight FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id AND ` + holdsSlot + ` LIMIT 10000) n) AS taken,
        coalesce((SELECT x.weight FROM (` + limitsOf("s") + `) x WHERE x.limit_id = k.limit_id AND x.key = k.key LIMIT 1), 1) AS weight,
        o.task_uuid AS holder, o.name AS holder_step, o.last_attempted_at AS holder_since
    FROM tasker.limit_keys k
    JOIN tasker.limits l ON l.limit_id = k.limit_id
    LEFT JOIN LATERAL (
        SELECT w.task_uuid, w.name, w.last_attempted_at
        FROM tasker.limit_slots h
        JOIN tasker.workflow_steps w ON w.task_uuid = h.task_uuid AND w.step_uuid = h.step_uuid AND w.state || '' = 'in_progress' AND w.fence = h.fence
        WHERE h.limit_key_id = k.limit_key_id AND w.namespace = s.namespace
        ORDER BY w.last_attempted_at, w.step_uuid LIMIT 1
    ) o ON true
    WHERE k.limit_key_id = coalesce(q.limit_key_id, (
        SELECT f.limit_key_id FROM (` + fullKeyOf("s") + `) f WHERE q.task_uuid IS NULL
    ))
) lk ON s.state = 'enqueued' AND hd.hold_uuid IS NULL`

const holdOfStepColumns = `
    hd.hold_uuid, coalesce(hd.kind, '') AS hold_kind, coalesce(hd.owner, '') AS hold_owner, coalesce(hd.reason, '') AS hold_reason, coalesce(hd.state, '') AS hold_state,
    coalesce(hd.blocks, false) AS hold_blocks, coalesce(hd.wave, 0) AS hold_wave, coalesce(cardinality(hd.waves), 0) AS hold_waves, hd.began_at AS hold_began, hd.ends_at AS hold_ends, hd.next_probe_at AS hold_probe, hd.others AS hold_others,
    coalesce(lk.kind, '') AS limit_kind, coalesce(lk.namespace, '') AS limit_namespace, coalesce(lk.name, '') AS limit_name, coalesce(lk.key, '') AS limit_key,
    coalesce(lk.max_in_progress, 0) AS limit_max, coalesce(lk.per_second, 0) AS limit_rate, coalesce(lk.taken, 0) AS limit_taken, coalesce(lk.weight, 0) AS limit_weight, lk.held_at AS limit_since,
    lk.holder AS limit_holder, coalesce(lk.holder_step, '') AS limit_holder_step, lk.holder_since AS limit_holder_since`

// A HoldOfStep is the hold or limit that blocks a step.
type HoldOfStep struct {
	HoldUUID                                   *tasker.ID // nil if no hold blocks the step
	HoldKind, HoldOwner, HoldReason, HoldState string
	HoldBlocks                                 bool
	HoldWave, HoldWaves                        int
	HoldBegan, HoldEnds, HoldProbe             *time.Time

	LimitOfStep

	HoldOthers *int64 // other steps that the hold blocks, at most the requested maximum plus one
}

// A LimitOfStep is the limit that blocks an enqueued step.
type LimitOfStep struct {
	LimitKind, LimitNamespace, LimitName, LimitKey string // LimitKind is empty if no limit blocks the step
	LimitMax                                       int
	LimitRate                                      float64
	LimitTaken                                     int64 // used slots of the key
	LimitWeight                                    int   // slots that the step needs
	LimitSince                                     *time.Time
	LimitHolder                                    *tasker.ID // the task that has held a slot longest
	LimitHolderStep                                string
	LimitHolderSince                               *time.Time
}

const selectHeldInQueue = `
SELECT (
    SELECT count(*) FROM (SELECT FROM tasker.held_steps q WHERE q.namespace = $1 AND q.handler = $2 AND q.hold_uuid IS NOT NULL LIMIT $3::bigint + 1) n
) AS steps, (
    SELECT h.hold_uuid FROM tasker.holds h
    WHERE h.blocks AND h.namespace = $1 AND (h.handler IS NULL OR h.handler = $2) AND h.task_name IS NULL AND h.step_name IS NULL
    ORDER BY h.hold_uuid LIMIT 1
) AS whole_hold, (
    SELECT h.hold_uuid FROM tasker.held_steps q JOIN tasker.holds h ON h.hold_uuid = q.hold_uuid
    WHERE q.namespace = $1 AND q.handler = $2 LIMIT 1
) AS some_hold, n.limited, n.limited_since, coalesce(l.kind, '') AS kind, coalesce(l.namespace, '') AS namespace, coalesce(l.name, '') AS name, coalesce(l.max_in_progress, 0) AS limit_max
FROM (
    SELECT count(*) AS limited, min(x.held_at) AS limited_since, (array_agg(x.limit_key_id ORDER BY x.held_at))[1] AS limit_key_id
    FROM (
        SELECT q.held_at, q.limit_key_id FROM tasker.held_steps q
        WHERE q.namespace = $1 AND q.handler = $2 AND q.limit_key_id IS NOT NULL
        LIMIT $3::bigint + 1
    ) x
) n
LEFT JOIN tasker.limit_keys k ON k.limit_key_id = n.limit_key_id
LEFT JOIN tasker.limits l ON l.limit_id = k.limit_id`

// HeldInQueue describes the parked steps of a queue. Counting stops one after
// [tasker.MaxExplainedQueue].
type HeldInQueue struct {
	Steps int64        // parked for holds
	Hold  *tasker.Hold `db:"-"` // one of their holds; nil without one
	Whole bool         `db:"-"` // Hold covers the whole queue

	Limited      int64 // parked for limits
	LimitedSince *time.Time
	Limit        tasker.LimitRef `db:"-"` // the limit of the step parked since LimitedSince
	LimitMax     int             // slots per key; 0 for a rate limit
}

// HeldInQueue returns the parked steps of a queue.
func (db *DB) HeldInQueue(ctx context.Context, namespace, handler string) (HeldInQueue, error) {
	type row struct {
		HeldInQueue
		WholeHold, SomeHold *tasker.ID
		tasker.LimitRef
	}
	r, err := one[row](ctx, db.pool, selectHeldInQueue, namespace, handler, tasker.MaxExplainedQueue)
	if err != nil {
		return HeldInQueue{}, fmt.Errorf("find the parked steps of a queue: %w", err)
	}
	r.Whole, r.Limit = r.WholeHold != nil, r.LimitRef
	if id := cmp.Or(r.WholeHold, r.SomeHold); id != nil {
		if r.Hold, err = one[tasker.Hold](ctx, db.pool, oneHold, *id, access.Everywhere().List()); err != nil {
			return r.HeldInQueue, fmt.Errorf("read hold %s: %w", *id, err)
		}
		if r.Hold != nil {
			access.HideHold(ctx, r.Hold)
		}
	}
	return r.HeldInQueue, nil
}

var selectHoldOfItems = `
SELECT h.hold_uuid AS uuid, h.owner, count(*) AS steps
FROM tasker.holds h
JOIN tasker.operation_items i ON i.operation_uuid = $1 AND i.state = 'planned' AND i.namespace = h.namespace
JOIN tasker.workflow_steps s ON s.task_uuid = i.task_uuid AND s.step_uuid = i.step_uuid
JOIN tasker.tasks t ON t.task_uuid = i.task_uuid
WHERE h.blocks AND (h.handler IS NULL OR h.handler = s.handler) AND (h.task_name IS NULL OR h.task_name = t.name) AND ` + inStep("s") + `
GROUP BY h.hold_uuid
ORDER BY steps DESC, h.hold_uuid
LIMIT 1`

// RefuseHeldItems returns a Conflict if a hold covers steps that the operation will enqueue.
func (db *DB) RefuseHeldItems(ctx context.Context, operation tasker.ID) error {
	return refuseHeldItems(ctx, db.pool, operation)
}

// RefuseHeldItems is [DB.RefuseHeldItems] inside a transaction.
func (tx *Tx) RefuseHeldItems(ctx context.Context, operation tasker.ID) error {
	return refuseHeldItems(ctx, tx, operation)
}

func refuseHeldItems(ctx context.Context, q querier, operation tasker.ID) error {
	type row struct {
		UUID  tasker.ID
		Owner string
		Steps int64
	}
	h, err := one[row](ctx, q, selectHoldOfItems, operation)
	if err != nil {
		return fmt.Errorf("find the held steps of operation %s: %w", operation, err)
	}
	if h == nil {
		return nil
	}
	return tasker.Errorf(tasker.Conflict, "hold %s of %s holds %d of the steps: they would be enqueued and not handed out; release it first, or probe it", h.UUID, h.Owner, h.Steps).
		WithDetails(map[string]string{"hold_uuid": h.UUID.String()})
}
