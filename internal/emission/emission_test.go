package emission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/feed"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
)

func TestMain(m *testing.M) { os.Exit(mqtest.Run(func() int { return pgtest.Run(m) })) }

const patience = 2 * time.Minute

// A harness is a database with investigations, and relays that send their events.
type harness struct {
	*enginetest.Harness
	counts *counts
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{Harness: enginetest.New(t), counts: &counts{failed: map[string]int{}, emitted: map[string]int{}, aside: map[string]int{}}}
	h.Template("only", enginetest.Step("only"))
	return h
}

// investigate opens an investigation of a new task.
func (h *harness) investigate() tasker.Entry {
	h.Helper()
	e, err := h.DLQ.Open(h.Context(), h.Create("only"), tasker.NewEntry{Actor: "op", Reason: "look"})
	h.Must(err)
	return e
}

// note changes an investigation, which is another event.
func (h *harness) note(e tasker.Entry, text string) {
	h.Helper()
	_, _, err := h.DLQ.Update(h.Context(), e.UUID, tasker.EntryUpdate{Notes: &text, Actor: "op"})
	h.Must(err)
}

// relay runs a relay until it is stopped or the test has ended.
func (h *harness) relay(db *postgres.DB, change func(*emission.Options), sinks ...sink.Sink) (stop func()) {
	h.Helper()
	o := emission.Options{DB: db, Sinks: sinks, Retry: emission.Retry{Attempts: 1, Delay: time.Millisecond}, PollInterval: 10 * time.Millisecond,
		StoreTimeout: patience, EmitTimeout: patience, Counts: h.counts}
	if change != nil {
		change(&o)
	}
	return h.runs(emission.New(o))
}

// runs runs a relay until it is stopped or the test has ended.
func (h *harness) runs(r *emission.Relay) (stop func()) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.Error(err)
		}
	})
	h.Cleanup(stop)
	return stop
}

// hurry lets all rests be over.
func (h *harness) hurry() {
	h.Helper()
	h.Exec(`
		WITH waiting AS (
			SELECT sink, position FROM tasker.emissions
			WHERE state = 'pending' AND next_attempt_at > now()
			ORDER BY sink, position
			FOR NO KEY UPDATE SKIP LOCKED
		)
		UPDATE tasker.emissions e SET next_attempt_at = now() FROM waiting w WHERE e.sink = w.sink AND e.position = w.position`)
	h.Exec(`UPDATE tasker.emission_sinks SET next_try_at = NULL`)
}

func (h *harness) states(sinkName string) string {
	h.Helper()
	var s string
	h.Must(h.Admin().QueryRow(h.Context(),
		`SELECT coalesce(string_agg(n || ' ' || state, ', ' ORDER BY state), '') FROM (SELECT state, count(*) AS n FROM tasker.emissions WHERE sink = $1 GROUP BY state) x`, sinkName).Scan(&s))
	return s
}

type counts struct {
	mu                     sync.Mutex
	failed, emitted, aside map[string]int
}

func (c *counts) EmitFailed(_ context.Context, topic, s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed[s+" "+topic]++
}

func (c *counts) Emitted(_ context.Context, topic, s string, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emitted[s+" "+topic]++
}

func (c *counts) EventDropped(_ context.Context, topic, s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aside[s+" "+topic]++
}

func (c *counts) of(m map[string]int, key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return m[key]
}

// A receiver takes events over HTTP, and answers as it is told.
type receiver struct {
	*httptest.Server
	answer atomic.Value // func(w, event) bool: whether it has answered

	mu    sync.Mutex
	got   []received
	tries int
}

type received struct {
	ID       string
	Type     string
	TaskUUID string `json:"taskuuid"`
	Sequence string
	DedupKey string `json:"dedupkey"`
	Data     json.RawMessage
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.answer.Store(func(http.ResponseWriter, received) bool { return false })
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var e received
		body, err := io.ReadAll(q.Body)
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		if err != nil {
			t.Errorf("the body of %s: %v", body, err)
		}
		r.mu.Lock()
		r.tries++
		r.mu.Unlock()
		if r.answer.Load().(func(http.ResponseWriter, received) bool)(w, e) {
			return
		}
		r.mu.Lock()
		r.got = append(r.got, e)
		r.mu.Unlock()
	}))
	t.Cleanup(r.Close)
	return r
}

