package postgres

import (
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

// Whoever looks for schedules that are due, or decides about one, reads what is due, not all
// schedules or firings, however many there are.
func TestSchedulesAreFoundByIndex(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for _, sql := range []string{
		`INSERT INTO tasker.schedules (schedule_uuid, namespace, name, template_name, every_s, overlap, catch_up, start_within_s, anchor, next_at, fire_at, created_by)
			SELECT ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 'a', 'schedule-' || i, 'a', 3600, 'skip', 'last', 60, now(),
				now() + i * interval '1 minute', now() + i * interval '1 minute', 'ann'
			FROM generate_series(1, 10000) i`,
		`INSERT INTO tasker.schedule_firings (schedule_uuid, nominal_at, nominal_until, kind, outcome, reason, actor)
			SELECT h.schedule_uuid, now() - i * interval '1 hour', now() - i * interval '1 hour', 'clock', 'skipped', 'x', 'tasker'
			FROM tasker.schedules h, generate_series(1, 20) i`,
		`INSERT INTO tasker.schedule_signals (task_uuid, schedule_uuid, created_at) SELECT gen_random_uuid(), gen_random_uuid(), now() + interval '1 hour' FROM generate_series(1, 5000)`,
		`UPDATE tasker.schedules SET fire_at = now(), next_at = now() WHERE name IN ('schedule-1', 'schedule-2')`,
		`ANALYZE`,
	} {
		execute(t, db, sql)
	}
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	one := []tasker.ID{{6: 0x70, 8: 0x80, 15: 1}}
	for name, tt := range map[string]struct {
		sql  string
		args []any
		most int // pages
	}{
		"to fire":   {statement("schedulesToFire"), []any{500}, 60},
		"standings": {statement("scheduleProgress"), []any{one}, 60},
		"to cancel": {statement("scheduledToCancel"), []any{one[0], 100}, 60},
		"ended":     {statement("scheduledTasksEnded"), []any{500}, 60},
		"firings":   {statement("selectFirings"), []any{one[0], "", nil, "", 50}, 120},
		"list":      {statement("selectSchedules"), []any{"", "", nil, nil, 50, false}, 3000},
		"prune":     {statement("pruneFirings"), []any{720 * time.Hour, 100}, 200},
	} {
		n, plan := pages(t.Context(), t, conn.Conn(), tt.sql, tt.args...)
		if n > tt.most || strings.Contains(plan, "Seq Scan on schedules") || strings.Contains(plan, "Seq Scan on schedule_firings") {
			t.Errorf("%s reads %d pages:\n%s", name, n, plan)
		}
	}
}
