package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
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
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/rabbitmq"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { os.Exit(mqtest.Run(func() int { return pgtest.Run(m) })) }

// patience is how long anything may take on a machine that has much else to do.
const patience = 2 * time.Minute

// A house is a server with its own database on a broker, and workers.
type house struct {
	*testing.T
	url    string // of the broker
	space  string // the namespace
	dlx    string
	db     *postgres.DB
	engine *engine.Engine
	broker *amqp.Broker
	counts *counts
}

type options struct {
	url        string        // of the broker; the shared one by default
	queueTTL   time.Duration // of the broker's queues; 5 minutes by default
	limit      time.Duration // of the steps; the same by default
	lostAfter  time.Duration
	grace      time.Duration // of workers that could take nothing; none by default
	noAnnounce bool
}

func newHouse(t *testing.T, o options) *house {
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
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	h := &house{T: t, url: o.url, space: name, dlx: name + ".dlx"}
	var err error
	h.db, err = postgres.Open(t.Context(), d.URL, postgres.Options{QueueTTL: o.limit, Announce: !o.noAnnounce})
	h.must(err)
	t.Cleanup(h.db.Close)
	h.broker, err = amqp.New(amqp.Options{
		URL: o.url, Exchange: name, QueueTTL: o.queueTTL, DeadLetter: amqp.DeadLetter{Enabled: true, Exchange: h.dlx},
	})
	h.must(err)
	var service *dispatch.Service
	h.engine = engine.New(h.db, engine.Options{
		Dispatch: &tasker.Dispatch{Exchange: name, QueueTTL: o.queueTTL, DeadLetter: true, DeadLetterExchange: h.dlx, DeadLetterTTL: 24 * time.Hour},
		QueueOf:  amqp.QueueOf, Enqueued: func() { service.Wake() }, MaxQueueExpiries: 1000, ReturnGrace: o.grace,
	})
	h.counts = &counts{letters: map[string]int{}}
	service = dispatch.New(dispatch.Options{
		Broker: h.broker, DB: h.db, Engine: h.engine, DeadLetters: true, LostAfter: o.lostAfter, ReconcileEvery: 100 * time.Millisecond, Counts: h.counts,
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
	h.must(h.broker.Wait(h.within()))
	return h
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *house) within() context.Context {
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	h.Cleanup(cancel)
	return ctx
}

// eventually asks until it is true.
func (h *house) eventually(what string, is func() bool) {
	h.Helper()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-deadline:
			h.Fatalf("waited in vain until %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (h *house) exec(sql string, args ...any) {
	h.Helper()
	_, err := h.db.Pool().Exec(h.Context(), sql, args...)
	h.must(err)
}

func (h *house) count(sql string) (n int) {
	h.Helper()
	h.must(h.db.Pool().QueryRow(h.Context(), sql).Scan(&n))
	return n
}

// template registers a chain of steps with one handler.
func (h *house) template(name string, handlers ...string) {
	h.Helper()
	var steps []tasker.StepTemplate
	for i, handler := range handlers {
		s := tasker.StepTemplate{
			Name: fmt.Sprint("s", i), Type: tasker.StandardStep, Handler: tasker.Handler{Callable: handler}, Retry: tasker.DefaultRetry(),
		}
		if i > 0 {
			s.Dependencies = []string{fmt.Sprint("s", i-1)}
		}
		steps = append(steps, s)
	}
	_, _, err := h.engine.RegisterTemplate(h.Context(), tasker.Template{Namespace: h.space, Name: name, Version: "1.0.0", Steps: steps}, "")
	h.must(err)
}

func (h *house) create(name string, n int) []tasker.ID {
	h.Helper()
	var ids []tasker.ID
	for n > 0 {
		requests := make([]tasker.NewTask, min(n, 500))
		for i := range requests {
			requests[i] = tasker.NewTask{Namespace: h.space, Name: name}
		}
		created, err := h.engine.CreateTasks(h.Context(), requests)
		h.must(err)
		for _, c := range created {
			ids = append(ids, c.TaskUUID)
		}
		n -= len(requests)
	}
	return ids
}

func (h *house) state(task tasker.ID) tasker.TaskState {
	h.Helper()
	t, err := h.db.Task(h.Context(), task)
	h.must(err)
	return t.State
}

func (h *house) awaitComplete(n int) {
	h.Helper()
	h.eventually(fmt.Sprintf("%d tasks are complete", n), func() bool {
		return h.count(`SELECT count(*) FROM tasker.tasks WHERE state = 'complete'`) == n
	})
}

// counted is the engine with a note of how work was got.
type counted struct {
	*engine.Engine
	taken, claimed atomic.Int64
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

// work runs a worker until the test has ended.
func (h *house) work(handlers ...string) *counted { return h.workAt(h.url, handlers...) }

func (h *house) workAt(url string, handlers ...string) *counted {
	h.Helper()
	c := &counted{Engine: h.engine}
	w := worker.New(rabbitmq.NewBackend(c, rabbitmq.Options{URL: url}), worker.Options{Namespaces: []string{h.space}, Concurrency: 20})
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
func (h *house) channel() *amqp091.Channel {
	h.Helper()
	conn, err := amqp091.Dial(h.url)
	h.must(err)
	h.Cleanup(func() { _ = conn.Close() })
	c, err := conn.Channel()
	h.must(err)
	return c
}

func (h *house) depth(queue string) int {
	h.Helper()
	n, _, err := h.broker.Depth(h.within(), queue)
	if tasker.CodeOf(err) == tasker.NotFound {
		return -1 // nothing was announced yet
	}
	h.must(err)
	return n
}

// awaitConsumer waits until a worker listens to the broker.
func (h *house) awaitConsumer() {
	h.Helper()
	h.eventually("a worker listens", func() bool {
		_, consumers, err := h.broker.Depth(h.within(), amqp.QueueOf(h.space))
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
	h := newHouse(t, options{})
	h.letter("warm up", nil)
	h.eventually("dead letters are consumed", func() bool { return h.counts.letter(dispatch.LetterForeign) == 1 })
	before := goleak.IgnoreCurrent()
	h.template("chain", "run", "run", "run")
	t.Run("work", func(t *testing.T) {
		inner := *h
		inner.T = t
		c := inner.work("run")
		inner.awaitConsumer()
		inner.create("chain", 100)
		inner.awaitComplete(100)
		if taken, claimed := c.taken.Load(), c.claimed.Load(); taken+claimed != 300 || claimed > 20 { // the first claim came before the connection
			t.Errorf("%d steps by message and %d by asking, want 300 in all and nearly none by asking", taken, claimed)
		}
	})
	goleak.VerifyNone(t, before) // the worker is gone, with all that it had
	h.eventually("the outbox is empty", func() bool { return h.count(`SELECT count(*) FROM tasker.dispatch_outbox`) == 0 })
	if n := h.depth(amqp.QueueOf(h.space)); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// The integration test of the specification, scaled in time. No sweep runs here: what fails
// the step is the dead letter.
func TestAStepForWorkersThatAreAwayIsDeadLetteredAndGoesOnWhenOneIsThere(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{queueTTL: 500 * time.Millisecond})
	h.template("lonely", "run")
	task := h.create("lonely", 1)[0]
	h.eventually("the task has failed", func() bool { return h.state(task) == tasker.TaskError })
	e, err := h.db.EntryOfTask(t.Context(), task)
	h.must(err)
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
	h.must(json.Unmarshal(e.Metadata, &evidence))
	deaths := evidence.Dispatch.DeadLetter.Deaths
	if len(deaths) != 1 || deaths[0].Reason != "expired" || deaths[0].Queue != amqp.QueueOf(h.space) || deaths[0].Count != 1 || deaths[0].Time.IsZero() {
		t.Errorf("the evidence is %s", e.Metadata)
	}
	h.eventually("the letter is settled", func() bool { return h.counts.letter(dispatch.LetterExpired) == 1 })
	if n := h.depth(h.broker.DeadLetterQueue()); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	h.work("run")
	h.eventually("the step is back", func() bool {
		_, err := h.engine.Redispatch(t.Context())
		h.must(err)
		return h.state(task) != tasker.TaskError
	})
	h.awaitComplete(1)
	if e, err = h.db.EntryOfTask(t.Context(), task); err != nil || e.RecoveredAt == nil {
		t.Errorf("the investigation is not recovered: %v", err)
	}
}

// letter publishes a dead letter that no queue has died of.
func (h *house) letter(kind string, body []byte) {
	h.Helper()
	err := h.channel().PublishWithContext(h.Context(), h.dlx, "x", false, false, amqp091.Publishing{Type: kind, MessageId: "m", Body: body})
	h.must(err)
}

func body(task, step tasker.ID) []byte {
	return fmt.Appendf(nil, `{"task_uuid": %q, "step_uuid": %q}`, task, step)
}

func (h *house) stepOf(task tasker.ID) tasker.Step {
	h.Helper()
	list, err := h.db.Steps(h.Context(), task)
	h.must(err)
	return list[0]
}

func TestDeadLettersAreSettledWhateverTheySay(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{})
	h.template("only", "run")
	waiting := h.create("only", 2)
	ended := waiting[1]
	h.must(h.engine.CancelTask(t.Context(), ended, "op", "not needed"))
	h.letter(rabbitmq.MessageType, []byte(`{"task_uuid": `))
	h.letter(rabbitmq.MessageType, []byte(`{"task_uuid": "7", "step_uuid": 9}`))
	h.letter(rabbitmq.MessageType, []byte(`{}`))
	h.letter(rabbitmq.MessageType, []byte{0xff, 0x00})
	h.letter("execution.completed", body(waiting[0], h.stepOf(waiting[0]).UUID))
	h.letter(rabbitmq.MessageType, body(tasker.NewID(), tasker.NewID()))
	h.letter(rabbitmq.MessageType, body(ended, h.stepOf(ended).UUID))
	h.letter(rabbitmq.MessageType, body(waiting[0], h.stepOf(waiting[0]).UUID)) // still has time
	want := map[string]int{dispatch.LetterInvalid: 4, dispatch.LetterForeign: 1, dispatch.LetterMoved: 2, dispatch.LetterAgain: 1}
	h.eventually("all are settled", func() bool {
		for outcome, n := range want {
			if h.counts.letter(outcome) < n {
				return false
			}
		}
		return true
	})
	for outcome, n := range want {
		if got := h.counts.letter(outcome); got != n {
			t.Errorf("%d %s, want %d", got, outcome, n)
		}
	}
	if n := h.depth(h.broker.DeadLetterQueue()); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	if s := h.stepOf(waiting[0]); s.State != tasker.StepEnqueued || s.Attempts != 1 {
		t.Errorf("the step that has time is %s after %d attempts", s.State, s.Attempts)
	}
	h.work("run")
	h.awaitComplete(1)
}

func TestADeadLetterThatTheDatabaseRefusesComesAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{queueTTL: 300 * time.Millisecond})
	h.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.exec(`CREATE TRIGGER broken BEFORE INSERT ON tasker.tasks_dlq EXECUTE FUNCTION public.refuse()`)
	h.template("lonely", "run")
	task := h.create("lonely", 1)[0]
	h.letter(rabbitmq.MessageType, []byte(`not a letter`)) // is dropped all the same, and once
	h.eventually("it was tried twice", func() bool { return h.counts.letter(dispatch.LetterRetried) >= 2 })
	if s := h.state(task); s != tasker.TaskStepsInProcess {
		t.Errorf("the task is %s", s)
	}
	h.exec(`DROP TRIGGER broken ON tasker.tasks_dlq`)
	h.eventually("the task has failed", func() bool { return h.state(task) == tasker.TaskError })
	h.eventually("the letter is settled", func() bool { return h.counts.letter(dispatch.LetterExpired) == 1 })
	if n := h.counts.letter(dispatch.LetterInvalid); n != 1 {
		t.Errorf("%d letters were dropped, want 1", n)
	}
}

func TestAStepWithMoreTimeThanItsQueueIsAnnouncedAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{queueTTL: 200 * time.Millisecond, limit: time.Hour})
	h.template("patient", "run")
	task := h.create("patient", 1)[0]
	h.eventually("it was announced again twice", func() bool { return h.counts.letter(dispatch.LetterAgain) >= 2 })
	if s := h.state(task); s != tasker.TaskStepsInProcess {
		t.Fatalf("the task is %s", s)
	}
	h.work("run")
	h.awaitComplete(1)
}

func TestAnAnnouncementThatIsLostIsFound(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{lostAfter: time.Millisecond})
	h.template("only", "run")
	h.create("only", 20)
	h.eventually("all are announced", func() bool { return h.depth(amqp.QueueOf(h.space)) == 20 })
	_, err := h.channel().QueuePurge(amqp.QueueOf(h.space), false)
	h.must(err)
	h.eventually("they are announced again", func() bool {
		h.counts.mu.Lock()
		defer h.counts.mu.Unlock()
		return h.counts.reannounced >= 20
	})
	h.work("run")
	h.awaitComplete(20)
}

func TestAStepFindsTheWorkerThatHasItsHandler(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{})
	h.template("both", "pack", "ship")
	h.work("pack")
	h.work("ship")
	h.create("both", 10)
	h.awaitComplete(10)
}