// tasks returns how often events of each task were received; a sink gets an event at least once.
func (r *receiver) tasks() map[string]int {
	of := map[string]int{}
	for _, e := range r.all() {
		of[e.TaskUUID]++
	}
	return of
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *receiver) attempts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tries
}

func (r *receiver) says(status int) {
	r.answer.Store(func(w http.ResponseWriter, _ received) bool {
		if status == http.StatusOK {
			return false
		}
		http.Error(w, "no", status)
		return true
	})
}

func (h *harness) webhook(url string) sink.Sink {
	h.Helper()
	s, err := sink.NewWebhook(sink.WebhookOptions{URL: url, Secret: "s", Timeout: patience, AllowPrivate: true, Source: "tasker"})
	h.Must(err)
	return s
}

// inOrder fails unless events of each task came in the order of the outbox, but for
// repetitions; it returns how many came more than once.
func inOrder(t *testing.T, list []received) (doubled int) {
	t.Helper()
	last, seen := map[string]string{}, map[string]bool{}
	for _, e := range list {
		if seen[e.ID] {
			doubled++
			continue
		}
		seen[e.ID] = true
		if e.Sequence <= last[e.TaskUUID] {
			t.Errorf("event %s of task %s came after %s", e.Sequence, e.TaskUUID, last[e.TaskUUID])
		}
		last[e.TaskUUID] = e.Sequence
	}
	return doubled
}

const created, webhookCreated = "dlq.entry.created", "webhook dlq.entry.created"

// The second attempt succeeds, and nothing is counted.
func TestASecondAttemptSucceeds(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	var tries atomic.Int64
	r.answer.Store(func(w http.ResponseWriter, _ received) bool {
		if tries.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	})
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.investigate()
	h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("it is received", func() bool { return len(r.all()) == 1 })
	h.Eventually("that is noted", func() bool { return h.states("webhook") == "1 published" })
	if n := h.Count(`SELECT attempts FROM tasker.emissions`); n != 2 || h.counts.of(h.counts.failed, webhookCreated) != 0 ||
		h.counts.of(h.counts.emitted, webhookCreated) != 1 || h.Count(`SELECT count(*) FROM tasker.audit_events`) != 0 {
		t.Errorf("%d attempts, counted %+v", n, h.counts)
	}
}

// A permanent failure counts once, and the entry is stored all the same.
func TestAFailureCountsOnceAndLosesNothing(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	r.says(http.StatusServiceUnavailable)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	e := h.investigate()
	h.Exec(`UPDATE tasker.emission_sinks SET created_at = created_at`)
	stop := h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("it has failed", func() bool { return h.counts.of(h.counts.failed, webhookCreated) >= 1 })
	h.Eventually("that is noted", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE failing_since IS NOT NULL AND next_try_at > now()`) == 1
	})
	stop() // else it fails again meanwhile, on a slow machine
	failed := h.counts.of(h.counts.failed, webhookCreated)
	if n := r.attempts(); n < 2*failed || n > 2*failed+2 { // the last ones may have been broken off
		t.Errorf("%d attempts and %d failures, want the first attempt and one more", n, failed)
	}
	if got, err := h.DB.Entry(t.Context(), e.UUID); err != nil || got.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the entry is %+v, %v", got, err)
	}
	list, _, err := h.DB.AuditEvents(t.Context(), "dlq.emit_failed", 0, 10)
	h.Must(err)
	var data struct {
		Topic, Sink, Error string
		Attempts           int
	}
	if len(list) != failed || json.Unmarshal(list[0].Data, &data) != nil || data.Topic != created || data.Sink != "webhook" || data.Attempts != 2 ||
		!strings.Contains(data.Error, "503") {
		t.Errorf("the audit log says %+v", list)
	}
	r.says(http.StatusOK)
	h.hurry()
	h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("it is received", func() bool { return len(r.all()) == 1 })
	h.Eventually("the sink is well", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE failing_since IS NULL AND last_success_at IS NOT NULL`) == 1
	})
}

