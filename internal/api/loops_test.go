package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/hostguard"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// Readiness depends on the loops that tasks wait for, and tells of all, and of what was set aside.
func TestReadinessReportsLoopsAndDeferredWork(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), pgtest.New(t).URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	statuses := []loop.Status{{Name: "retry steps", LastSuccess: time.Now()}, {Name: "retention", Spare: true, Late: true, Failures: 9}}
	now := time.Now()
	handler := New(t.Context(), Options{DB: db, Loops: func() []loop.Status { return statuses }, Now: func() time.Time { return now }})
	get := func(status int, words ...string) {
		t.Helper()
		now = now.Add(cacheDuration)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/ready", http.NoBody))
		if w.Code != status {
			t.Errorf("ready: %d, want %d", w.Code, status)
		}
		for _, word := range words {
			if !strings.Contains(w.Body.String(), word) {
				t.Errorf("%s does not say %s", w.Body, word)
			}
		}
		if status == http.StatusOK && len(words) == 2 && strings.Contains(w.Body.String(), "deferred") {
			t.Errorf("%s tells of what was set aside, and nothing was", w.Body)
		}
	}
	get(http.StatusOK, `"retry steps":{"status":"healthy","last_good_at":`, `"retention":{"status":"late","failures":9}`)
	if _, err := db.DeferWork(t.Context(), postgres.RetrySteps, []postgres.Failed{{StepRef: tasker.StepRef{TaskUUID: tasker.NewID()}, Err: fmt.Errorf("broken")}}); err != nil {
		t.Fatal(err)
	}
	get(http.StatusOK, `"deferred_work":{"status":"degraded"`, `retry: 1, such as \"broken`, "tasker.deferred_work")
	statuses[0].Late, statuses[0].Failures = true, 3
	get(http.StatusServiceUnavailable, `"loops":{"status":"unhealthy"`, `"retry steps":{"status":"late"`)
}

// A server without its database does not fill the log: 503s are warnings, a few a
// second, and it is told how many were left out.
func TestUnavailableRequestsAreLoggedAtALowRate(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	f := &handler{guard: &hostguard.Guard{}, log: slog.New(slog.NewTextHandler(&text, nil))}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/tasks", http.NoBody)
	for range 1000 {
		f.logRequest(r, &requestLog{}, &responseRecorder{status: http.StatusServiceUnavailable}, 0)
	}
	f.unavailable.second-- // another second
	f.logRequest(r, &requestLog{}, &responseRecorder{status: http.StatusServiceUnavailable}, 0)
	said := text.String()
	if lines := strings.Count(said, "\n"); lines > 4*linesPerSecond || strings.Contains(said, "level=ERROR") || !strings.Contains(said, "like_it_not_logged=") {
		t.Errorf("%d lines:\n%s", lines, said)
	}
}

// A database that refuses writes, such as a standby, is down for readiness and for the metric.
func TestAReadOnlyDatabaseIsNotReady(t *testing.T) {
	t.Parallel()
	place := pgtest.New(t)
	db, err := postgres.Open(t.Context(), place.URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	now := time.Now()
	server := New(t.Context(), Options{DB: db, Now: func() time.Time { return now }})
	check := func(status int) {
		t.Helper()
		now = now.Add(cacheDuration)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/ready", http.NoBody))
		if _, _, err := db.OpenEntries(t.Context()); w.Code != status || (err == nil) != (status == http.StatusOK) {
			t.Errorf("ready: %d, want %d; the metric: %v", w.Code, status, err)
		}
	}
	check(http.StatusOK)
	admin := place.Pool(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	db.Reset()
	check(http.StatusServiceUnavailable)
	exec(`SET default_transaction_read_only = off`)
	exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET default_transaction_read_only', current_database()); END $$`)
	check(http.StatusOK)
}

// Whoever asks at the same time, and within a second, shares one look. A look outlives who
// began it, and no look is older than a second.
func TestConcurrentHealthChecksShareOneQuery(t *testing.T) {
	t.Parallel()
	now, looks, entered, goOn := time.Now(), 0, make(chan struct{}), make(chan struct{})
	g := &sharedCheck[int]{now: func() time.Time { return now }, check: func(ctx context.Context) int {
		if looks++; looks == 1 {
			close(entered)
			<-goOn
		}
		if _, bounded := ctx.Deadline(); !bounded || ctx.Err() != nil {
			t.Errorf("a look is bounded: %v; %v", bounded, ctx.Err())
		}
		return looks
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	for range 10 {
		asked.Go(func() {
			if got := g.get(ctx); got != 1 {
				t.Errorf("look %d", got)
			}
		})
	}
	<-entered
	cancel()
	close(goOn)
	asked.Wait()
	now = now.Add(cacheDuration - 1)
	if got := g.get(ctx); got != 1 {
		t.Errorf("look %d within a second", got)
	}
	now = now.Add(1)
	if got := g.get(ctx); got != 2 {
		t.Errorf("look %d after a second", got)
	}
}

// Strangers cause a look at what readiness needs, and not at more. A database that is gone
// is seen with the next look.
func TestUnauthenticatedReadinessIsCached(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), pgtest.New(t).URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	now, looks := time.Now(), 0
	ready := New(t.Context(), Options{
		DB: db, Auth: auth.New(auth.Options{DB: db, SessionLife: time.Hour, SessionIdle: time.Hour}), Sinks: []string{"log"}, Now: func() time.Time { return now },
		Ready: func(context.Context) error { looks++; return nil },
	})
	get := func(status int) {
		t.Helper()
		w := httptest.NewRecorder()
		ready.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/ready", http.NoBody))
		if w.Code != status {
			t.Errorf("ready: %d, want %d", w.Code, status)
		}
	}
	for range 5 {
		get(http.StatusOK)
	}
	checks := ready.(*handler).server.checks
	if looks != 1 || !checks.components.ended.IsZero() {
		t.Errorf("%d looks, and one at the components: %v", looks, !checks.components.ended.IsZero())
	}
	db.Close()
	get(http.StatusOK)
	now = now.Add(cacheDuration)
	get(http.StatusServiceUnavailable)
}
