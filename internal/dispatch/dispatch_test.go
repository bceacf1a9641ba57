package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/dispatch"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/rabbitmq"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { os.Exit(mqtest.Run(func() int { return pgtest.Run(m) })) }

// patience is how long anything may take on a machine that has much else to do.
const patience = 2 * time.Minute

// A harness is a server with its own database on a broker, and workers.
type harness struct {
	*enginetest.Harness
	brokerURL string
	dlx       string
	broker    *amqp.Broker
	counts    *counts
	log       *lines
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns how many lines have the words.
func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// after returns what follows the words in each line that has them.
func (l *lines) after(words string) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.SplitSeq(l.text.String(), "\n") {
		if _, text, ok := strings.Cut(line, words); ok {
			list = append(list, text)
		}
	}
	return list
}

type options struct {
	url        string        // of the broker; the shared one by default
	queueTTL   time.Duration // of the broker's queues; 5 minutes by default
	limit      time.Duration // of the steps; the same by default
	lostAfter  time.Duration
	grace      time.Duration // of workers that could take nothing; none by default
	noAnnounce bool
	heartbeat  time.Duration // of the connection to the broker
}

func newHarness(t *testing.T, o options) *harness {
	t.Helper()
	if o.url == "" {
		o.url = mqtest.URL(t)
	}
	if o.queueTTL == 0 {
		o.queueTTL = 5 * time.Minute
	}
	if o.limit == 0 {
		o.limit = o.queueTTL
	}
	if o.grace == 0 {
		o.grace = -1
	}
	name := mqtest.Name(t)
	h := &harness{
		Harness:   enginetest.NewWith(t, postgres.Options{QueueTTL: o.limit, Announce: !o.noAnnounce}),
		brokerURL: o.url, dlx: name + ".dlx", counts: &counts{letters: map[string]int{}}, log: &lines{},
	}
	h.Space = name
	var err error
	h.broker, err = amqp.New(amqp.Options{
		URL: o.url, Exchange: name, QueueTTL: o.queueTTL, Heartbeat: o.heartbeat, DeadLetter: amqp.DeadLetter{Enabled: true, Exchange: h.dlx},
	})
	h.Must(err)
	var service *dispatch.Service
	h.Engine = engine.New(h.DB, engine.Options{
		Broker: engine.BrokerOptions{Dispatch: &tasker.Dispatch{Exchange: name, QueueTTL: o.queueTTL, DeadLetter: true, DeadLetterExchange: h.dlx, DeadLetterTTL: 24 * time.Hour}, QueueOf: amqp.QueueName},
		Hooks:  enginetest.Hooks{Enqueued: func() { service.Wake() }},
		Queues: engine.QueueOptions{MaxExpiries: 1000},
		Leases: engine.LeaseOptions{Duration: enginetest.Lease, ReconnectGrace: o.grace},
	})
	service = dispatch.New(dispatch.Options{
		Broker: h.broker, DB: h.DB, Engine: h.Engine, DeadLetters: true, LostAfter: o.lostAfter, ReconcileEvery: 100 * time.Millisecond, Counts: h.counts,
		Log: slog.New(slog.NewTextHandler(h.log, nil)),
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	h.Must(h.broker.Wait(h.within()))
	return h
}

func (h *harness) within() context.Context {
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	h.Cleanup(cancel)
	return ctx
}

// chain registers a chain of steps with one handler.
func (h *harness) chain(name string, handlers ...string) {
	h.Helper()
	var steps []tasker.StepTemplate
	for i, handler := range handlers {
		s := enginetest.Step(fmt.Sprint("s", i))
		s.Handler.Callable = handler
		if i > 0 {
			s.Dependencies = []string{fmt.Sprint("s", i-1)}
		}
		steps = append(steps, s)
	}
	h.Template(name, steps...)
}

func (h *harness) createMany(name string, n int) []tasker.ID {
	h.Helper()
	var ids []tasker.ID
	for n > 0 {
		requests := make([]tasker.NewTask, min(n, 500))
		for i := range requests {
			requests[i] = tasker.NewTask{Namespace: h.Space, Name: name}
		}
		created, err := h.Engine.CreateTasks(h.Context(), requests)
		h.Must(err)
		for _, c := range created {
			ids = append(ids, c.TaskUUID)
		}
		n -= len(requests)
	}
	return ids
}

func (h *harness) awaitComplete(n int) {
	h.Helper()
	h.Eventually(fmt.Sprintf("%d tasks are complete", n), func() bool {
		return h.Count(`SELECT count(*) FROM tasker.tasks WHERE state = 'complete'`) == n
	})
}

// counted is the engine with a note of how work was got.
type counted struct {
	*engine.Engine
	taken, claimed atomic.Int64
	given          atomic.Int64 // in answers to reports that made them ready
}

func (c *counted) TakeSteps(ctx context.Context, w tasker.ID, steps []tasker.StepRef) ([]tasker.Assignment, error) {
	list, err := c.Engine.TakeSteps(ctx, w, steps)
	c.taken.Add(int64(len(list)))
	return list, err
}

func (c *counted) Claim(ctx context.Context, w tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error) {
	list, err := c.Engine.Claim(ctx, w, limit, wait)
	c.claimed.Add(int64(len(list)))
	return list, err
}

func (c *counted) ReportReady(ctx context.Context, id tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	receipt, err := c.Engine.ReportReady(ctx, id, outcomes, claim)
	c.given.Add(int64(len(receipt.Next)))
	return receipt, err
}

// work runs a worker until the test has ended.
func (h *harness) work(handlers ...string) *counted { return h.workAt(h.brokerURL, handlers...) }

func (h *harness) workAt(url string, handlers ...string) *counted {
	h.Helper()
	c := &counted{Engine: h.Engine}
	w := worker.New(rabbitmq.NewBackend(c, rabbitmq.Options{URL: url}), worker.Options{Namespaces: []string{h.Space}, Concurrency: 20})
	for _, name := range handlers {
		worker.Handle(w, name, func(context.Context, *worker.Step[json.RawMessage]) (string, error) { return "done", nil })
	}
	ctx, stop := context.WithCancel(h.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	h.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			h.Error(err)
		}
	})
	return c
}

