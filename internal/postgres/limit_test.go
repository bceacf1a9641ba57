package postgres

import (
	"testing"
	"time"
)

// Used keys do not prevent later ones from being pruned, and each pass is bounded.
func TestUnusedKeysBehindThoseInUseAreRemoved(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	execute(t, db, `INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by) VALUES ('name', 'a', 'x', 1, true, 'x')`)
	execute(t, db, `INSERT INTO tasker.limit_keys (limit_id, key, used_at) SELECT limit_id, n::text, now() - CASE WHEN n = 5 THEN interval '2 hours' ELSE '0' END FROM tasker.limits, generate_series(1, 6) n`)
	passes := 0
	for after := int64(0); passes == 0 || after > 0; passes++ {
		last, err := db.PruneLimitKeys(t.Context(), time.Hour, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		after = last
	}
	keys, err := collectColumn[string](t.Context(), db.pool, `SELECT key FROM tasker.limit_keys ORDER BY key`)
	if err != nil || len(keys) != 5 || keys[4] != "6" || passes != 4 {
		t.Errorf("after %d passes there are keys %q, %v; want 4 passes and all but key 5", passes, keys, err)
	}
}