func TestWhatIsTakenAlreadyIsPassedOver(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{})
	h.template("only", "run")
	w, err := h.engine.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "asks", Namespaces: []string{h.space}, Handlers: []string{"run"}, MaxConcurrency: 50})
	h.must(err)
	h.create("only", 40)
	h.eventually("all are announced", func() bool { return h.depth(amqp.QueueOf(h.space)) == 40 })
	list, err := h.engine.Claim(t.Context(), w.WorkerUUID, 25, 0)
	h.must(err)
	h.work("run")
	h.awaitComplete(15)
	h.eventually("the messages of the others are gone", func() bool { return h.depth(amqp.QueueOf(h.space)) == 0 })
	outcomes := make([]tasker.Outcome, len(list))
	for i, a := range list {
		outcomes[i] = tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`1`)}
	}
	_, err = h.engine.Report(t.Context(), w.WorkerUUID, outcomes, 0)
	h.must(err)
	h.awaitComplete(40)
}

func TestAMessageThatNamesNoStepBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{})
	h.template("only", "run")
	h.work("run")
	h.awaitConsumer()
	h.create("only", 1)
	h.awaitComplete(1)
	err := h.channel().PublishWithContext(t.Context(), h.space, amqp.RoutingKey(h.space), true, false, amqp091.Publishing{Type: rabbitmq.MessageType, Body: []byte(`?`)})
	h.must(err)
	h.eventually("it was dropped", func() bool { return h.counts.letter(dispatch.LetterInvalid) == 1 })
	h.create("only", 1)
	h.awaitComplete(2)
}

