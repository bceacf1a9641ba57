package postgres

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// A waitingRoom is a database in which steps wait, put there without an engine.
type waitingRoom struct {
	*testing.T
	db *DB
}

func newWaitingRoom(t *testing.T) waitingRoom {
	t.Helper()
	db := openNew(t, Options{})
	r := waitingRoom{t, db}
	r.exec(`INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '')`)
	return r
}

func (r waitingRoom) exec(sql string, args ...any) {
	r.Helper()
	if _, err := admin(r.T, r.db).Exec(r.Context(), sql, args...); err != nil {
		r.Fatal(err)
	}
}

// A bunch of steps of one queue. They began to wait one second after the other, the
// last of them since seconds before noon; each expires ttl seconds after it began.
type bunch struct {
	namespace, handler string
	steps, priority    int
	since, ttl         int
	awaiting           bool // they waited too long, and wait for a worker since
}

func (r waitingRoom) add(b bunch) {
	r.Helper()
	r.exec(`
		WITH added AS (
			INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at,
				context, correlation_id, created_at, updated_at)
			SELECT tasker.uuid_generate_v7(), template_uuid, $1, 'b', '1.0.0', 'steps_in_process', now(), now(), now(), '{}', '', now(), now()
			FROM tasker.task_templates, generate_series(1, $3)
			RETURNING task_uuid
		)
		INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids,
			child_uuids, parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter,
			expires_at, awaits_worker_since, created_at, updated_at)
		SELECT task_uuid, tasker.uuid_generate_v7(), 'a', 'standard', $1, $2, $4, CASE WHEN $7 THEN 'error' ELSE 'enqueued' END, x.at, '{}',
			'{}', 0, 1, 3, true, 'constant', 1, 1, false,
			CASE WHEN NOT $7 THEN x.at + make_interval(secs => $6) END, CASE WHEN $7 THEN x.at END, now(), now()
		FROM (SELECT task_uuid, $8::timestamptz - make_interval(secs => $5::float8 + row_number() OVER () - 1) AS at FROM added) x`,
		b.namespace, b.handler, b.steps, b.priority, b.since, b.ttl, b.awaiting, noon)
}

