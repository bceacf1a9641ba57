package postgres

import (
	"context"

	"tasker.example/tasker"
)

// SetBasePriorities stores the base priority of each reason, in minutes of age, and reports whether
// any changed. Only investigations opened or raised afterwards use the new values.
func (db *DB) SetBasePriorities(ctx context.Context, of map[tasker.Reason]int) (changed bool, err error) {
	reasons, minutes := make([]string, 0, len(of)), make([]int, 0, len(of))
	for reason, m := range of {
		reasons, minutes = append(reasons, string(reason)), append(minutes, m)
	}
	tag, err := db.pool.Exec(ctx, `
		UPDATE tasker.dlq_base_priorities b
		SET minutes = n.minutes, updated_at = clock_timestamp()
		FROM (
			SELECT p.dlq_reason, c.minutes
			FROM unnest($1::text[], $2::integer[]) AS c (reason, minutes)
			JOIN tasker.dlq_base_priorities p ON p.dlq_reason::text = c.reason
			WHERE p.minutes <> c.minutes
			ORDER BY p.dlq_reason
			FOR NO KEY UPDATE OF p
		) n
		WHERE b.dlq_reason = n.dlq_reason`, reasons, minutes)
	return tag.RowsAffected() > 0, wrap(err, "set base priorities")
}
