package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
)

// A receiver is who is told of investigations by the sink webhook.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	answer int
	got    map[string][]string // sequence numbers of the events that it took, by task
	ids    map[string]bool
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{answer: http.StatusNoContent, got: map[string][]string{}, ids: map[string]bool{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var event struct{ ID, TaskUUID, Sequence string }
	err := json.NewDecoder(request.Body).Decode(&event)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.answer == http.StatusNoContent && !r.ids[event.ID] {
		r.ids[event.ID] = true
		r.got[event.TaskUUID] = append(r.got[event.TaskUUID], event.Sequence)
	}
	w.WriteHeader(r.answer)
}

// answers has it answer so from now on.
func (r *receiver) answers(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = code
}

func (r *receiver) events() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids)
}

// Every command of the runbook of the emission does what it says, exactly as printed.
func TestEmissionRunbook(t *testing.T) {
	t.Parallel()
	to := startReceiver(t)
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	line := mqtest.Proxy(t, database.URL)
	s := &situation{t: t, pool: database.Pool(t), databaseUp: filepath.Join(t.TempDir(), "up")}
	s.serve(line.URL, "127.0.0.1:0", "TASKER_EMISSION_SINKS=webhook", "TASKER_EMISSION_WEBHOOK_URL="+to.URL,
		"TASKER_EMISSION_WEBHOOK_ALLOW_PRIVATE=true", "TASKER_EMISSION_MAX_REFUSALS=1")
	startWorker(t, s.url, s.databaseUp)

	s.create("charge_card", "error")
	await(t, "the first event", func() bool { return to.events() > 0 })
	to.answers(http.StatusInternalServerError)
	s.create("charge_card", "error")
	s.awaitNumber(`SELECT count(*) FROM tasker.audit_events WHERE action = 'dlq.emit_failed'`)
	s.awaitNumber(`SELECT count(*) FROM tasker.emission_sinks WHERE failing_since IS NOT NULL`)
	said := s.run("emission.md", map[string]func(){
		"A sink is down": func() { s.create("refund_card", "error") },
		"Measure the retry envelope": func() {
			await(t, "a second failure", func() bool {
				return s.number(`SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM tasker.audit_events WHERE action = 'dlq.emit_failed' GROUP BY subject) f`) > 1
			})
		},
		"The receiver refuses events": func() {
			to.answers(http.StatusBadRequest)
			await(t, "all that waits to be refused", func() bool {
				return s.number(`SELECT count(*) FROM tasker.emissions WHERE state <> 'published'`) ==
					s.number(`SELECT count(*) FROM tasker.emissions WHERE state = 'set_aside'`) &&
					s.number(`SELECT count(*) FROM tasker.emissions WHERE state = 'set_aside'`) >= 2
			})
		},
		"Deliver them again": func() { to.answers(http.StatusNoContent) },
		"The database is down as well": func() {
			line.Cut()
			await(t, "the server to notice", func() bool { return ready(t, s.url) == http.StatusServiceUnavailable })
		},
		"When the database is available again": func() { line.Restore(t) },
		"Verify":                               func() { s.create("refund_card", "error") },
	}, "REASON=the receiver knows the topic now")
	said.want("1. Check the sinks", `"database": "healthy"`, `"status": "degraded"`, "500", `"oldest_unpublished_seconds": `,
		"tasker_database_up 1", `tasker_dlq_emit_failures_total{sink="webhook",topic="dlq.entry.created"} `,
		`tasker_dlq_emission_pending{sink="webhook"} `, `tasker_dlq_emission_oldest_seconds{sink="webhook"} `, "failing")
	said.want("1. Check the sinks", `tasker_dlq_emission_sink_up{sink="webhook"} 0`)
	said.wantNot("1. Check the sinks", "cannot say")
	said.want("2. Identify the problem", "webhook IS degraded: ", "the database is healthy", "no work is deferred")
	said.want("A sink is down", "charge_card", "refund_card", "pending")
	said.want("Measure the retry envelope", "dlq.entry.created to webhook: ", "tries at each: 2\n")
	if got := said.bySection["Measure the retry envelope"]; !regexp.MustCompile(`seconds between the failures of one event: \d`).MatchString(got) {
		t.Errorf("no rest between failures is shown:\n%s", got)
	}
	said.want("The receiver refuses events", "dlq.entry.created\tto webhook\t", "400", "set_aside", "Data:")
	said.want("Deliver them again", "1 event will be redelivered to webhook.", "the first one is published", "operator@example.com", "the receiver knows the topic now")
	said.want("The database is down as well", `"status": "unhealthy"`, `"status": "unknown"`, "tasker_database_up 0", "ESCALATE")
	said.want("When the database is available again", `"status": "healthy"`, "charge_card")
	said.want("Verify", "sinks that have not got everything: 0", "of the newest events are published", "webhook: the newest event is published")
	said.wantNot("Verify", "pending,", "are pending", "are set_aside")

	all := int(s.number(`SELECT count(*) FROM tasker.outbox`))
	await(t, "the receiver to have every event", func() bool { return to.events() == all && all >= 4 })
	to.mu.Lock()
	defer to.mu.Unlock()
	for task, sequence := range to.got {
		if !slices.IsSorted(sequence) {
			t.Errorf("the events of task %s arrived as %s", task, strings.Join(sequence, ", "))
		}
	}
}

func (s *situation) number(sql string) (n int64) {
	s.t.Helper()
	must(s.t, s.pool.QueryRow(s.t.Context(), sql).Scan(&n))
	return n
}

// awaitNumber waits until what is counted is more than 0.
func (s *situation) awaitNumber(sql string) {
	s.t.Helper()
	await(s.t, sql, func() bool { return s.number(sql) > 0 })
}
