package ctl

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/cli"
)

// queuesAt answers like a server with these queues, and with no workers.
func queuesAt(t *testing.T, status int, queues any) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = apiv1.WorkerList{}
		if r.URL.Path == "/v1/queues" {
			w.WriteHeader(status)
			answer = queues
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func unserved(n int) []tasker.Queue {
	list := []tasker.Queue{}
	for i := range n {
		list = append(list, tasker.Queue{Namespace: "n", Handler: fmt.Sprint("h", i), Queued: 1, Unserved: true})
	}
	return list
}

func TestWorkerListWarns(t *testing.T) {
	t.Parallel()
	refusal := func(code string) apiv1.Error { return refusal(code, "no") }
	served := tasker.Queue{Namespace: "n", Handler: "served", LiveWorkers: 1}
	for _, tt := range []struct {
		name   string
		status int
		queues any
		want   string
	}{
		{"no queue", 200, unserved(0), ""},
		{"all are served", 200, []tasker.Queue{served}, ""},
		{"one", 200, append(unserved(1), served), "⚠ No live worker for n/h0. For details: tasker-ctl queue list\n"},
		{"three", 200, append(unserved(3), served), "⚠ No live worker for n/h0, n/h1, n/h2. For details: tasker-ctl queue list\n"},
		{"four", 200, unserved(4), "⚠ No live worker for n/h0, n/h1, n/h2 and 1 more. For details: tasker-ctl queue list\n"},
		{"too many to count", 200, unserved(maxCounted), "⚠ No live worker for n/h0, n/h1, n/h2 and 97+ more. For details: tasker-ctl queue list\n"},
		{"a hostile name", 200, []tasker.Queue{{Namespace: "a\x1b[2J", Handler: strings.Repeat("x", 200), Unserved: true}},
			"⚠ No live worker for a/" + strings.Repeat("x", maxCell-3) + "…. For details: tasker-ctl queue list\n"},
		{"an older server", 404, refusal("NOT_FOUND"), ""},
		{"a server in trouble", 500, refusal("INTERNAL"), "⚠ cannot list queues without a live worker: no\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := runAt(queuesAt(t, tt.status, tt.queues), "", "worker", "list")
			if code != cli.ExitOK || stdout != "" || stderr != "No workers.\n"+tt.want {
				t.Errorf("exit code %d, printed %q and %q", code, stdout, stderr)
			}
		})
	}
}

func TestQueueTable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	url := queuesAt(t, 200, []tasker.Queue{
		{Namespace: "n", Handler: "a", Queued: 10_000, QueuedIsAtLeast: true, AwaitingWorker: 10_000, OldestQueuedAt: &now, NextExpiresAt: &now, Unserved: true, Limited: 7, Saturated: 10_000},
		{Namespace: "n", Handler: "b", AwaitingWorker: 3, Held: 10_000, LiveWorkers: 2},
	})
	_, stdout, _ := runAt(url, "", "queue", "list")
	want := []string{
		"NAMESPACE HANDLER QUEUED AWAITING HELD LIMITED SATURATED LIVE WORKERS OLDEST EXPIRES",
		"n a 10000+ 10000+ 0 7 10000+ none 2026-01-31T12:00:00Z 2026-01-31T12:00:00Z",
		"n b 0 3 10000+ 0 0 2 - -",
	}
	got := strings.Split(strings.TrimSpace(stdout), "\n")
	for i, line := range got {
		if i >= len(want) || strings.Join(strings.Fields(line), " ") != want[i] {
			t.Errorf("line %d: %q", i, line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("printed %s", stdout)
	}
	code, _, stderr := runAt(queuesAt(t, 404, apiv1.Error{Error: apiv1.ErrorBody{Code: "NOT_FOUND", Message: "no such path"}}), "", "queue", "list")
	if code != exitNotFound || !strings.Contains(stderr, "no such path") {
		t.Errorf("an older server: exit code %d, %q", code, stderr)
	}
}

func TestDrainedWorkerHint(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		health   tasker.WorkerHealth
		inFlight int
		want     string
	}{
		{"draining", 0, "it gets no new steps and stops after its next heartbeat"},
		{"draining", 2, "it gets no new steps, finishes or releases its current steps, and stops"},
		{"stale", 0, "last heartbeat at 2026-01-31T12:00:00Z; it gets no steps if it reconnects"},
		{"gone", 1, "last heartbeat at 2026-01-31T12:00:00Z; its steps are retried when their leases expire"},
	} {
		w := tasker.Worker{Health: tt.health, InFlight: tt.inFlight, LastHeartbeatAt: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}
		if got := describeDrained(w); got != tt.want {
			t.Errorf("%s with %d: %q", tt.health, tt.inFlight, got)
		}
	}
}