// channel opens a channel beside everything else.
func (h *harness) channel() *amqp091.Channel {
	h.Helper()
	conn, err := amqp091.Dial(h.brokerURL)
	h.Must(err)
	h.Cleanup(func() { _ = conn.Close() })
	c, err := conn.Channel()
	h.Must(err)
	return c
}

func (h *harness) depth(queue string) int {
	h.Helper()
	n, _, err := h.broker.Depth(h.within(), queue)
	if tasker.CodeOf(err) == tasker.NotFound {
		return -1 // nothing was announced yet
	}
	h.Must(err)
	return n
}

// awaitConsumer waits until a worker listens to the broker.
func (h *harness) awaitConsumer() {
	h.Helper()
	h.Eventually("a worker listens", func() bool {
		_, consumers, err := h.broker.Depth(h.within(), amqp.QueueName(h.Space))
		return err == nil && consumers > 0
	})
}

type counts struct {
	mu          sync.Mutex
	letters     map[string]int
	announced   int
	failed      int
	reannounced int
	slowest     time.Duration
}

func (c *counts) Announced(_ context.Context, confirmed, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced, c.failed = c.announced+confirmed, c.failed+failed
}

func (c *counts) Reannounced(_ context.Context, steps int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reannounced += steps
}

func (c *counts) DeadLetter(_ context.Context, outcome string, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.letters[outcome]++
	c.slowest = max(c.slowest, latency)
}

func (c *counts) letter(outcome string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.letters[outcome]
}

