package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

func TestLeasesAreExtendedAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		outage func(h *harness, pass func() error, wait func(time.Duration))
		grace  bool
	}{
		{"none", func(*harness, func() error, func(time.Duration)) {}, false},
		{"a hiccup", func(_ *harness, _ func() error, wait func(time.Duration)) { wait(9 * time.Second) }, false},
		{"the server stood still", func(_ *harness, _ func() error, wait func(time.Duration)) { wait(time.Minute) }, true},
		{"the database was read-only", func(h *harness, pass func() error, wait func(time.Duration)) {
			var name string
			h.Must(h.Admin().QueryRow(h.Context(), `SELECT quote_ident(current_database())`).Scan(&name))
			h.Exec(`ALTER DATABASE ` + name + ` SET default_transaction_read_only = on`)
			h.DB.Reset()
			for range 30 {
				if err := pass(); tasker.CodeOf(err) != tasker.Unavailable {
					h.Fatalf("the pass failed with %v, want UNAVAILABLE", err)
				}
				wait(2 * time.Second)
			}
			h.Exec(`SET default_transaction_read_only = off`)
			h.Exec(`ALTER DATABASE ` + name + ` RESET default_transaction_read_only`)
			h.DB.Reset()
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			d.CheckAtEnd(t)
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			h := &harness{enginetest.At(t, d.URL, postgres.Options{MaxConns: 1})}
			h.Engine = newEngine(h.DB, engine.Options{Now: func() time.Time { return now }})
			h.Worker = h.RegisterWorker("run")
			h.Template("single", enginetest.Step("one"))
			task := h.Create("single")
			h.ClaimOne("one")
			fixture.LeasesExpired(h, h.Admin())
			i := slices.IndexFunc(h.Engine.Loops(), func(l *loop.Loop) bool { return l.Name == "reclaim leases" })
			reclaim := h.Engine.Loops()[i].Pass
			pass := func() error { _, err := reclaim(context.WithoutCancel(t.Context())); return err }
			tt.outage(h, pass, func(d time.Duration) { now = now.Add(d) })

			want := []tasker.StepState{tasker.StepError, tasker.StepError}
			if tt.grace {
				want[0] = tasker.StepInProgress
			}
			h.Must(pass())
			h.WantStep(task, "one", want[0], 1)
			if tt.grace {
				now = now.Add(engine.DefaultLease - time.Second)
				h.Must(pass())
				h.WantStep(task, "one", want[0], 1)
			}
			now = now.Add(40 * time.Second) // by slow passes: a grace ends all the same
			h.Must(pass())
			h.WantStep(task, "one", want[1], 1)
		})
	}
}