func TestACanaryProvesTheWayOfDeadLetters(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{})
	h.eventually("one has come back", func() bool {
		return h.count(`SELECT count(*) FROM tasker.dispatch_canary WHERE returned_at > sent_at`) == 1
	})
	missing := func() time.Duration {
		t.Helper()
		m, err := h.db.CanaryMissing(t.Context(), dispatch.CanaryPatience)
		h.must(err)
		return m
	}
	if m := missing(); m != 0 {
		t.Errorf("a canary that came back is missing for %s", m)
	}
	h.exec(`UPDATE tasker.dispatch_canary SET sent_at = now() - interval '31 seconds', returned_at = now() - interval '1 hour'`)
	if m := missing(); m < 31*time.Second {
		t.Errorf("a canary that did not come back is missing for %s", m)
	}
	for want, every := range map[bool]time.Duration{false: time.Hour, true: 10 * time.Second} {
		if send, err := h.db.SendCanary(t.Context(), every); err != nil || send != want {
			t.Errorf("a canary is sent after %s: %t, %v", every, send, err)
		}
	}
}

func TestAQueueThatTheBrokerRefusesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{})
	_, err := h.channel().QueueDeclare(amqp.QueueOf(h.space), true, false, false, false, amqp091.Table{"x-message-ttl": int64(7)})
	h.must(err)
	h.template("refused", "run")
	h.create("refused", 600) // more than one batch
	other := *h
	other.space = mqtest.Name(t)
	other.template("fine", "run")
	other.work("run")
	other.awaitConsumer()
	other.create("fine", 5)
	other.awaitComplete(5)
	h.eventually("what is refused waits", func() bool {
		return h.count(`SELECT count(*) FROM tasker.dispatch_outbox WHERE due_at > created_at`) == 600
	})
	h.work("run") // its consumer is refused as well: it asks
	h.awaitComplete(605)
}

