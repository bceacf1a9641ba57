package schema_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// People and programs read these tables and views by name: the columns of the
// specification are there, with their types. More may follow.
func TestTheColumnsAreThoseOfTheSpecification(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	for table, want := range map[string][]string{
		"tasks_dlq": {
			"dlq_entry_uuid uuid NOT NULL", "task_uuid uuid NOT NULL", "original_state character varying(50) NOT NULL",
			"dlq_reason dlq_reason NOT NULL", "dlq_timestamp timestamp with time zone NOT NULL", "task_snapshot jsonb NOT NULL",
			"resolution_status dlq_resolution_status NOT NULL", "resolution_notes text", "resolved_at timestamp with time zone",
			"resolved_by character varying(255)", "metadata jsonb", "created_at timestamp with time zone NOT NULL", "updated_at timestamp with time zone NOT NULL",
		},
		"v_dlq_dashboard": {
			"dlq_reason dlq_reason", "total_entries bigint", "pending bigint", "manually_resolved bigint", "permanent_failures bigint",
			"cancelled bigint", "oldest_entry timestamp with time zone", "newest_entry timestamp with time zone", "avg_resolution_time_minutes numeric",
		},
		"v_dlq_investigation_queue": {
			"dlq_entry_uuid uuid", "task_uuid uuid", "namespace_name text", "task_name text", "current_state text",
			"dlq_reason dlq_reason", "minutes_in_dlq numeric", "priority_score numeric",
		},
		"v_task_staleness_monitoring": {
			"task_uuid uuid", "namespace_name text", "task_name text", "current_state text", "time_in_state_minutes numeric",
			"staleness_threshold_minutes numeric", "health_status text", "priority integer",
		},
		"v_task_state_analysis": {
			"task_uuid uuid", "namespace_name text", "task_name text", "current_state text", "time_in_state_minutes numeric", "priority integer",
		},
	} {
		got := p.texts(`
			SELECT attname || ' ' || format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
			FROM pg_attribute
			WHERE attrelid = ('tasker.' || $1)::regclass AND attnum > 0 AND NOT attisdropped
			ORDER BY attnum`, table)
		kept := slices.DeleteFunc(slices.Clone(got), func(c string) bool { return !slices.Contains(want, c) })
		slices.Sort(kept)
		slices.Sort(want)
		if diff := cmp.Diff(want, kept); diff != "" {
			t.Errorf("%s has the columns %q: %s", table, got, diff)
		}
	}
}