func TestATopicHasAttemptsOfItsOwn(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	r.says(http.StatusInternalServerError)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.investigate()
	stop := h.relay(h.DB, func(o *emission.Options) {
		o.Retry.Delay = time.Hour // of the other topics
		o.Topics = map[string]emission.Retry{created: {Attempts: 4, Delay: time.Millisecond}}
	}, h.webhook(r.URL))
	h.Eventually("it has failed", func() bool { return h.counts.of(h.counts.failed, webhookCreated) >= 1 })
	stop()
	if n, failed := r.attempts(), h.counts.of(h.counts.failed, webhookCreated); n < 5*failed || n > 5*failed+5 || // the last ones may have been broken off
		h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'dlq.emit_failed' AND (data ->> 'attempts')::int <> 5`) != 0 {
		t.Errorf("%d attempts and %d failures, want 5 attempts for each", n, failed)
	}
}

func TestOrderIsKeptOverFailures(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	var n atomic.Int64
	r.answer.Store(func(w http.ResponseWriter, _ received) bool { // every third fails, and its repetition may
		if n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return false
	})
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.relay(h.DB, func(o *emission.Options) { o.Retry.Attempts = 0 }, h.webhook(r.URL))
	for range 15 {
		e := h.investigate()
		for i := range 4 {
			h.note(e, fmt.Sprint("note ", i))
		}
	}
	h.Eventually("all are published", func() bool {
		h.hurry()
		return h.states("webhook") == "75 published"
	})
	inOrder(t, r.all())
}

func TestAnEventThatIsRefusedIsSetAsideAndBlocksNoOther(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	poison := h.investigate()
	r.answer.Store(func(w http.ResponseWriter, e received) bool {
		if e.TaskUUID == poison.TaskUUID.String() && e.Type == "tasker."+created {
			http.Error(w, "cannot read this", http.StatusBadRequest)
			return true
		}
		return false
	})
	h.note(poison, "later")
	for range 5 {
		h.investigate()
	}
	h.relay(h.DB, func(o *emission.Options) { o.Refusals = 3 }, h.webhook(r.URL))
	h.Eventually("it is set aside and all others are published", func() bool {
		h.hurry()
		return h.states("webhook") == "6 published, 1 set_aside"
	})
	if n := h.counts.of(h.counts.aside, webhookCreated); n != 1 {
		t.Errorf("%d set aside", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'dlq.event_set_aside'`); n != 1 {
		t.Errorf("%d rows of the audit log say so", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE failing_since IS NULL`); n != 1 {
		t.Error("the sink counts as failing although it answers")
	}
	if n := h.Count(`SELECT attempts FROM tasker.emissions WHERE state = 'set_aside'`); n != 3 {
		t.Errorf("it was sent %d times, want once for each refusal", n)
	}
	r.says(http.StatusOK)
	position := int64(h.Count(`SELECT position FROM tasker.emissions WHERE state = 'set_aside'`))
	again, err := h.DB.ReEmit(t.Context(), postgres.ReEmission{Sinks: []string{"webhook"}, Of: postgres.Span{From: position, To: position}, By: postgres.Operator{Actor: "op", Reason: "fixed"}}, 10)
	if err != nil || again != 1 {
		t.Fatalf("%d sent again, %v", again, err)
	}
	h.Eventually("it is published", func() bool { return h.states("webhook") == "7 published" })
}

// An hour of attempts of a receiver that answers 500: no work is deferred, and what
// is tried meanwhile is bounded.
func TestAReceiverThatIsBrokenForAnHour(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	r.says(http.StatusInternalServerError)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	for range 50 {
		h.investigate()
	}
	h.relay(h.DB, nil, h.webhook(r.URL))
	for range 60 { // a rest of a minute each, made to have passed
		before := r.attempts()
		h.hurry()
		h.Eventually("it was tried", func() bool { return r.attempts() > before })
		h.Eventually("that is noted", func() bool {
			return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE next_try_at > now()`) == 1
		})
	}
	if s := h.states("webhook"); s != "50 pending" {
		t.Errorf("the emissions are %s", s)
	}
	if n := h.Count(`SELECT max(extract(epoch FROM next_attempt_at - last_attempt_at))::int FROM tasker.emissions WHERE attempts > 0`); n > 80 {
		t.Errorf("an event rests for %d s", n)
	}
	r.says(http.StatusOK)
	h.Eventually("all are received", func() bool {
		h.hurry()
		return h.states("webhook") == "50 published"
	})
}

