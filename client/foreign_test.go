package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tasker.example/tasker"
)

// Whatever stands between a worker and the server may answer in its place. None of
// that is a verdict on the worker or its results.
func TestForeignAnswersAreUnavailable(t *testing.T) {
	const page = "<!DOCTYPE html><title>sorry</title>"
	type answer struct {
		status int
		body   string
	}
	answers := []answer{
		{101, ""}, {204, ""}, {200, ""}, {200, page}, {200, "{}"}, {200, "null"}, {200, "[]"}, {200, `{"steps": [{`}, {200, `{"ok": true}`},
		{302, page}, {404, `{"message": "no route"}`}, {404, `{"error": {"message": "no code"}}`}, {400, `{"error": {"code": 400, "message": "x"}}`},
		{422, `{"error": "text"}`},
	}
	for _, status := range []int{400, 401, 403, 404, 405, 409, 413, 415, 421, 422, 429, 500, 501, 502, 503, 504} {
		answers = append(answers, answer{status, page}, answer{status, ""})
	}
	id := tasker.NewID()
	leases := []tasker.Lease{{TaskUUID: id, StepUUID: id, Fence: 1}}
	calls := map[string]func(context.Context, *Backend) error{
		"register": func(ctx context.Context, e *Backend) error {
			return errorOf(e.RegisterWorker(ctx, tasker.WorkerSpec{}))
		},
		"claim": func(ctx context.Context, e *Backend) error { _, err := e.Claim(ctx, id, 1, 0); return err },
		"take": func(ctx context.Context, e *Backend) error {
			return errorOf(e.TakeSteps(ctx, id, []tasker.StepRef{{TaskUUID: id, StepUUID: id}}))
		},
		"heartbeat": func(ctx context.Context, e *Backend) error { _, err := e.Heartbeat(ctx, id, leases); return err },
		"report": func(ctx context.Context, e *Backend) error {
			return errorOf(e.Report(ctx, id, []tasker.Outcome{{Lease: leases[0], Success: true}}, 1))
		},
		"release": func(ctx context.Context, e *Backend) error { _, _, err := e.Release(ctx, id, leases); return err },
		"checkpoint": func(ctx context.Context, e *Backend) error {
			return e.SaveCheckpoint(ctx, id, leases[0], json.RawMessage(`1`))
		},
		"result":       func(ctx context.Context, e *Backend) error { _, err := e.StepResult(ctx, id, id); return err },
		"context":      func(ctx context.Context, e *Backend) error { _, err := e.TaskContext(ctx, id); return err },
		"item results": func(ctx context.Context, e *Backend) error { _, err := e.ItemResults(ctx, id, "each", 0); return err },
	}
	for _, a := range answers {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(a.status)
			fmt.Fprint(w, a.body)
		}, WithRetries(0))
		for name, call := range calls {
			if name == "checkpoint" && a.status == http.StatusNoContent {
				continue // the API's own
			}
			if err := call(t.Context(), c.Backend()); tasker.CodeOf(err) != tasker.Unavailable {
				t.Errorf("%s, answered %d %q: %s (%v), want UNAVAILABLE", name, a.status, a.body, tasker.CodeOf(err), err)
			}
		}
	}
	// The API's own verdict is one.
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error": {"code": "NOT_FOUND", "message": "worker is not registered"}}`)
	})
	for name, call := range calls {
		if err := call(t.Context(), c.Backend()); tasker.CodeOf(err) != tasker.NotFound {
			t.Errorf("%s, refused by the server: %v", name, err)
		}
	}
}

// switchProtocols answers 101 and leaves the connection open until the test has ended.
func switchProtocols(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { connection.Close() })
		fmt.Fprint(connection, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
	}
}

// The client of a caller is guarded as well as its own.
func TestSwitchingProtocolsEndsACall(t *testing.T) {
	for name, o := range map[string][]Option{"own": nil, "of the caller": {WithHTTPClient(&http.Client{Transport: &http.Transport{}})}, "default": {WithHTTPClient(&http.Client{})}} {
		c := serve(t, switchProtocols(t), o...)
		if _, err := c.Task(t.Context(), tasker.NewID()); tasker.CodeOf(err) != tasker.Internal || !strings.Contains(err.Error(), "101 Switching Protocols") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the server asks for is told to the caller, and nothing is sent before.
func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "999999": time.Hour,
		time.Now().Add(30 * time.Minute).UTC().Format(http.TimeFormat): 30 * time.Minute,
	} {
		if got := parseRetryAfter(header); got > want || got < want-time.Minute || want == 0 && got != 0 {
			t.Errorf("Retry-After: %q is read as %v, want %v", header, got, want)
		}
	}
	for _, tt := range []struct {
		status int
		body   string
	}{
		{http.StatusServiceUnavailable, `{"error": {"code": "UNAVAILABLE", "message": "busy"}}`},
		{http.StatusTooManyRequests, "slow down"},
	} {
		var tries atomic.Int32
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			tries.Add(1)
			w.Header().Set("Retry-After", "40") // more than the call may take
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.body)
		})
		_, err := c.Backend().Heartbeat(t.Context(), tasker.NewID(), nil)
		var e *tasker.Error
		if !errors.As(err, &e) || e.Code != tasker.Unavailable || e.RetryAfter != 40*time.Second || tries.Load() != 1 {
			t.Errorf("%d: %d tries, %+v", tt.status, tries.Load(), err)
		}
		if strings.Contains(tt.body, "busy") && e.Message != "busy" {
			t.Errorf("message %q", e.Message)
		}
	}
}
