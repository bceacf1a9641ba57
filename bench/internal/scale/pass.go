package scale

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/postgres"
)

// passRuns is the number of runs of the complete sweep, each of which is taken back.
const passRuns = 5

// takeBack undoes a committed sweep: it restores the tasks and deletes the new rows. It requires a
// superuser, because triggers protect the history.
var takeBack = []string{
	`BEGIN`,
	`SET LOCAL session_replication_role = replica`,
	`DELETE FROM tasker.outbox o USING overdue v WHERE o.task_uuid = v.task_uuid`,
	`DELETE FROM tasker.tasks_dlq_history h USING tasker.tasks_dlq d, overdue v WHERE h.dlq_entry_uuid = d.dlq_entry_uuid AND d.task_uuid = v.task_uuid`,
	`DELETE FROM tasker.tasks_dlq d USING overdue v WHERE d.task_uuid = v.task_uuid`,
	`DELETE FROM tasker.task_history h USING overdue v WHERE h.task_uuid = v.task_uuid AND h.event = 'declare_stale'`,
	`UPDATE tasker.tasks t
	SET state = 'steps_in_process', attend_by = NULL, state_since = m.since, warn_at = m.since + 0.8 * m.threshold, stale_at = m.since + m.threshold
	FROM (
		SELECT v.task_uuid, h.threshold, now() - h.threshold - interval '1 minute' - v.nth * interval '1 second' AS since
		FROM overdue v
		JOIN tasker.tasks USING (task_uuid)
		JOIN tasker.task_templates tt USING (template_uuid)
		CROSS JOIN tasker.staleness_thresholds st
		CROSS JOIN LATERAL (SELECT tasker.staleness_threshold('steps_in_process', tt, st) AS threshold) h
	) m
	WHERE t.task_uuid = m.task_uuid`,
	`COMMIT`,
}

// pass measures the complete sweep as the server runs it: concurrent batches with separate
// transactions.
func (s *scale) pass(ctx context.Context) error {
	db, err := postgres.Open(ctx, s.DatabaseURL, postgres.Options{StatementTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer db.Close()
	service := dlq.New(db, dlq.Options{BatchSize: batchSize})
	var took []time.Duration
	for i := range passRuns + 1 {
		start := time.Now()
		n, err := service.SweepAll(ctx)
		if err := filled(n, s.Due, err); err != nil {
			return err
		}
		if i > 0 { // the first run plans the statements
			took = append(took, time.Since(start))
		}
		if err := s.exec(ctx, takeBack...); err != nil {
			return fmt.Errorf("take the sweep back: %w", err)
		}
		if err := s.vacuum(ctx); err != nil {
			return err
		}
	}
	s.point(sweepPass, took, 0)
	return nil
}