func TestReceiverCanAskForADelay(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	r.answer.Store(func(w http.ResponseWriter, _ received) bool {
		w.Header().Set("Retry-After", "1800")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.investigate()
	h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("that is noted", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE next_try_at > now() + interval '29 minutes'`) == 1
	})
	if n := r.attempts(); n != 1 {
		t.Errorf("%d attempts, want no second one", n)
	}
}

// Events become visible out of order. None is missed, and none of a task overtakes another.
func TestNoEventIsMissedWhenTransactionsEndOutOfOrder(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.relay(h.DB, nil, h.webhook(r.URL))
	late := h.investigate()
	h.Eventually("the first is received", func() bool { return len(r.all()) == 1 })
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes)
		VALUES ($1, 'updated', 'op', 'pending', 'pending', 'held back')`, late.UUID)
	h.Must(err)
	for range 10 {
		h.investigate() // written after, committed before
	}
	h.Eventually("the later ones are taken", func() bool { return h.states("webhook") == "11 published" })
	h.Must(tx.Commit(t.Context()))
	h.Eventually("all are received", func() bool { return h.states("webhook") == "12 published" })
	inOrder(t, r.all())
}

func TestOneServerAtATimeSends(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	first := h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("one sends", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE holder IS NOT NULL`) == 1
	})
	h.relay(enginetest.Open(t, h.URL, postgres.Options{}), nil, h.webhook(r.URL))
	for range 20 {
		h.investigate()
	}
	h.Eventually("all are published", func() bool { return h.states("webhook") == "20 published" })
	if n := len(r.all()); n != 20 {
		t.Errorf("%d received, want each once", n)
	}
	first()
	h.investigate()
	h.Eventually("the other goes on", func() bool { return h.states("webhook") == "21 published" })
}

// An event that is asked for again while it is being sent is sent once more: the
// receiver may be about to lose what it is getting.
func TestAnEventIsAskedForWhileItIsSent(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	asked := make(chan struct{})
	r.answer.Store(func(http.ResponseWriter, received) bool {
		if r.attempts() == 1 {
			<-asked
		}
		return false
	})
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.investigate()
	h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("it is being sent", func() bool { return r.attempts() == 1 })
	n, err := h.DB.ReEmit(t.Context(), postgres.ReEmission{Sinks: []string{"webhook"}, Of: postgres.Span{To: 1 << 62}, By: postgres.Operator{Actor: "op", Reason: "lost"}}, 100)
	close(asked)
	if err != nil || n != 1 {
		t.Fatalf("%d sent again, %v", n, err)
	}
	h.Eventually("it is received twice", func() bool { return len(r.all()) == 2 && h.states("webhook") == "1 published" })
}

func TestEventsReachTheBus(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	exchange := mqtest.Name(t)
	bus, err := sink.NewRabbit(sink.RabbitOptions{URL: mqtest.URL(t), Exchange: exchange, Source: "tasker"})
	h.Must(err)
	h.Must(h.DB.OpenSink(t.Context(), "rabbitmq"))
	h.relay(h.DB, nil, bus)
	e := h.investigate()
	h.Eventually("nobody listens, so it waits", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE last_error LIKE '%no queue is bound%'`) == 1
	})
	conn, err := amqp091.Dial(mqtest.URL(t))
	h.Must(err)
	defer func() { _ = conn.Close() }()
	c, err := conn.Channel()
	h.Must(err)
	q, err := c.QueueDeclare("", false, true, true, false, nil)
	h.Must(err)
	h.Must(c.QueueBind(q.Name, "dlq.entry.*", exchange, false, nil))
	messages, err := c.Consume(q.Name, "", true, true, false, false, nil)
	h.Must(err)
	h.note(e, "second")
	h.hurry()
	for _, want := range []string{created, "dlq.entry.updated"} {
		select {
		case m := <-messages:
			if m.RoutingKey != want || m.MessageId == "" {
				t.Errorf("received %s, want %s", m.RoutingKey, want)
			}
		case <-time.After(patience):
			t.Fatalf("waited in vain for %s", want)
		}
	}
	h.Eventually("they are published", func() bool { return h.states("rabbitmq") == "2 published" })
}

