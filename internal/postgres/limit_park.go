package postgres

import (
	"context"
	"fmt"
	"slices"

	"tasker.example/tasker"
)

// leastDepth is the minimum number of steps that are scanned per queue and per key.
const leastDepth = `64`

// mostOf is the maximum number of slots of limit l that a step can take.
const mostOf = `least(l.max_in_progress, l.burst)`

// fullStepsSQL selects up to $3 steps that are at the heads of queues and whose keys are full or
// reserved by more urgent steps. It also selects parked steps, from the keys after $4, that another
// of their keys blocks.
func fullStepsSQL(queues string) string {
	const columns = "s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since"
	return `
WITH RECURSIVE clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
` + queues + `
scanned AS MATERIALIZED (
    SELECT e.task_uuid, e.step_uuid, e.priority, e.state_since, e.parked, n.keys, n.weights
    FROM (
        SELECT e.*, NULL::bigint AS parked
        FROM queues q
        CROSS JOIN LATERAL (` + firstStepsSQL(columns, "tasker.ready_steps s", "s.state_since", "", "$3::int") + `) e
        UNION ALL
        SELECT e.*, k.limit_key_id
        FROM clock c
        CROSS JOIN queues q` + joinParkedStepsSQL(columns, "$4::bigint", "1", leastDepth) + `
    ) e
    CROSS JOIN LATERAL (
        SELECT array_agg(k.limit_key_id ORDER BY k.limit_id, k.key) AS keys, array_agg(x.weight ORDER BY k.limit_id, k.key) AS weights
        FROM (` + limitsSQL("e") + `) x
        JOIN tasker.limit_keys k ON k.limit_id = x.limit_id AND k.key = x.key
    ) n
    ORDER BY e.priority DESC, e.state_since
    LIMIT $3::int
),
full_keys AS MATERIALIZED (
    SELECT k.limit_key_id, k.weight
    FROM (SELECT DISTINCT u.* FROM scanned s CROSS JOIN LATERAL unnest(s.keys, s.weights) AS u (limit_key_id, weight)) k
    CROSS JOIN clock c
    JOIN tasker.limit_keys p ON p.limit_key_id = k.limit_key_id
    JOIN tasker.limits l ON l.limit_id = p.limit_id
    WHERE ` + freeSlotsSQL("k.limit_key_id", "k.weight") + ` < least(k.weight, ` + mostOf + `)
),
reserved AS MATERIALIZED (
    SELECT DISTINCT ON (f.limit_key_id) f.limit_key_id, s.priority, s.state_since
    FROM scanned s
    CROSS JOIN LATERAL unnest(s.keys, s.weights) AS u (limit_key_id, weight)
    JOIN full_keys f ON f.limit_key_id = u.limit_key_id AND f.weight = u.weight
    WHERE f.weight > 1
    ORDER BY f.limit_key_id, s.priority DESC, s.state_since
)
SELECT coalesce(array_agg(x.task_uuid), '{}') AS tasks, coalesce(array_agg(x.step_uuid), '{}') AS steps, coalesce(array_agg(x.key), '{}') AS keys,
    coalesce(array_agg(x.parked IS NOT NULL), '{}') AS parked
FROM (
    SELECT DISTINCT ON (s.task_uuid, s.step_uuid) s.task_uuid, s.step_uuid, s.parked, u.limit_key_id AS key
    FROM scanned s
    CROSS JOIN LATERAL unnest(s.keys, s.weights) WITH ORDINALITY AS u (limit_key_id, weight, n)
    LEFT JOIN full_keys f ON f.limit_key_id = u.limit_key_id AND f.weight = u.weight
    LEFT JOIN reserved k ON k.limit_key_id = u.limit_key_id AND (-k.priority, k.state_since) < (-s.priority, s.state_since)
    WHERE f.limit_key_id IS NOT NULL OR k.limit_key_id IS NOT NULL
    ORDER BY s.task_uuid, s.step_uuid, u.n
) x`
}

// An UnparkResult describes a batch of [DB.UnparkLimited].
type UnparkResult struct {
	Namespaces []string // namespaces of the unparked steps
	Waiting    bool     // steps are parked because of limits
	More       bool     // the batch was full, so there may be more steps
	Last       int64    // key after which the next scan begins; 0 at the end
}

type unparkScan struct {
	Last         int64 // last key that was read
	Keys         int
	Tasks, Steps []tasker.ID
}

// UnparkLimited returns up to limit parked steps to the queue that need not wait for a limit any
// more. It scans the keys after the given one. A failing task does not delay the others, so the
// result is valid even if there is an error.
func (db *DB) UnparkLimited(ctx context.Context, limit int, after int64) (b UnparkResult, err error) {
	found, err := queryOne[unparkScan](ctx, db.pool, statement("limitedSteps"), limit, db.queue.announce, after,
		db.queue.ttlMS)
	if err != nil {
		return b, fmt.Errorf("find steps to unpark: %w", err)
	}
	b.Waiting = found.Keys > 0
	if found.Keys == maxUnparkKeys {
		b.Last = found.Last
	}
	if len(found.Steps) == 0 {
		return b, nil
	}
	b.Namespaces, err = db.unparkSteps(ctx, found.Tasks, found.Steps)
	if err != nil && ctx.Err() == nil && !IsUnavailable(err) {
		b.Namespaces, err = db.unparkSingly(ctx, *found)
	}
	b.More = len(found.Steps) == limit && len(b.Namespaces) > 0
	return b, wrapError(err, "unpark steps")
}

// unparkSingly unparks each step in its own transaction, after doing so together has failed.
func (db *DB) unparkSingly(ctx context.Context, found unparkScan) (namespaces []string, err error) {
	failed := 0
	for i, task := range found.Tasks {
		back, fault := db.unparkSteps(ctx, []tasker.ID{task}, found.Steps[i:i+1])
		namespaces = append(namespaces, back...)
		if fault == nil {
			continue
		}
		if failed++; err == nil {
			err = fmt.Errorf("step %s of task %s: %w", found.Steps[i], task, fault)
		}
		if ctx.Err() != nil || IsUnavailable(fault) {
			break
		}
	}
	slices.Sort(namespaces)
	if failed > 1 {
		err = fmt.Errorf("%d steps, the first: %w", failed, err)
	}
	return slices.Compact(namespaces), err
}

// unparkSteps unparks steps of unlocked tasks and returns their namespaces.
func (db *DB) unparkSteps(ctx context.Context, taskOf, stepIDs []tasker.ID) (namespaces []string, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		namespaces = nil
		free, err := tx.LockFreeTasks(ctx, uniqueTasks(taskOf))
		if err != nil || len(free) == 0 {
			return err
		}
		locked := make(map[tasker.ID]bool, len(free))
		for _, id := range free {
			locked[id] = true
		}
		var tasks, steps []tasker.ID
		for i, id := range taskOf {
			if locked[id] {
				tasks, steps = append(tasks, id), append(steps, stepIDs[i])
			}
		}
		namespaces, err = collectColumn[string](ctx, tx, statement("unparkSteps"), tasks, steps, db.queue.ttlMS,
			db.queue.announce)
		if err != nil {
			return err
		}
		_, err = tx.SettleTasks(ctx, uniqueTasks(tasks), Operator{}) // restarts the staleness time
		return err
	})
	if err != nil {
		return nil, err
	}
	return namespaces, nil
}

func uniqueTasks(list []tasker.ID) (out []tasker.ID) {
	seen := make(map[tasker.ID]bool, len(list))
	for _, id := range list {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}
