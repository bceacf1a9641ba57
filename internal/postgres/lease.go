package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// A LeaseKey signs the tokens of leases.
type LeaseKey struct {
	Secret   []byte
	UsedFrom time.Time     // leases claimed from then on have signed tokens, by the database's clock
	In       time.Duration // from now until UsedFrom; negative when it has passed
}

// How long servers and workers of earlier versions, which do not know signed
// tokens, may take part after the first server that does has started.
const unsignedFor = 24 * time.Hour

// LeaseKey returns the key that all servers of the database share.
func (db *DB) LeaseKey(ctx context.Context) (LeaseKey, error) {
	var k LeaseKey
	err := retry(ctx, func() error {
		var from *time.Time
		var now time.Time
		const read = `SELECT secret, used_from, clock_timestamp() FROM tasker.lease_key WHERE only_row`
		if err := db.pool.QueryRow(ctx, read).Scan(&k.Secret, &from, &now); err != nil {
			return err
		}
		if from == nil {
			const begin = `
				UPDATE tasker.lease_key SET used_from = coalesce(used_from, clock_timestamp() + $1::interval)
				WHERE only_row RETURNING used_from`
			if err := db.pool.QueryRow(ctx, begin, unsignedFor).Scan(&from); err != nil {
				return err
			}
		}
		k.UsedFrom, k.In = *from, from.Sub(now)
		return nil
	})
	if err != nil {
		return LeaseKey{}, fmt.Errorf("read the key of lease tokens: %w", err)
	}
	return k, nil
}

// ClaimedBefore returns those of the leases whose claim was made before an instant,
// by the step. A lease that has ended counts as long as no later claim was made.
func (db *DB) ClaimedBefore(ctx context.Context, at time.Time, leases []tasker.Lease) (map[tasker.ID]bool, error) {
	tasks, steps, fences := leaseArrays(leases)
	list, err := column[tasker.ID](ctx, db.pool, `
		SELECT s.step_uuid
		FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS l (task_uuid, step_uuid, fence)
		JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid
		WHERE l.fence IN (s.fence, s.reported_fence) AND s.last_attempted_at < $4`, tasks, steps, fences, at)
	if err != nil {
		return nil, fmt.Errorf("read when leases were claimed: %w", err)
	}
	before := make(map[tasker.ID]bool, len(list))
	for _, step := range list {
		before[step] = true
	}
	return before, nil
}
