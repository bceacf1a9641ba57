package postgres

import (
	"context"

	"tasker.example/tasker"
)

// parkHeldSteps parks the steps $1, $2 that a hold covers. It locks the holds, so that they cannot
// end before the parked steps can be released.
var parkHeldSteps = `
WITH hold AS MATERIALIZED (
    SELECT * FROM tasker.holds h
    WHERE h.blocks AND h.namespace IN (
        SELECT s.namespace FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
        JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    )
    ORDER BY h.hold_uuid FOR SHARE
),
due AS MATERIALIZED (
    SELECT q.ready_row, (
        SELECT h.hold_uuid FROM hold h WHERE h.hold_uuid IS DISTINCT FROM q.released_by AND ` + inScope("q") + ` ORDER BY h.hold_uuid LIMIT 1
    ) AS hold_uuid
    FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row, r.namespace, r.handler, r.task_uuid, r.step_uuid, r.released_by FROM tasker.ready_steps r
        WHERE ` + readyKey + ` AND r.task_uuid = s.task_uuid
        FOR UPDATE SKIP LOCKED
    ) q
    WHERE (SELECT count(*) FROM hold) > 0 AND EXISTS (SELECT FROM hold h WHERE h.hold_uuid IS DISTINCT FROM q.released_by AND ` + inScope("q") + `)
),` + parkSteps + `SELECT task_uuid, step_uuid FROM gone`

// ParkHeldSteps parks the enqueued steps that a hold covers, and returns them.
func (db *DB) ParkHeldSteps(ctx context.Context, steps []tasker.StepRef) ([]tasker.StepRef, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	tasks, ids := refArrays(steps)
	held, err := collect[tasker.StepRef](ctx, db.pool, parkHeldSteps, tasks, ids)
	return held, wrap(err, "park held steps")
}

// Probing reports whether a probe of the hold has no outcome yet.
func (tx *Tx) Probing(ctx context.Context, hold tasker.ID) (bool, error) {
	v, err := value[bool](ctx, tx, `
		SELECT EXISTS (SELECT FROM tasker.hold_releases r WHERE r.hold_uuid = $1 AND r.outcome IS NULL AND r.wave = 0)`, hold)
	return v, wrap(err, "find a probe of hold %s", hold)
}