func TestStepsReachWorkersThroughTheBroker(t *testing.T) {
	h := newHarness(t, options{})
	h.letter("warm up", nil)
	h.Eventually("dead letters are consumed", func() bool { return h.counts.letter(dispatch.LetterForeign) == 1 })
	before := goleak.IgnoreCurrent()
	h.chain("chain", "run", "run", "run")
	t.Run("work", func(t *testing.T) {
		inner := *h
		inner.Harness = h.Copy(t)
		c := inner.work("run")
		inner.awaitConsumer()
		made, fewest := 0, int64(1000)
		for fewest > 20 && made < 1000 { // the first claim came before the connection; a loaded machine asks while messages are late
			before := c.claimed.Load()
			inner.createMany("chain", 100)
			made += 100
			inner.awaitComplete(made)
			fewest = min(fewest, c.claimed.Load()-before)
		}
		if taken, claimed, given := c.taken.Load(), c.claimed.Load(), c.given.Load(); int(taken+claimed+given) != 3*made || fewest > 20 {
			t.Errorf("%d steps by message, %d by asking and %d with answers, want %d in all; of 300 together %d by asking, want nearly none", taken, claimed, given, 3*made, fewest)
		}
	})
	// The worker is gone, with all that it had. A connection of the engine, which stays, reads beside a write that a busy
	// machine delays, and goes on until something comes.
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"))
	h.Eventually("the outbox is empty", func() bool { return h.Count(`SELECT count(*) FROM tasker.dispatch_outbox`) == 0 })
	if n := h.depth(amqp.QueueName(h.Space)); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// The integration test of the specification, scaled in time. No sweep runs here: what fails
// the step is the dead letter.
func TestAStepForWorkersThatAreAwayIsDeadLetteredAndGoesOnWhenOneIsThere(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{queueTTL: 500 * time.Millisecond})
	h.chain("lonely", "run")
	task := h.createMany("lonely", 1)[0]
	h.Eventually("the task has failed", func() bool { return h.State(task) == tasker.TaskError })
	e, err := h.DB.EntryOfTask(t.Context(), task)
	h.Must(err)
	if e.Reason != tasker.WorkerUnavailable || e.DetailCode != tasker.NoWorkers || e.DetectedBy != tasker.DetectedBroker {
		t.Errorf("the investigation is %s %s by %s", e.Reason, e.DetailCode, e.DetectedBy)
	}
	var evidence struct {
		Dispatch struct {
			Transport  string
			DeadLetter struct {
				Deaths []struct {
					Reason, Queue, Exchange string
					Count                   int64
					Time                    time.Time
				}
			} `json:"dead_letter"`
		}
	}
	h.Must(json.Unmarshal(e.Metadata, &evidence))
	deaths := evidence.Dispatch.DeadLetter.Deaths
	if len(deaths) != 1 || deaths[0].Reason != "expired" || deaths[0].Queue != amqp.QueueName(h.Space) || deaths[0].Count != 1 || deaths[0].Time.IsZero() {
		t.Errorf("the evidence is %s", e.Metadata)
	}
	h.Eventually("the letter is settled", func() bool { return h.counts.letter(dispatch.LetterExpired) == 1 })
	if n := h.depth(h.broker.DeadLetterQueue()); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	h.work("run")
	h.Eventually("the step is back, and complete", func() bool { // it may be too late for its time once more
		_, err := h.Engine.Redispatch(t.Context())
		h.Must(err)
		return h.State(task) == tasker.TaskComplete
	})
	if e, err = h.DB.EntryOfTask(t.Context(), task); err != nil || e.RecoveredAt == nil {
		t.Errorf("the investigation is not recovered: %v", err)
	}
}

// letter publishes a dead letter that no queue has died of.
func (h *harness) letter(kind string, body []byte) {
	h.Helper()
	err := h.channel().PublishWithContext(h.Context(), h.dlx, "x", false, false, amqp091.Publishing{Type: kind, MessageId: "m", Body: body})
	h.Must(err)
}

func body(task, step tasker.ID) []byte {
	return fmt.Appendf(nil, `{"task_uuid": %q, "step_uuid": %q}`, task, step)
}

func (h *harness) stepOf(task tasker.ID) tasker.Step {
	h.Helper()
	list, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	return list[0]
}