// work registers a worker whose last sign of life is some time ago.
func (r waitingRoom) work(namespaces, handlers []string, ago time.Duration, change string) {
	r.Helper()
	id := tasker.NewID()
	err := r.db.AddWorker(r.Context(), tasker.WorkerSpec{Name: "w", Namespaces: namespaces, Handlers: handlers, MaxConcurrency: 1},
		tasker.Registration{WorkerUUID: id, HeartbeatInterval: 10 * time.Minute, LeaseDuration: time.Hour}, 1000)
	if err != nil {
		r.Fatal(err)
	}
	r.exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - $2::interval `+change+` WHERE worker_uuid = $1`, id, ago)
}

// list spells the queues, one each line.
func (r waitingRoom) list(namespace string, limit int) []string {
	r.Helper()
	list, err := r.db.Queues(r.Context(), namespace, limit)
	if err != nil {
		r.Fatal(err)
	}
	seconds := func(at *time.Time) string {
		if at == nil {
			return "-"
		}
		return fmt.Sprintf("%+.0f", at.Sub(noon).Seconds())
	}
	lines := []string{}
	for _, q := range list {
		if q.Unserved != (q.LiveWorkers == 0 && q.Queued+q.AwaitingWorker > 0) {
			r.Errorf("%+v", q)
		}
		more := ""
		if q.QueuedIsAtLeast {
			more = "+"
		}
		held := ""
		if q.Held > 0 {
			held = fmt.Sprintf(" %d held", q.Held)
		}
		lines = append(lines, fmt.Sprintf("%s/%s %d%s %s %s %d %d%s", q.Namespace, q.Handler, q.Queued, more,
			seconds(q.OldestQueuedAt), seconds(q.NextExpiresAt), q.AwaitingWorker, q.LiveWorkers, held))
	}
	return lines
}

// Held steps are counted apart from those that wait, and a queue of which all is held is
// listed, behind the others: nobody has to serve it.
func TestHeldStepsOfQueues(t *testing.T) {
	t.Parallel()
	r := newWaitingRoom(t)
	r.add(bunch{namespace: "a", handler: "x", steps: 3, since: 10, ttl: 300})
	r.add(bunch{namespace: "b", handler: "y", steps: 1, since: 10, ttl: 300})
	r.exec(`INSERT INTO tasker.holds (hold_uuid, kind, namespace, reason, owner, ends_at) VALUES (gen_random_uuid(), 'manual', 'a', 'r', 'bo', now() + interval '1 hour')`)
	r.exec(`INSERT INTO tasker.held_steps (hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid)
		SELECT hold_uuid, x.namespace, x.handler, 0, now(), gen_random_uuid(), gen_random_uuid()
		FROM tasker.holds CROSS JOIN (VALUES ('a', 'x', 2), ('a', 'b', 4), ('c', 'z', 1)) AS x (namespace, handler, n) CROSS JOIN generate_series(1, x.n)`)
	for _, c := range []struct {
		namespace string
		want      []string
	}{
		{"", []string{"a/x 3 -12 +288 0 0 2 held", "b/y 1 -10 +290 0 0", "a/b 0 - - 0 0 4 held", "c/z 0 - - 0 0 1 held"}},
		{"a", []string{"a/x 3 -12 +288 0 0 2 held", "a/b 0 - - 0 0 4 held"}},
		{"b", []string{"b/y 1 -10 +290 0 0"}}, {"c", []string{"c/z 0 - - 0 0 1 held"}}, {"d", []string{}},
	} {
		if diff := cmp.Diff(c.want, r.list(c.namespace, 100)); diff != "" {
			t.Errorf("queues of %q (-want +got):\n%s", c.namespace, diff)
		}
	}
	list, err := r.db.Backlogs(r.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if want := map[string]int64{"a": 6, "b": 0, "c": 1}[b.Namespace]; b.Held != want {
			t.Errorf("%d steps are held in %s, want %d", b.Held, b.Namespace, want)
		}
	}
	counts, err := r.db.CountHolds(r.Context())
	if err != nil || len(counts) != 1 || counts[0] != (tasker.HoldGroup{Kind: tasker.ManualHold, State: tasker.HoldActive, Holds: 1}) {
		t.Errorf("%v, %v", counts, err)
	}
	r.exec(`DELETE FROM tasker.held_steps`)
	r.exec(`DELETE FROM tasker.holds`)
}

// Rows that no claim can take make no queue, and do not age one.
func TestOutdatedRowsAgeNoQueue(t *testing.T) {
	t.Parallel()
	r := newWaitingRoom(t)
	r.add(bunch{namespace: "a", handler: "x", steps: 3, since: 10, ttl: 300})
	r.exec(`INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at)
		SELECT x.namespace, x.handler, x.priority, $1::timestamptz - interval '1 hour', s.step_uuid, s.task_uuid, $1::timestamptz - interval '50 minutes'
		FROM (VALUES ('a', 'x', 7), ('a', 'x', -1), ('b', 'y', 0)) AS x (namespace, handler, priority)
		CROSS JOIN (SELECT step_uuid, task_uuid FROM tasker.workflow_steps LIMIT 1) s`, noon)
	want := []string{"a/x 5 -12 -3000 0 0"} // two more are counted until a claim or an expiry removes it
	if diff := cmp.Diff(want, r.list("", 100)); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	list, err := r.db.Backlogs(r.Context())
	if err != nil || len(list) != 1 || list[0].Namespace != "a" {
		t.Errorf("%+v, %v", list, err)
	}
	r.exec(`DELETE FROM tasker.ready_steps WHERE expires_at < $1::timestamptz`, noon)
}

func TestQueues(t *testing.T) {
	t.Parallel()
	r := newWaitingRoom(t)
	if got := r.list("", 100); len(got) != 0 {
		t.Errorf("nothing waits, yet %q", got)
	}
	for _, b := range []bunch{
		{namespace: "a", handler: "x", steps: 3, since: 10, ttl: 300},
		{namespace: "a", handler: "x", steps: 1, since: 50, ttl: 300, priority: -7}, // the oldest is the least urgent
		{namespace: "a", handler: "x", steps: 1, since: 5, ttl: 20, priority: -7},   // and this one expires first
		{namespace: "a", handler: "x", steps: 2, since: 900, awaiting: true},
		{namespace: "a", handler: "y", steps: 1, since: 70, ttl: 300},
		{namespace: "a", handler: "z", steps: 2, since: 60, awaiting: true},
		{namespace: "ab", handler: "x", steps: 1, since: 80, ttl: 300},
		{namespace: "b", handler: "a", steps: 1, since: 90, ttl: 300},
	} {
		r.add(b)
	}
	r.work([]string{"a"}, []string{"x", "y"}, 0, "")
	r.work([]string{"b", "a"}, []string{"x"}, 25*time.Minute, "")
	for _, not := range []struct {
		ago    time.Duration
		change string
	}{
		{35 * time.Minute, ""},                  // stale
		{time.Hour, ""},                         // gone
		{0, ", left_at = now()"},                // gone
		{0, ", draining_since = now()"},         // draining
		{time.Hour, ", draining_since = now()"}, // gone
	} {
		r.work([]string{"a", "ab", "b"}, []string{"a", "x", "y", "z"}, not.ago, not.change)
	}

	want := []string{
		"b/a 1 -90 +210 0 0", "ab/x 1 -80 +220 0 0", "a/z 0 - - 2 0", // nobody takes them
		"a/x 5 -50 +15 2 2", "a/y 1 -70 +230 0 1",
	}
	if diff := cmp.Diff(want, r.list("", 100)); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	for limit := range want {
		if diff := cmp.Diff(want[:limit+1], r.list("", limit+1)); diff != "" {
			t.Errorf("queues, %d of them (-want +got):\n%s", limit+1, diff)
		}
	}
	for _, namespace := range []string{"a", "ab", "b", "aa", "c", "A"} {
		of := slices.DeleteFunc(slices.Clone(want), func(line string) bool { return line[:len(namespace)+1] != namespace+"/" })
		if diff := cmp.Diff(of, r.list(namespace, 100)); diff != "" {
			t.Errorf("queues of %s (-want +got):\n%s", namespace, diff)
		}
	}
}

// Beyond the limit of counting, the oldest step is still the oldest.
func TestALongQueueIsNotCountedToItsEnd(t *testing.T) {
	t.Parallel()
	r := newWaitingRoom(t)
	r.add(bunch{namespace: "a", handler: "exact", steps: tasker.MaxQueueCount, ttl: 300})
	r.add(bunch{namespace: "a", handler: "long", steps: tasker.MaxQueueCount + 1, priority: 5, ttl: 300})
	r.add(bunch{namespace: "a", handler: "long", steps: 1, since: 90_000, ttl: 300})
	r.add(bunch{namespace: "a", handler: "late", steps: tasker.MaxQueueCount + 1, awaiting: true})
	want := []string{"a/long 10000+ -90000 -89700 0 0", "a/late 0 - - 10000 0", "a/exact 10000 -9999 -9699 0 0"}
	if diff := cmp.Diff(want, r.list("", 100)); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}

// What the list of queues costs grows with the queues that are shown, and with each
// of them only up to the limit of counting.
func TestQueuesReadNoMoreThanTheyCount(t *testing.T) {
	t.Parallel()
	r := newWaitingRoom(t)
	r.add(bunch{namespace: "a", handler: "x", steps: 2 * tasker.MaxQueueCount, ttl: 300})
	r.exec("VACUUM ANALYZE tasker.ready_steps")
	tx, err := r.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	read := func() (n int64) {
		t.Helper()
		if err := tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
			WHERE relid = 'tasker.ready_steps'::regclass`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := read()
	if list, err := collect[tasker.Queue](t.Context(), tx, statement("selectQueues"), "", 100, tasker.MaxQueueCount, nil); err != nil || len(list) != 1 {
		t.Fatalf("queues %+v, %v", list, err)
	}
	if n := read() - before; n < tasker.MaxQueueCount || n > tasker.MaxQueueCount+100 {
		t.Errorf("%d rows were read of %d that wait", n, 2*tasker.MaxQueueCount)
	}
}