func TestDeadLettersWaitForWorkersThatCouldTakeNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{queueTTL: 200 * time.Millisecond, grace: time.Hour}) // the server has just started
	h.template("lonely", "run")
	task := h.create("lonely", 1)[0]
	h.eventually("it was announced again", func() bool { return h.counts.letter(dispatch.LetterAgain) >= 1 })
	if s := h.state(task); s != tasker.TaskStepsInProcess {
		t.Errorf("the task is %s", s)
	}
}

// A worker that is busy keeps no message from others.
func TestABusyWorkerKeepsNothingFromOthers(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{})
	h.template("only", "run")
	release := make(chan struct{})
	busy := worker.New(rabbitmq.NewBackend(h.engine, rabbitmq.Options{URL: h.url}), worker.Options{Namespaces: []string{h.space}, Concurrency: 3})
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
	h.create("only", 6)
	h.eventually("it is busy", func() bool {
		return h.count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'in_progress'`) == 3
	})
	h.eventually("it has stopped to listen", func() bool {
		_, consumers, err := h.broker.Depth(h.within(), amqp.QueueOf(h.space))
		return err == nil && consumers == 0
	})
	c := h.work("run")
	h.awaitComplete(3)
	t.Logf("%d of the others came by message", c.taken.Load())
	close(release)
	h.awaitComplete(6)
	stop()
	h.must(<-ended)
}

func TestALetterThatCannotBeNotedIsSettledAllTheSame(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{queueTTL: time.Hour})
	h.template("only", "run")
	task := h.create("only", 1)[0]
	h.exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp()`)
	_, err := h.engine.ExpireSteps(t.Context())
	h.must(err)
	h.exec(`UPDATE tasker.tasks_dlq SET metadata = '{"dispatch": [1]}'`) // as an operator may
	h.letter(rabbitmq.MessageType, body(task, h.stepOf(task).UUID))
	h.eventually("it is settled", func() bool { return h.counts.letter(dispatch.LetterMoved) == 1 })
}

func TestALetterWithAWrongTaskHidesNoOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t, options{queueTTL: 300 * time.Millisecond})
	h.template("only", "run")
	task := h.create("only", 1)[0]
	h.letter(rabbitmq.MessageType, body(tasker.NewID(), h.stepOf(task).UUID))
	h.eventually("both are settled", func() bool {
		return h.counts.letter(dispatch.LetterMoved) == 1 && h.counts.letter(dispatch.LetterExpired) == 1
	})
}