// Three transactions: the third writes of a task first, then the first one does,
// while the second stays open. The order is that of the writing.
func TestNoEventOvertakesAnotherOfItsTask(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	e := h.investigate()
	begin := func() pgx.Tx {
		t.Helper()
		tx, err := h.Admin().Begin(t.Context())
		h.Must(err)
		_, err = tx.Exec(t.Context(), `SELECT pg_current_xact_id()`)
		h.Must(err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		return tx
	}
	write := func(tx pgx.Tx, notes string) {
		t.Helper()
		_, err := tx.Exec(t.Context(), `INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes)
			VALUES ($1, 'updated', 'op', 'pending', 'pending', $2)`, e.UUID, notes)
		h.Must(err)
		h.Must(tx.Commit(t.Context()))
	}
	first, second, third := begin(), begin(), begin()
	write(third, "one")
	write(first, "two")
	h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("what is committed is published", func() bool { return h.states("webhook") == "3 published" })
	write(second, "three")
	h.Eventually("all are published", func() bool { return h.states("webhook") == "4 published" })
	inOrder(t, r.all())
}

// A dump that is restored into a new database has events of transactions that are
// far in its future.
func TestEventsOfARestoredDatabaseAreSent(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.openTransaction()
	h.investigate() // before the sink is opened: it is not told of this one
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.restore()
	missed := h.investigate()
	h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("the event from before the restart is received", func() bool { return r.tasks()[missed.TaskUUID.String()] > 0 })
	later := h.investigate()
	h.Eventually("the event from after the restart is received", func() bool { return r.tasks()[later.TaskUUID.String()] > 0 })
	if got := r.tasks(); len(got) != 2 {
		t.Errorf("received events of %d tasks, want those of the two investigated since the sink was opened: %v", len(got), got)
	}
}

// A dump may have events that were committed after others that come behind them were sent, and before the sink was looked at
// again: they are sent as well.
func TestEventsBeforeTheLastOneOfARestoredDatabaseAreSent(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	e := h.investigate()
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	_, err = tx.Exec(t.Context(), `INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes)
		VALUES ($1, 'updated', 'op', 'pending', 'pending', 'late')`, e.UUID)
	h.Must(err)
	h.investigate()
	if n, err := h.DB.TakeEvents(t.Context(), "webhook", 10); err != nil || n != 2 {
		t.Fatalf("took %d events, %v; want the two that are committed", n, err)
	}
	h.Must(tx.Commit(t.Context()))
	h.restoreAll()
	h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("all are published", func() bool { return h.states("webhook") == "3 published" })
}

// However many events a restored database has, and however short the time of an operation is, sinks
// get what is new, and the old events are marked a few at a time.
func TestALargeRestoredDatabaseIsAdoptedInParts(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.investigate()
	h.Exec(`INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes)
		SELECT dlq_entry_uuid, 'updated', 'op', 'pending', 'pending', 'before' FROM tasker.tasks_dlq, generate_series(1, 6000)`)
	e := h.investigate()
	h.Exec(`INSERT INTO tasker.emissions (sink, position, event_uuid, task_uuid, state, published_at)
		SELECT 'webhook', position, event_uuid, task_uuid, 'published', now() FROM tasker.outbox`)
	h.Exec(`ANALYZE tasker.outbox`)
	h.restoreAll()
	h.relay(h.DB, func(o *emission.Options) { o.StoreTimeout = 50 * time.Millisecond }, h.webhook(r.URL))
	after := h.investigate()
	h.Eventually("an event of the restored database is received", func() bool { return r.tasks()[after.TaskUUID.String()] > 0 })
	if got := r.tasks(); len(got) != 1 {
		t.Errorf("received events of %d tasks, want those of the new one: %v", len(got), got)
	}
	h.adopts(6_000)
	h.note(e, "later")
	h.Eventually("an event of an old task is received", func() bool { return r.tasks()[e.TaskUUID.String()] >= 1 })
	if left := h.Count(`SELECT count(*) FROM tasker.outbox WHERE written_in >= pg_snapshot_xmax(pg_current_snapshot())`); left > 0 {
		t.Errorf("%d events are not marked", left)
	}
}

// adopts has a relay without sinks mark the events of a restored database, which are many.
func (h *harness) adopts(many int) {
	h.Helper()
	adopter := emission.New(emission.Options{DB: h.DB})
	for passes := 1; ; passes++ {
		next, err := adopter.MarkRestored(h.Context())
		h.Must(err)
		if next == 0 {
			if passes <= many/1000 {
				h.Errorf("%d events are marked in %d passes", many, passes)
			}
			return
		}
	}
}

// The feed goes on after a restore although there is no sink, and who reads from the beginning
// misses none of the old events.
func TestTheFeedOfARestoredDatabaseGoesOn(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.investigate()
	h.restoreAll()
	live := feed.New(h.DB, feed.Options{Every: 5 * time.Millisecond})
	address := netip.MustParseAddr("192.0.2.1")
	now, err := live.Now(t.Context())
	h.Must(err)
	next := func(after feed.Cursor) func(notes string, n int) {
		r, err := live.Read(t.Context(), after, address)
		h.Must(err)
		t.Cleanup(r.Close)
		return func(what string, n int) {
			t.Helper()
			for got := 0; got < n; {
				list, err := r.Next(t.Context(), patience)
				if got += len(list); err != nil || len(list) == 0 || got > n {
					t.Fatalf("%s: got %d events and %v, want %d", what, got, err, n)
				}
			}
		}
	}
	follow := next(now)
	h.note(e, "later")
	follow("before the old events are marked", 1)
	if _, err := live.Read(t.Context(), feed.Cursor{}, address); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("read from the beginning: %v, want Unavailable", err)
	}
	h.adopts(1)
	h.note(e, "later still")
	follow("after the old events are marked", 1)
	next(feed.Cursor{})("from the beginning", 3)
}

