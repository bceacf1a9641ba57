package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The delay doubles from a second to an hour, an error of any length is kept cut,
// and steps are counted apart from their task.
func TestDeferredWorkBacksOff(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	const task, step = "00000000-0000-7000-8000-00000000000a", "00000000-0000-7000-8000-00000000000b"
	for range 15 {
		p.exec(`SELECT tasker.defer_work('sweep', '` + task + `', NULL, repeat('x', 5000))`)
	}
	for range 3 {
		p.exec(`SELECT tasker.defer_work('retries', '` + task + `', '` + step + `', NULL)`)
	}
	got := p.texts(`
		SELECT format('%s %s %s %s %s', kind, right(step_uuid::text, 1), failures, length(last_error), retry_at - last_failed_at)
		FROM tasker.deferred_work ORDER BY kind`)
	if diff := cmp.Diff([]string{"retries b 3 0 00:00:04", "sweep 0 15 1000 01:00:00"}, got); diff != "" {
		t.Error(diff)
	}
}

// A row that nobody tries again is removed, so that the table does not grow for ever.
func TestDeferredWorkThatIsOverIsRemoved(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(`
		INSERT INTO tasker.deferred_work (kind, task_uuid, last_error, retry_at)
		SELECT 'sweep', tasker.uuid_generate_v7(), 'old', now() - interval '25 hours' FROM generate_series(1, 150);
		INSERT INTO tasker.deferred_work (kind, task_uuid, last_error, retry_at)
		SELECT 'sweep', tasker.uuid_generate_v7(), 'recent', now() - interval '23 hours'`)
	for range 2 {
		p.exec(`SELECT tasker.defer_work('sweep', '00000000-0000-7000-8000-00000000000a', NULL, 'new')`)
	}
	got := p.texts(`SELECT format('%s %s', last_error, failures) FROM tasker.deferred_work ORDER BY 1`)
	if diff := cmp.Diff([]string{"new 2", "recent 1"}, got); diff != "" {
		t.Error(diff)
	}
}
