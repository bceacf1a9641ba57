package schema_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A check of several columns says yes where one of them is null unless it asks for that, so
// each thing that a step must have or not have is taken away or given once.
func TestAStepHasWhatItsStateAndItsTypeNeed(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(`BEGIN; ` + oneTask + enqueuedStep)
	const (
		ofState = "step_has_all_of_its_state"
		ofType  = "step_has_all_of_its_type"
		item    = `map_step_uuid = task_uuid, item_ordinal = 0, item = '1'`
	)
	for set, refusedBy := range map[string]string{
		`state = 'pending', expires_at = NULL`: "",
		`state = 'asleep', expires_at = NULL`:  ofState,
		`state = 'pending'`:                    ofState,
		`expires_at = NULL`:                    ofState,
		`lease_expires_at = now()`:             ofState,
		`state = 'in_progress', expires_at = NULL, lease_expires_at = now()`:                     "",
		`state = 'in_progress', expires_at = NULL`:                                               ofState,
		`state = 'in_progress', lease_expires_at = now()`:                                        ofState,
		`state = 'enqueued_for_orchestration', expires_at = NULL, kept_report = '{}'`:            "",
		`state = 'enqueued_for_orchestration', expires_at = NULL`:                                ofState,
		`state = 'complete', expires_at = NULL`:                                                  "",
		`state = 'complete', expires_at = NULL, kept_report = '{}'`:                              ofState,
		`state = 'complete', expires_at = NULL, lease_expires_at = now()`:                        ofState,
		`state = 'complete', expires_at = NULL, next_retry_at = now()`:                           ofState,
		`state = 'complete', expires_at = NULL, awaits_worker_since = now()`:                     ofState,
		`state = 'error', expires_at = NULL`:                                                     "",
		`state = 'error', expires_at = NULL, next_retry_at = now()`:                              "",
		`state = 'error', expires_at = NULL, awaits_worker_since = now()`:                        "",
		`state = 'error', expires_at = NULL, next_retry_at = now(), awaits_worker_since = now()`: ofState,
		`state = 'skipped', expires_at = NULL, skip_reason = 'condition'`:                        "",
		`state = 'skipped', expires_at = NULL`:                                                   ofState,
		`join_rule = 'all'`:                                                                      ofState,
		`join_rule = 'all', decided_at = now()`:                                                  "",
		`step_type = 'loop'`:                                                                     ofType,
		`backoff = 'random'`:                                                                     ofType,
		`queue_ttl_ms = 0`:                                                                       ofType,
		`queue_ttl_ms = 1`:                                                                       "",
		`step_type = 'child', decided_at = now()`:                                                ofType,
		`step_type = 'child', decided_at = now(), child_task_uuid = task_uuid`:                   "",
		`parents_open = -1`:                                                                      ofType,
		`parents_open = 1`:                                                                       ofType,
		`parents_open = 1, parent_uuids = ARRAY[task_uuid]`:                                      "",
		`parents_open = 2, parent_uuids = ARRAY[task_uuid], items_total = 1`:                     ofType,
		`parents_open = 2, items_total = 2`:                                                      "",
		`parents_open = 1, ` + item:                                                              "",
		`parents_open = 2, ` + item:                                                              ofType,
		item:                                                                                     "",
		`map_step_uuid = task_uuid`:                                                              ofType,
		`map_step_uuid = task_uuid, item = '1'`:                                                  ofType,
		`map_step_uuid = task_uuid, item_ordinal = 0`:                                            ofType,
		`item = '1'`:       ofType,
		`item_ordinal = 0`: ofType,
		`map_step_uuid = task_uuid, item_ordinal = -1, item = '1'`: ofType,
	} {
		p.exec(`SAVEPOINT before`)
		_, err := p.conn.Exec(p.Context(), `UPDATE tasker.workflow_steps SET `+set)
		p.exec(`ROLLBACK TO before`)
		var refusal *pgconn.PgError
		switch errors.As(err, &refusal); {
		case refusedBy == "" && err != nil:
			t.Errorf("%s: %v", set, err)
		case refusedBy != "" && (refusal == nil || refusal.ConstraintName != refusedBy):
			t.Errorf("%s: got %v, want a refusal by %s", set, err, refusedBy)
		}
	}
}