// A database that is restored while servers run does not keep events from their
// sinks until the next restart.
func TestADatabaseIsRestoredUnderARunningServer(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("the sink is opened", func() bool { return h.Count(`SELECT count(*) FROM tasker.emission_sinks`) == 1 })
	before := h.investigate()
	h.Eventually("an event is received", func() bool { return r.tasks()[before.TaskUUID.String()] > 0 })
	h.restore()
	after := h.investigate()
	h.Eventually("an event of the restored database is received", func() bool { return r.tasks()[after.TaskUUID.String()] > 0 })
}

// A transaction that stays open, in whatever database of the server, does not make
// a new sink receive events that are older than it, and does not hold newer ones back.
func TestANewSinkIsToldOfWhatHappensFromThenOn(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.openTransaction()
	h.investigate()
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.relay(h.DB, nil, h.webhook(r.URL))
	for range 3 {
		e := h.investigate()
		h.Eventually("a newer event is received", func() bool { return r.tasks()[e.TaskUUID.String()] > 0 })
	}
	if got := r.tasks(); len(got) != 3 {
		t.Errorf("received events of %d tasks, want those of the three investigated since the sink was opened: %v", len(got), got)
	}
}

// openTransaction holds a transaction open, in another database of the same server,
// until the test has ended.
func (h *harness) openTransaction() {
	h.Helper()
	conn, err := pgx.Connect(h.Context(), pgtest.New(h.T).URL)
	h.Must(err)
	h.Cleanup(func() { h.Must(conn.Close(context.WithoutCancel(h.Context()))) })
	_, err = conn.Exec(h.Context(), `BEGIN; SELECT pg_current_xact_id()`)
	h.Must(err)
}