func TestDeadLettersAreSettledWhateverTheySay(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	h.chain("only", "run")
	waiting := h.createMany("only", 2)
	ended := waiting[1]
	h.Must(h.Engine.CancelTask(t.Context(), ended, "op", "not needed"))
	h.letter(rabbitmq.MessageType, []byte(`{"task_uuid": `))
	h.letter(rabbitmq.MessageType, []byte(`{"task_uuid": "7", "step_uuid": 9}`))
	h.letter(rabbitmq.MessageType, []byte(`{}`))
	h.letter(rabbitmq.MessageType, []byte{0xff, 0x00})
	h.letter("execution.completed", body(waiting[0], h.stepOf(waiting[0]).UUID))
	h.letter(rabbitmq.MessageType, body(tasker.NewID(), tasker.NewID()))
	h.letter(rabbitmq.MessageType, body(ended, h.stepOf(ended).UUID))
	h.letter(rabbitmq.MessageType, body(waiting[0], h.stepOf(waiting[0]).UUID)) // still has time
	want := map[string]int{dispatch.LetterInvalid: 4, dispatch.LetterForeign: 1, dispatch.LetterMoved: 2, dispatch.LetterAgain: 1}
	h.Eventually("all are settled", func() bool {
		for outcome, n := range want {
			if h.counts.letter(outcome) < n {
				return false
			}
		}
		return true
	})
	if s := h.stepOf(waiting[0]); s.State != tasker.StepEnqueued || s.Attempts != 1 {
		t.Errorf("the step that has time is %s after %d attempts", s.State, s.Attempts)
	}
	h.work("run")
	h.awaitComplete(1)
	for outcome, n := range want { // none has come again meanwhile
		if got := h.counts.letter(outcome); got != n {
			t.Errorf("%d %s, want %d", got, outcome, n)
		}
	}
	if n := h.depth(h.broker.DeadLetterQueue()); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

func TestADeadLetterThatTheDatabaseRefusesComesAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{queueTTL: 300 * time.Millisecond})
	h.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(`CREATE TRIGGER broken BEFORE INSERT ON tasker.tasks_dlq EXECUTE FUNCTION public.refuse()`)
	h.chain("lonely", "run")
	task := h.createMany("lonely", 1)[0]
	h.letter(rabbitmq.MessageType, []byte(`not a letter`)) // is dropped all the same, and once
	h.Eventually("it was tried twice", func() bool { return h.counts.letter(dispatch.LetterRetried) >= 2 })
	if s := h.State(task); s != tasker.TaskStepsInProcess {
		t.Errorf("the task is %s", s)
	}
	h.Exec(`DROP TRIGGER broken ON tasker.tasks_dlq`)
	h.Eventually("the task has failed", func() bool { return h.State(task) == tasker.TaskError })
	h.Eventually("the letter is settled", func() bool { return h.counts.letter(dispatch.LetterExpired) == 1 })
	if n := h.counts.letter(dispatch.LetterInvalid); n != 1 {
		t.Errorf("%d letters were dropped, want 1", n)
	}
}

func TestAStepWithMoreTimeThanItsQueueIsAnnouncedAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{queueTTL: 200 * time.Millisecond, limit: time.Hour})
	h.chain("patient", "run")
	task := h.createMany("patient", 1)[0]
	h.Eventually("it was announced again twice", func() bool { return h.counts.letter(dispatch.LetterAgain) >= 2 })
	if s := h.State(task); s != tasker.TaskStepsInProcess {
		t.Fatalf("the task is %s", s)
	}
	h.work("run")
	h.awaitComplete(1)
}

func TestAnAnnouncementThatIsLostIsFound(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{lostAfter: time.Millisecond})
	h.chain("only", "run")
	h.createMany("only", 20)
	h.Eventually("all are announced", func() bool { // some twice, where an announcement counts as lost while it is made
		return h.depth(amqp.QueueName(h.Space)) >= 20 && h.Count(`SELECT count(*) FROM tasker.dispatch_outbox`) == 0
	})
	again := func() int {
		h.counts.mu.Lock()
		defer h.counts.mu.Unlock()
		return h.counts.reannounced
	}
	before := again()
	_, err := h.channel().QueuePurge(amqp.QueueName(h.Space), false)
	h.Must(err)
	h.Eventually("they are announced again", func() bool { return again() >= before+20 })
	h.work("run")
	h.awaitComplete(20)
}

func TestAStepFindsTheWorkerThatHasItsHandler(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	h.chain("both", "pack", "ship")
	h.work("pack")
	h.work("ship")
	h.createMany("both", 10)
	h.awaitComplete(10)
}

func TestWhatIsTakenAlreadyIsPassedOver(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	h.chain("only", "run")
	w, err := h.Engine.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "asks", Namespaces: []string{h.Space}, Handlers: []string{"run"}, MaxConcurrency: 50})
	h.Must(err)
	h.createMany("only", 40)
	h.Eventually("all are announced", func() bool { return h.depth(amqp.QueueName(h.Space)) == 40 })
	list, err := h.Engine.Claim(t.Context(), w.WorkerUUID, 25, 0)
	h.Must(err)
	h.work("run")
	h.awaitComplete(15)
	h.Eventually("the messages of the others are gone", func() bool { return h.depth(amqp.QueueName(h.Space)) == 0 })
	outcomes := make([]tasker.Outcome, len(list))
	for i, a := range list {
		outcomes[i] = tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`1`)}
	}
	_, err = h.Engine.Report(t.Context(), w.WorkerUUID, outcomes, 0)
	h.Must(err)
	h.awaitComplete(40)
}

func TestAMessageThatNamesNoStepBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	h.chain("only", "run")
	h.work("run")
	h.awaitConsumer()
	h.createMany("only", 1)
	h.awaitComplete(1)
	err := h.channel().PublishWithContext(t.Context(), h.Space, amqp.RoutingKey(h.Space), true, false, amqp091.Publishing{Type: rabbitmq.MessageType, Body: []byte(`?`)})
	h.Must(err)
	h.Eventually("it was dropped", func() bool { return h.counts.letter(dispatch.LetterInvalid) == 1 })
	h.createMany("only", 1)
	h.awaitComplete(2)
}

func TestACanaryProvesTheWayOfDeadLetters(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	h.Eventually("one has come back", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.dispatch_canary WHERE returned_at > sent_at`) == 1
	})
	missing := func() time.Duration {
		t.Helper()
		m, err := h.DB.FindMissingCanary(t.Context(), dispatch.CanaryTimeout)
		h.Must(err)
		return m
	}
	if m := missing(); m != 0 {
		t.Errorf("a canary that came back is missing for %s", m)
	}
	h.Exec(`UPDATE tasker.dispatch_canary SET sent_at = now() - interval '31 seconds', returned_at = now() - interval '1 hour'`)
	if m := missing(); m < 31*time.Second {
		t.Errorf("a canary that did not come back is missing for %s", m)
	}
	for want, every := range map[bool]time.Duration{false: time.Hour, true: 10 * time.Second} {
		if send, err := h.DB.SendCanary(t.Context(), every); err != nil || send != want {
			t.Errorf("a canary is sent after %s: %t, %v", every, send, err)
		}
	}
}

func TestAQueueThatTheBrokerRefusesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	_, err := h.channel().QueueDeclare(amqp.QueueName(h.Space), true, false, false, false, amqp091.Table{"x-message-ttl": int64(7)})
	h.Must(err)
	h.chain("refused", "run")
	h.createMany("refused", 600) // more than one batch
	other := *h
	other.Harness = h.Copy(t)
	other.Space = mqtest.Name(t)
	other.chain("fine", "run")
	other.work("run")
	other.awaitConsumer()
	other.createMany("fine", 5)
	other.awaitComplete(5)
	h.Eventually("what is refused waits", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.dispatch_outbox WHERE due_at > created_at`) == 600
	})
	h.work("run") // its consumer is refused as well: it asks
	h.awaitComplete(605)
}

// The queue is there, and cannot be used for now: it belongs to another connection.
func TestAQueueThatTakesNothingForNowHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	_, err := h.channel().QueueDeclare(amqp.QueueName(h.Space), false, false, true, false, nil)
	h.Must(err)
	h.chain("refused", "run")
	h.createMany("refused", 600) // more than one batch
	other := *h
	other.Harness = h.Copy(t)
	other.Space = mqtest.Name(t)
	other.chain("fine", "run")
	other.createMany("fine", 5)
	h.Eventually("the others are announced", func() bool {
		h.counts.mu.Lock()
		defer h.counts.mu.Unlock()
		return h.counts.announced == 5
	})
	h.Eventually("what is refused waits", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.dispatch_outbox WHERE due_at > created_at`) == 600
	})
	reasons := h.log.after("announcing steps failed")
	if len(reasons) == 0 || len(reasons) > 3 || len(slices.Compact(slices.Clone(reasons))) < len(reasons) { // each once, and again after another one
		t.Errorf("that is logged %d times: %q", len(reasons), reasons)
	}
}

// While the broker itself takes nothing, announcements do not rest: they go out as soon as it does.
func TestAnnouncementsOfABrokerThatIsAwayDoNotRest(t *testing.T) {
	t.Parallel()
	proxy := mqtest.Proxy(t, mqtest.URL(t))
	h := newHarness(t, options{url: proxy.URL, heartbeat: time.Second})
	h.chain("only", "run")
	h.createMany("only", 1)
	h.Eventually("it is announced", func() bool { return h.depth(amqp.QueueName(h.Space)) == 1 })
	proxy.Freeze()
	h.createMany("only", 1)
	h.Eventually("the next is not", func() bool { return h.log.count("announcing steps failed") > 0 })
	if n := h.Count(`SELECT count(*) FROM tasker.dispatch_outbox WHERE due_at <= clock_timestamp()`); n != 1 {
		t.Errorf("%d announcements are due", n)
	}
	proxy.Thaw()
	h.Eventually("it is announced", func() bool { return h.Count(`SELECT count(*) FROM tasker.dispatch_outbox`) == 0 })
}

func TestDeadLettersWaitForWorkersThatCouldTakeNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{queueTTL: 200 * time.Millisecond, grace: time.Hour}) // the server has just started
	h.chain("lonely", "run")
	task := h.createMany("lonely", 1)[0]
	h.Eventually("it was announced again", func() bool { return h.counts.letter(dispatch.LetterAgain) >= 1 })
	if s := h.State(task); s != tasker.TaskStepsInProcess {
		t.Errorf("the task is %s", s)
	}
}

// A worker that is busy keeps no message from others.
func TestABusyWorkerKeepsNothingFromOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	h.chain("only", "run")
	release := make(chan struct{})
	busy := worker.New(rabbitmq.NewBackend(h.Engine, rabbitmq.Options{URL: h.brokerURL}), worker.Options{Namespaces: []string{h.Space}, Concurrency: 3})
	worker.Handle(busy, "run", func(ctx context.Context, _ *worker.Step[json.RawMessage]) (string, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return "done", nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- busy.Run(ctx) }()
	h.awaitConsumer()
	h.createMany("only", 6)
	h.Eventually("it is busy", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'in_progress'`) == 3
	})
	h.Eventually("it has stopped to listen", func() bool {
		_, consumers, err := h.broker.Depth(h.within(), amqp.QueueName(h.Space))
		return err == nil && consumers == 0
	})
	h.Eventually("what it cannot take is there for others", func() bool { return h.depth(amqp.QueueName(h.Space)) >= 3 })
	c := h.work("run")
	h.awaitComplete(3)
	t.Logf("%d of the others came by message", c.taken.Load())
	close(release)
	h.awaitComplete(6)
	stop()
	h.Must(<-ended)
}

