package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tasker.example/tasker"
)

// templateOf returns a template with one step per handler.
func templateOf(namespace, name, version string, handlers ...string) tasker.Template {
	t := tasker.Template{Namespace: namespace, Name: name, Version: version}
	for i, h := range handlers {
		t.Steps = append(t.Steps, tasker.StepTemplate{Name: fmt.Sprint("s", i), Handler: tasker.Handler{Callable: h}})
	}
	return t
}

func put(ctx context.Context, db *DB, t tasker.Template, most tasker.Bounds) error {
	_, _, err := db.PutTemplate(ctx, t, "", fmt.Sprint(t.Version, t.Steps), most)
	return err
}

// New objects beyond a bound are rejected, also concurrent ones. Existing ones are accepted even if
// a bound was lowered below their number.
func TestTemplatesAreBounded(t *testing.T) {
	t.Parallel()
	most := tasker.Bounds{Namespaces: 3, Templates: 3, Versions: 3, Handlers: 3}
	for key, of := range map[string]func(i int) tasker.Template{
		"limits.namespaces":        func(i int) tasker.Template { return templateOf(fmt.Sprint("n", i), "a", "1.0.0", "h") },
		"limits.templates":         func(i int) tasker.Template { return templateOf("n", fmt.Sprint("a", i), "1.0.0", "h") },
		"limits.template_versions": func(i int) tasker.Template { return templateOf("n", "a", fmt.Sprintf("1.0.%d", i), "h") },
		"limits.handlers": func(i int) tasker.Template {
			return templateOf("n", fmt.Sprint("a", i%3), fmt.Sprintf("1.0.%d", i/3), fmt.Sprint("h", i))
		},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{})
			var stored, refused atomic.Int32
			var all sync.WaitGroup
			for i := range 9 {
				all.Go(func() {
					switch err := put(t.Context(), db, of(i), most); {
					case err == nil:
						stored.Add(1)
					case tasker.CodeOf(err) == tasker.Conflict && strings.Contains(err.Error(), key+" = 3)"):
						refused.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			all.Wait()
			if stored.Load() != 3 || refused.Load() != 6 {
				t.Errorf("%d of 9 are stored and %d refused, want 3 and 6", stored.Load(), refused.Load())
			}
			for i := range 9 { // the existing ones again, with lower bounds
				if err := put(t.Context(), db, of(i), tasker.Bounds{Namespaces: 1, Templates: 1, Versions: 1, Handlers: 1}); err != nil {
					refused.Add(1)
				}
			}
			if refused.Load() != 12 {
				t.Errorf("with lower bounds %d of those that are there are refused", refused.Load()-12)
			}
		})
	}
}

// An unused version may be replaced repeatedly: handlers that it no longer uses do not count.
func TestHandlersThatNoTemplateNamesAreForgotten(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for i := range 10 {
		if err := put(t.Context(), db, templateOf("n", "a", "1.0.0", fmt.Sprintf(`it's "%d"`, i), "h"), tasker.Bounds{Handlers: 3}); err != nil {
			t.Fatal(err)
		}
	}
}

func registered(ctx context.Context, db *DB, most int, namespaces ...string) error {
	return db.AddWorker(ctx, tasker.WorkerSpec{Name: "w", Namespaces: namespaces, Handlers: []string{"h"}, MaxConcurrency: 1},
		tasker.Registration{WorkerUUID: tasker.NewID(), HeartbeatInterval: 10 * time.Second, LeaseDuration: 30 * time.Second}, most)
}

// The number of live workers of a namespace is bounded, without effect on other namespaces. A
// worker that has left or sent no heartbeat for a lease does not count.
func TestWorkersAreBounded(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for range 3 {
		if err := registered(t.Context(), db, 3, "a", "b"); err != nil {
			t.Fatal(err)
		}
	}
	if err := registered(t.Context(), db, 3, "b", "c"); tasker.CodeOf(err) != tasker.Unavailable || !strings.Contains(err.Error(), `namespace "b"`) {
		t.Errorf("a fourth worker: %v", err)
	}
	if err := registered(t.Context(), db, 3, "c"); err != nil {
		t.Errorf("in another namespace: %v", err)
	}
	execute(t, db, `UPDATE tasker.workers SET left_at = now() WHERE worker_uuid = (SELECT worker_uuid FROM tasker.workers WHERE 'b' = ANY (namespaces) LIMIT 1)`)
	if err := registered(t.Context(), db, 3, "b"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	execute(t, db, `UPDATE tasker.workers SET last_heartbeat_at = now() - interval '31 s'`)
	if err := registered(t.Context(), db, 3, "b"); err != nil {
		t.Errorf("after all were silent: %v", err)
	}
}

// Repeated registrations leave a bounded number of rows, the newest.
func TestRowsOfWorkersAreBounded(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	execute(t, db, `
		INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, max_concurrency, heartbeat_interval, lease, last_heartbeat_at)
		SELECT gen_random_uuid(), 'w', '{a}', '{h}', 1, '10 s', '30 s', now() - make_interval(secs => n + 60) FROM generate_series(1, $1::int) n`, tasker.MaxWorkerRows+5)
	for range 3 {
		if err := registered(t.Context(), db, 1000, "a"); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := queryValue[int](t.Context(), db.pool, `SELECT count(*) FROM tasker.workers`)
	if err != nil || rows != tasker.MaxWorkerRows {
		t.Errorf("%d rows, %v, want %d", rows, err, tasker.MaxWorkerRows)
	}
	alive, err := queryValue[int](t.Context(), db.pool, `SELECT count(*) FROM tasker.workers w WHERE w.left_at IS NULL AND w.last_heartbeat_at + w.lease > clock_timestamp()`)
	if err != nil || alive != 3 {
		t.Errorf("%d are alive, %v, want 3", alive, err)
	}
	// The total of all namespaces is bounded as well.
	execute(t, db, `UPDATE tasker.workers SET last_heartbeat_at = now(), namespaces = ARRAY['n' || (random() * 1000)::int]`)
	if err := registered(t.Context(), db, 1000, "empty"); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("one more than all: %v", err)
	}
}

// The sessions of a subject are bounded: a new one replaces the oldest, but none of other subjects.
func TestSessionsOfASubjectAreBounded(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	add := func(subject string, i int) {
		s := NewSession{UUID: tasker.NewID(), Digest: sha256.Sum256([]byte(fmt.Sprint(subject, i))), Subject: subject, Life: time.Hour}
		if err := db.AddSession(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	add("user:ann", 0)
	for i := range tasker.MaxSessions + 3 {
		add("user:bob", i)
	}
	if err := db.EndSession(t.Context(), sha256.Sum256([]byte("user:bob100"))); err != nil {
		t.Fatal(err)
	}
	add("user:bob", 1000) // replaces the ended one
	for subject, want := range map[string]int{"user:ann": 1, "user:bob": tasker.MaxSessions} {
		for _, condition := range []string{"true", "ended_at IS NULL"} {
			got, err := queryValue[int](t.Context(), db.pool, `SELECT count(*) FROM tasker.sessions WHERE subject = $1 AND `+condition, subject)
			if err != nil || got != want {
				t.Errorf("%s has %d sessions of which %s, %v, want %d", subject, got, condition, err, want)
			}
		}
	}
	oldest := sha256.Sum256([]byte("user:bob3"))
	if found, err := db.Sessions(t.Context(), [][]byte{oldest[:]}, time.Hour); err != nil || len(found) != 1 {
		t.Errorf("the oldest session within the limit: %v, %v", found, err)
	}
}

// Abandoned sign-ins do not prevent new ones, which replace the oldest.
func TestSignInsOfStrangersAreBounded(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	execute(t, db, `
		INSERT INTO tasker.sign_ins (digest, state, nonce, verifier, back, created_at)
		SELECT sha256(n::text::bytea), '', '', '', '', now() - make_interval(secs => n / 100) FROM generate_series(1, $1::int) n`, tasker.MaxSignIns)
	ann := sha256.Sum256([]byte("ann"))
	if err := db.AddSignIn(t.Context(), SignIn{Digest: ann}); err != nil {
		t.Fatal(err)
	}
	n, err := queryValue[int](t.Context(), db.pool, `SELECT count(*) FROM tasker.sign_ins`)
	if err != nil || n != tasker.MaxSignIns {
		t.Errorf("%d sign-ins, %v, want %d", n, err, tasker.MaxSignIns)
	}
	if got, err := db.TakeSignIn(t.Context(), ann); err != nil || got == nil {
		t.Errorf("the last one is %v, %v", got, err)
	}
}

// Repeated late reports of a step are recorded a bounded number of times.
func TestRejectedReportsOfAStepAreBounded(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	task, worker, steps := tasker.NewID(), tasker.NewID(), []tasker.ID{tasker.NewID(), tasker.NewID()}
	report := func(step tasker.ID) RejectedReport {
		return RejectedReport{Lease: tasker.Lease{TaskUUID: task, StepUUID: step}, Step: StepLease{State: "complete"}, WorkerUUID: worker, Message: "late"}
	}
	for range tasker.MaxRejectedReports + 5 {
		if err := db.RecordRejected(t.Context(), []RejectedReport{report(steps[0])}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.RecordRejected(t.Context(), []RejectedReport{report(steps[0]), report(steps[1])}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{tasker.MaxRejectedReports, 1} {
		got, err := queryValue[int](t.Context(), db.pool, `SELECT count(*) FROM tasker.rejected_reports WHERE step_uuid = $1`, steps[i])
		if err != nil || got != want {
			t.Errorf("step %d has %d, %v, want %d", i, got, err, want)
		}
	}
}
