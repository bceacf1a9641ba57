package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// When nobody could be heard for a while, because the database took no writes or the
// server stood still, workers get the time of a lease before theirs count as run
// out. That time ends, and a short hiccup gives none.
func TestLeasesGetTheTimeToBeRenewedAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		outage func(h *house, pass func() error, wait func(time.Duration))
		grace  bool
	}{
		{"none", func(*house, func() error, func(time.Duration)) {}, false},
		{"a hiccup", func(_ *house, _ func() error, wait func(time.Duration)) { wait(9 * time.Second) }, false},
		{"the server stood still", func(_ *house, _ func() error, wait func(time.Duration)) { wait(time.Minute) }, true},
		{"the database was read-only", func(h *house, pass func() error, wait func(time.Duration)) {
			var name string
			h.must(h.pool.QueryRow(h.Context(), `SELECT quote_ident(current_database())`).Scan(&name))
			h.exec(`ALTER DATABASE ` + name + ` SET default_transaction_read_only = on`)
			h.db.Reset()
			for range 30 {
				if err := pass(); tasker.CodeOf(err) != tasker.Unavailable {
					h.Fatalf("the pass failed with %v, want UNAVAILABLE", err)
				}
				wait(2 * time.Second)
			}
			h.exec(`SET default_transaction_read_only = off`)
			h.exec(`ALTER DATABASE ` + name + ` RESET default_transaction_read_only`)
			h.db.Reset()
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			d.CheckAtEnd(t)
			db, err := postgres.Open(t.Context(), d.URL, postgres.Options{MaxConns: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(db.Close)
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			h := &house{T: t, db: db, pool: d.Pool(t)}
			h.engine = engine.New(db, engine.Options{Now: func() time.Time { return now }})
			h.worker = h.register("run")
			h.template("single", step("one"))
			task := h.create("single")
			h.claimOne("one")
			h.exec(`UPDATE tasker.workflow_steps SET lease_expires_at = clock_timestamp() - interval '1 minute'`)
			i := slices.IndexFunc(h.engine.Loops(), func(l *loop.Loop) bool { return l.Name == "reclaim leases" })
			reclaim := h.engine.Loops()[i].Pass
			pass := func() error { _, err := reclaim(context.WithoutCancel(t.Context())); return err }
			tt.outage(h, pass, func(d time.Duration) { now = now.Add(d) })

			want := []tasker.StepState{tasker.StepError, tasker.StepError}
			if tt.grace {
				want[0] = tasker.StepInProgress
			}
			h.must(pass())
			h.wantStep(task, "one", want[0], 1)
			if tt.grace {
				now = now.Add(engine.DefaultLease - time.Second)
				h.must(pass())
				h.wantStep(task, "one", want[0], 1)
			}
			now = now.Add(40 * time.Second) // by slow passes: a grace ends all the same
			h.must(pass())
			h.wantStep(task, "one", want[1], 1)
		})
	}
}