func TestBacklogs(t *testing.T) {
	t.Parallel()
	r := newWaitingRoom(t)
	for _, b := range []bunch{
		{namespace: "served", handler: "x", steps: 30, ttl: 300},
		{namespace: "partly", handler: "x", steps: 3, ttl: 300},
		{namespace: "partly", handler: "z", steps: 2, since: 3600, ttl: 7200},
		{namespace: "partly", handler: "x", steps: 4, since: 9000, awaiting: true}, // on their way back
		{namespace: "lonely", handler: "x", steps: 1, ttl: 300},
		{namespace: "lonely", handler: "x", steps: 7, awaiting: true},
		{namespace: "long", handler: "x", steps: 1500, ttl: 300},
	} {
		r.add(b)
	}
	r.work([]string{"served", "partly", "idle", "long"}, []string{"x"}, 0, "")
	r.work([]string{"served"}, []string{"y"}, 25*time.Minute, "")
	r.work([]string{"lonely"}, []string{"x"}, 35*time.Minute, "")
	r.work([]string{"lonely"}, []string{"x"}, 0, ", left_at = now()")
	r.work([]string{"lonely"}, []string{"x"}, 0, ", draining_since = now()")
	got, err := r.db.Backlogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []tasker.Backlog{
		{Namespace: "lonely", Steps: 1, Unserved: 8}, {Namespace: "partly", Steps: 5, Unserved: 2, Workers: 1},
		{Namespace: "long", Steps: 1000, Workers: 1}, {Namespace: "served", Steps: 30, Workers: 2}, {Namespace: "idle", Workers: 1},
	}
	// What waits for a worker to live is not enqueued: it waits in an investigation.
	oldest := map[string]time.Duration{"lonely": 0, "partly": 3601 * time.Second, "long": 1499 * time.Second, "served": 29 * time.Second}
	for i, b := range got {
		ago, waits := oldest[b.Namespace]
		if late := b.Oldest - time.Since(noon) - ago; waits && late.Abs() > time.Minute || !waits && b.Oldest != 0 {
			t.Errorf("the oldest step of %s waits for %s, want %s since noon", b.Namespace, b.Oldest, ago)
		}
		got[i].Oldest = 0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	r := newWaitingRoom(t)
	pending, oldest, err := r.db.Outbox(t.Context(), 10)
	if pending != 0 || oldest != 0 || err != nil {
		t.Errorf("%d since %s, %v", pending, oldest, err)
	}
	r.exec(`INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace, created_at)
		SELECT tasker.uuid_generate_v7(), tasker.uuid_generate_v7(), 'a', now() - make_interval(secs => 3600 - i) FROM generate_series(0, 11) i`)
	for limit, want := range map[int]int64{10: 10, 100: 12} {
		pending, oldest, err = r.db.Outbox(t.Context(), limit)
		if pending != want || oldest < time.Hour || oldest > 2*time.Hour || err != nil {
			t.Errorf("%d since %s, %v", pending, oldest, err)
		}
	}
}

func TestCanaryReturnedAt(t *testing.T) {
	t.Parallel()
	r := newWaitingRoom(t)
	if at, err := r.db.FindCanaryReturn(t.Context()); !at.IsZero() || err != nil {
		t.Errorf("%s, %v", at, err)
	}
	r.exec(`UPDATE tasker.dispatch_canary SET returned_at = $1`, noon)
	if at, err := r.db.FindCanaryReturn(t.Context()); !at.Equal(noon) || err != nil {
		t.Errorf("%s, %v", at, err)
	}
}
