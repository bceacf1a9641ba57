package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/hostguard"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/testclock"
)

const (
	testClockPath     = "/test/clock"
	testClockDatabase = "tasker_test_clock"

	maxJump        = 10 * 366 * 24 * time.Hour
	maxJumpBody    = 1 << 10
	testClockSweep = 1 // seconds between two staleness sweeps, so that a jump is noticed soon
)

// checkTestClock returns an error unless only programs on this machine can reach the server.
func checkTestClock(listening net.Addr) error {
	if app.AsksCallers(config.Auth{}, listening) {
		return cli.Usagef("--test-clock is only for this machine: listen on 127.0.0.1")
	}
	return nil
}

// freshDatabase creates the empty database of a server with a test clock in the cluster of
// serverURL, and returns its URL. It deletes the one of the previous server.
func freshDatabase(ctx context.Context, serverURL string) (string, error) {
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return "", fmt.Errorf("connect to the private PostgreSQL: %w", app.WrapUnreachable(err))
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{`DROP DATABASE IF EXISTS ` + testClockDatabase + ` WITH (FORCE)`, `CREATE DATABASE ` + testClockDatabase} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("create the database of the test clock: %w", err)
		}
	}
	where, err := url.Parse(serverURL)
	if err != nil {
		return "", err
	}
	where.Path = "/" + testClockDatabase
	return where.String(), nil
}

// testClock serves the time of a test clock, and advances it. It does not authenticate callers:
// serve it on loopback only.
type testClock struct {
	guard *hostguard.Guard

	mu   sync.Mutex
	conn *pgx.Conn
}

// startTestClock installs a test clock in a migrated database and serves it on a server.
func startTestClock(ctx context.Context, server *app.Options) (*testClock, error) {
	conn, err := pgx.Connect(ctx, server.Config.Database.URL)
	if err != nil {
		return nil, fmt.Errorf("connect to the private PostgreSQL: %w", app.WrapUnreachable(err))
	}
	if err := testclock.Install(ctx, conn, time.Now(), testclock.RealSpeed); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	c := &testClock{conn: conn, guard: &hostguard.Guard{LoopbackOnly: true, AllowedHosts: server.Config.Server.Hosts()}}
	if server.Mount == nil {
		server.Mount = map[string]http.Handler{}
	}
	server.Mount[testClockPath] = c
	server.ClockSchema = testclock.Schema
	server.Config.StalenessDetection.DetectionIntervalSeconds = testClockSweep
	return c, nil
}

func (c *testClock) close(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.Close(context.WithoutCancel(ctx))
}

// ServeHTTP implements http.Handler.
func (c *testClock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now, status, err := c.serve(w, r)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	var body any = map[string]time.Time{"now": now}
	if err != nil {
		w.WriteHeader(status)
		body = apiv1.Error{Error: apiv1.ErrorBody{Code: string(tasker.CodeOf(err)), Message: err.Error()}}
	}
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}

func (c *testClock) serve(w http.ResponseWriter, r *http.Request) (now time.Time, status int, err error) {
	if status, err := c.guard.Check(r); err != nil {
		return now, status, err
	}
	switch {
	case r.URL.Path != testClockPath:
		return now, http.StatusNotFound, tasker.Errorf(tasker.NotFound, "no such path: use %s", testClockPath)
	case r.Method == http.MethodGet:
		now, err = c.do(func() (time.Time, error) { return testclock.Now(r.Context(), c.conn) })
	case r.Method == http.MethodPost:
		d, invalid := readJump(w, r)
		if invalid != nil {
			return now, http.StatusBadRequest, invalid
		}
		now, err = c.do(func() (time.Time, error) { return c.jump(r.Context(), d) })
	default:
		w.Header().Set("Allow", "GET, POST")
		return now, http.StatusMethodNotAllowed, tasker.Errorf(tasker.Unsupported, "method not allowed: use GET or POST")
	}
	if err != nil {
		err = tasker.Errorf(tasker.Unavailable, "cannot use the test clock: %v", err)
	}
	return now, http.StatusServiceUnavailable, err
}

func (c *testClock) do(f func() (time.Time, error)) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

// jump advances the clock and requests a poll for due work.
func (c *testClock) jump(ctx context.Context, d time.Duration) (time.Time, error) {
	now, err := testclock.Jump(ctx, c.conn, d)
	if err == nil {
		err = testclock.Wake(ctx, c.conn, postgres.DueChannel)
	}
	return now, err
}

func readJump(w http.ResponseWriter, r *http.Request) (time.Duration, error) {
	var body struct {
		AdvanceMS int64 `json:"advance_ms"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxJumpBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return 0, tasker.Errorf(tasker.Invalid, "invalid body, must be {\"advance_ms\": N}: %v", err)
	}
	if body.AdvanceMS < 1 || body.AdvanceMS > maxJump.Milliseconds() {
		return 0, tasker.Errorf(tasker.Invalid, "advance_ms must be from 1 to %d, not %d", maxJump.Milliseconds(), body.AdvanceMS)
	}
	return time.Duration(body.AdvanceMS) * time.Millisecond, nil
}