func TestALetterThatCannotBeNotedIsSettledAllTheSame(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{queueTTL: time.Hour})
	h.chain("only", "run")
	task := h.createMany("only", 1)[0]
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp()`)
	_, err := h.Engine.ExpireSteps(t.Context())
	h.Must(err)
	h.Exec(`UPDATE tasker.tasks_dlq SET metadata = '{"dispatch": [1]}'`) // as an operator may
	h.letter(rabbitmq.MessageType, body(task, h.stepOf(task).UUID))
	h.Eventually("it is settled", func() bool { return h.counts.letter(dispatch.LetterMoved) == 1 })
}

func TestALetterWithAWrongTaskHidesNoOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{queueTTL: 300 * time.Millisecond})
	h.chain("only", "run")
	task := h.createMany("only", 1)[0]
	h.letter(rabbitmq.MessageType, body(tasker.NewID(), h.stepOf(task).UUID))
	h.Eventually("both are settled", func() bool {
		return h.counts.letter(dispatch.LetterMoved) == 1 && h.counts.letter(dispatch.LetterExpired) == 1
	})
}

// A step that waits for a place of a limit is announced when there is one, also if whoever gave it back cannot execute the step.
func TestAStepIsAnnouncedWhenItsLimitHasAPlace(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	h.chain("first", "pack")
	h.chain("other", "ship")
	_, err := h.Engine.SetLimit(t.Context(), tasker.LimitRef{Kind: tasker.NamespaceLimit, Namespace: h.Space}, tasker.LimitValue{MaxInProgress: 1}, engine.LimitChange{Actor: "ann"})
	h.Must(err)
	h.RunLoops()
	packer := h.RegisterWorker("pack")
	shipper := h.work("ship")
	h.awaitConsumer()
	for round := range 3 {
		h.createMany("first", 1)
		list, err := h.Engine.Claim(t.Context(), packer, 1, 0)
		h.Must(err)
		if len(list) != 1 {
			t.Fatalf("claimed %d steps", len(list))
		}
		h.createMany("other", 1)
		h.Eventually("the step waits for the limit", func() bool {
			return h.Count(`SELECT count(*) FROM tasker.held_steps WHERE limit_key_id IS NOT NULL`) == 1
		})
		_, err = h.Engine.Report(t.Context(), packer, []tasker.Outcome{{Lease: list[0].Lease(), Success: true}}, 0)
		h.Must(err)
		h.awaitComplete(2 * (round + 1))
	}
	if shipper.taken.Load() == 0 {
		t.Errorf("no step that waited for a place came by message, and %d by asking", shipper.claimed.Load())
	}
}