// restore leaves the database as a restore from a dump does, whose transactions are
// in the future of the server that it was restored to.
func (h *harness) restore() {
	h.Helper()
	h.Exec(`UPDATE tasker.emission_sinks SET taken_before = '999999999999', opened_in = '999999999999:999999999999:'`)
}

// restoreAll does so with all of it, as far as transactions are noted: what was before another is so still.
func (h *harness) restoreAll() {
	h.Helper()
	const later = `(%s::text::bigint + 900000000000)`
	at := func(x string) string { return fmt.Sprintf(later, x) }
	h.Exec(`UPDATE tasker.outbox SET written_in = ` + at("written_in") + `::text::xid8`)
	h.Exec(`
		UPDATE tasker.emission_sinks
		SET taken_before = ` + at("taken_before") + `::text::xid8,
			opened_in = (` + at("pg_snapshot_xmin(opened_in)") + ` || ':' || ` + at("pg_snapshot_xmax(opened_in)") + ` || ':' ||
				coalesce((SELECT string_agg(` + at("x") + `::text, ',' ORDER BY x) FROM pg_snapshot_xip(opened_in) x), ''))::pg_snapshot`)
}

// Events that the receiver cannot cope with do not keep it from others.
func TestOldEventsThatFailDoNotKeepOthersBack(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	poison := map[string]bool{}
	for range 40 {
		poison[h.investigate().TaskUUID.String()] = true
	}
	r.answer.Store(func(w http.ResponseWriter, e received) bool {
		if poison[e.TaskUUID] {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return poison[e.TaskUUID]
	})
	for range 10 {
		h.investigate()
	}
	h.relay(h.DB, nil, h.webhook(r.URL))
	h.Eventually("all others are published", func() bool { return h.states("webhook") == "40 pending, 10 published" })
}

// A sinkThatPanics panics on events of a task, and takes the others.
type sinkThatPanics struct {
	sink.Sink
	task tasker.ID
}

func (s sinkThatPanics) Emit(ctx context.Context, e tasker.Event) error {
	if e.TaskUUID == s.task {
		panic("no such field")
	}
	return s.Sink.Emit(ctx, e)
}

// An event on which a sink panics is set aside as one that the other side refuses, and ends nothing.
func TestAnEventOnWhichASinkPanics(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	bad := h.investigate()
	good := h.investigate()
	h.relay(h.DB, nil, sinkThatPanics{h.webhook(r.URL), bad.TaskUUID})
	h.Eventually("the event behind it is received", func() bool { return r.tasks()[good.TaskUUID.String()] > 0 })
	h.Eventually("why it was not sent is noted", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emissions WHERE task_uuid = $1 AND refusals > 0`, bad.TaskUUID) == 1
	})
}

func TestStoppingServerKeepsTheSinkState(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	r.says(http.StatusServiceUnavailable)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.investigate()
	stop := h.relay(h.DB, nil, h.webhook(r.URL))
	failing := func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE failing_since IS NOT NULL AND last_error IS NOT NULL`) == 1
	}
	h.Eventually("that is noted", failing)
	stop()
	if !failing() {
		t.Error("the sink looks well although nobody has tried it")
	}
}

// The rate holds over batches and is not saved up.
func TestTheRateIsKept(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	for range 30 {
		h.investigate()
	}
	var at atomic.Int64 // a clock that stands still until it is moved
	at.Store(time.Now().UnixNano())
	h.relay(h.DB, func(o *emission.Options) {
		o.PerSecond, o.Now = 10, func() time.Time { return time.Unix(0, at.Load()) }
	}, h.webhook(r.URL))
	for most := 20; most <= 30; most += 10 { // the first second's worth is saved up
		h.Eventually("that much is sent", func() bool { return len(r.all()) == most })
		h.Eventually("that is noted", func() bool { return strings.Contains(h.states("webhook"), fmt.Sprint(most, " published")) })
		if n := len(r.all()); n != most {
			t.Errorf("%d sent, want %d", n, most)
		}
		at.Add(int64(time.Second))
	}
}
