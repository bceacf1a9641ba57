package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/rabbitmq"
)

const (
	overPostgres = "postgres"
	overRabbitMQ = "rabbitmq"
)

// A fleet is a server with a database of its own, and workers, over one of the
// transports. A worker that is silent for three seconds has lost its steps.
type fleet struct {
	*testing.T
	transport string
	space     string // the namespace
	broker    string // where its queues can be looked at; empty without a broker
	pool      *pgxpool.Pool
	server    *process
	url       string
	client    *client.Client
	workers   []*process
	created   int           // tasks
	limit     time.Duration // that a step waits for a worker
}

type fleetOptions struct {
	transport string
	broker    string        // the shared one by default
	dial      string        // the broker's URL as the server knows it; the same by default
	limit     time.Duration // that a step waits for a worker; 5 minutes by default
}

func newFleet(t *testing.T, o fleetOptions) *fleet {
	t.Helper()
	database := pgtest.New(t)
	database.CheckAtEnd(t) // no step completed twice, no task without a way forward, …
	f := &fleet{T: t, transport: o.transport, space: mqtest.Name(t), broker: o.broker, limit: o.limit, pool: database.Pool(t)}
	env := []string{"TASKER_WORKERS_LEASE_SECONDS=3", "TASKER_WORKERS_HEARTBEAT_INTERVAL_SECONDS=1"}
	if o.limit != 0 {
		env = append(env, fmt.Sprint("TASKER_MESSAGE_QUEUE_RABBITMQ_WORKER_QUEUE_TTL_MS=", o.limit.Milliseconds()),
			"TASKER_MESSAGE_QUEUE_RABBITMQ_SWEEP_GRACE_MS=600000") // a dead letter may come late
	}
	if o.transport == overRabbitMQ {
		if f.broker == "" {
			f.broker = mqtest.URL(t)
		}
		if o.dial == "" {
			o.dial = f.broker
		}
		env = append(env,
			"TASKER_MESSAGE_QUEUE_TRANSPORT=rabbitmq", "TASKER_MESSAGE_QUEUE_RABBITMQ_URL="+o.dial,
			"TASKER_MESSAGE_QUEUE_RABBITMQ_EXCHANGE="+f.space, "TASKER_MESSAGE_QUEUE_RABBITMQ_DEAD_LETTER_EXCHANGE="+f.deadLetterExchange())
	}
	f.server = serve(t, database.URL, env...)
	f.url = f.server.url()
	f.client = newClient(t, f.url)
	_, err := f.client.RegisterTemplate(t.Context(), fmt.Appendf(nil, fleetTemplates, f.space), client.YAML)
	must(t, err)
	return f
}

// fleetTemplates is a template of four steps in a row.
const fleetTemplates = `
namespace_name: %s
name: chain
version: 1.0.0
steps:
  - name: a
    retry: {max_attempts: 10, backoff_base_ms: 20}
    handler: {callable: slow}
  - name: b
    retry: {max_attempts: 10, backoff_base_ms: 20}
    dependencies: [a]
    handler: {callable: slow}
  - name: c
    retry: {max_attempts: 10, backoff_base_ms: 20}
    dependencies: [b]
    handler: {callable: slow}
  - name: d
    retry: {max_attempts: 10, backoff_base_ms: 20}
    dependencies: [c]
    handler: {callable: slow}
`

const chainSteps = 4

func (f *fleet) deadLetterExchange() string { return f.space + ".dlx" }
func (f *fleet) deadLetterQueue() string    { return f.deadLetterExchange() + ".queue" }

// work starts workers, which know the broker under the URL.
func (f *fleet) work(n int, dial string) {
	f.Helper()
	env := []string{namespaceEnv + "=" + f.space}
	if f.transport == overRabbitMQ {
		env = append(env, brokerEnv+"="+dial)
	}
	for range n {
		f.workers = append(f.workers, startWorker(f.T, f.url, "", env...))
	}
}

func (f *fleet) create(n int) []tasker.ID {
	f.Helper()
	f.created += n
	var ids []tasker.ID
	for n > 0 {
		list := make([]apiv1.CreateTask, min(n, 100))
		n -= len(list)
		for i := range list {
			list[i] = apiv1.CreateTask{Namespace: f.space, Name: "chain"}
		}
		answer, err := f.client.CreateTasks(f.Context(), list)
		must(f.T, err)
		for _, made := range answer.Tasks {
			ids = append(ids, readID(f.T, made.TaskUUID))
		}
	}
	return ids
}

func (f *fleet) complete() int { return count(f.T, f.pool, "state = 'complete'") }

// awaitMiddle returns when some of what is left is done.
func (f *fleet) awaitMiddle() {
	f.Helper()
	for {
		was := f.complete()
		aim := was + (f.created-was)/3
		await(f.T, "the middle of the work", func() bool { return f.complete() >= aim })
		if f.complete() < f.created {
			return
		}
		f.create(50) // all was done before this process looked
	}
}

func (f *fleet) awaitAll() {
	f.Helper()
	await(f.T, fmt.Sprint(f.created, " workflows to end"), func() bool { return f.complete() == f.created })
}

func (f *fleet) number(sql string, args ...any) (n int) {
	f.Helper()
	must(f.T, f.pool.QueryRow(f.Context(), sql, args...).Scan(&n))
	return n
}

// depth is the depth of a queue; -1 if there is no such queue, or no broker now.
func (f *fleet) depth(queue string) (messages, consumers int) {
	f.Helper()
	conn, err := amqp091.Dial(f.broker)
	if err != nil {
		return -1, -1
	}
	defer func() { _ = conn.Close() }()
	return depth(f.T, conn, queue)
}

// depth is how many messages of a queue nobody has received, and how many
// consumers it has; -1 if there is no such queue.
func depth(t *testing.T, conn *amqp091.Connection, queue string) (messages, consumers int) {
	t.Helper()
	ch, err := conn.Channel()
	must(t, err)
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if refused, ok := errors.AsType[*amqp091.Error](err); ok && refused.Code == amqp091.NotFound {
		return -1, -1 // the broker has ended the channel
	}
	must(t, err)
	must(t, ch.Close())
	return q.Messages, q.Consumers
}

// awaitListeners returns when all workers listen to the broker.
func (f *fleet) awaitListeners() {
	f.Helper()
	if f.transport == overPostgres {
		return
	}
	await(f.T, "the workers to listen to the broker", func() bool {
		_, consumers := f.depth(amqp.QueueOf(f.space))
		return consumers == len(f.workers)
	})
}

// finish checks, when all work is done, that it was done once, and that nothing
// of it is left anywhere.
func (f *fleet) finish() {
	f.Helper()
	if n := f.number(`SELECT count(*) FROM tasker.tasks`); n != f.created {
		f.Errorf("%d workflows exist, %d were created", n, f.created)
	}
	completions := f.number(`SELECT count(*) FROM tasker.workflow_step_transitions WHERE to_state = 'complete'`)
	steps := f.number(`SELECT count(DISTINCT step_uuid) FROM tasker.workflow_step_transitions WHERE to_state = 'complete'`)
	if want := chainSteps * f.created; completions != want || steps != want {
		f.Errorf("%d steps were completed %d times, want %d once each", steps, completions, want)
	}
	await(f.T, "the outbox to be empty", func() bool { return f.number(`SELECT count(*) FROM tasker.dispatch_outbox`) == 0 })
	if f.transport == overPostgres {
		return
	}
	await(f.T, "the queues to be empty", f.queuesEmpty)
	// A worker that stops gives back what it has received and not settled, such as repeated messages of
	// steps that are done. The next one settles these.
	await(f.T, "every message to be settled", func() bool {
		for _, w := range f.workers {
			w.stop()
		}
		f.workers = nil
		if f.left(amqp.QueueOf(f.space))+f.left(f.deadLetterQueue()) == 0 {
			return true
		}
		f.work(1, f.broker)
		f.awaitListeners()
		await(f.T, "the queues to be empty again", f.queuesEmpty)
		return false
	})
	f.server.stop()
}

func (f *fleet) queuesEmpty() bool {
	work, _ := f.depth(amqp.QueueOf(f.space))
	dead, _ := f.depth(f.deadLetterQueue())
	return work == 0 && dead == 0
}

// left counts the messages about steps in a queue that nobody consumes any more.
func (f *fleet) left(queue string) (n int) {
	f.Helper()
	conn, err := amqp091.Dial(f.broker)
	must(f.T, err)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	must(f.T, err)
	for {
		d, ok, err := ch.Get(queue, false)
		must(f.T, err)
		if !ok {
			return n
		}
		if d.Type == rabbitmq.MessageType { // and not what the server sends to try the way
			n++
		}
	}
}

func eachTransport(t *testing.T, f func(t *testing.T, transport string)) {
	for _, transport := range []string{overPostgres, overRabbitMQ} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			f(t, transport)
		})
	}
}

// The integration test of the specification, scaled in time: five minutes are four seconds.
func TestStepsForWorkersThatAreAwayFailAndGoOnWhenOneIsThere(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, transport string) {
		f := newFleet(t, fleetOptions{transport: transport, limit: 4 * time.Second})
		begun := time.Now()
		tasks := f.create(20)
		if q := f.queue(); time.Since(begun) < f.limit && (q.Queued != 20 || !q.Unserved || q.LiveWorkers != 0 || q.OldestQueuedAt == nil || q.NextExpiresAt == nil) {
			t.Errorf("while nobody takes them the queue is %+v", q)
		}
		for _, task := range tasks {
			awaitStatus(t, f.client, task, "error")
		}
		for _, task := range tasks {
			f.wantExpired(task)
		}
		if transport == overRabbitMQ {
			await(t, "the dead letters to be settled", f.queuesEmpty)
		}
		if q := f.queue(); q.Queued != 0 || q.AwaitingWorker != 20 || !q.Unserved {
			t.Errorf("after their time the queue is %+v", q)
		}

		f.work(1, f.broker)
		f.awaitAll()
		for _, task := range tasks {
			f.wantRecovered(task)
		}
		if list, err := f.client.Queues(t.Context(), f.space, 0); err != nil || len(list) != 0 {
			t.Errorf("in the end the queues are %+v, %v", list, err)
		}
		f.finish()
	})
}

// queue is what GET /v1/queues says of the namespace, which has one handler.
func (f *fleet) queue() tasker.Queue {
	f.Helper()
	list, err := f.client.Queues(f.Context(), f.space, 0)
	must(f.T, err)
	if len(list) != 1 || list[0].Namespace != f.space || list[0].Handler != "slow" {
		f.Fatalf("the queues are %+v", list)
	}
	return list[0]
}

// wantExpired wants a task whose first step no worker took.
func (f *fleet) wantExpired(task tasker.ID) {
	f.Helper()
	first := stepNamed(f.T, f.client, task, "a")
	var failure tasker.StepFailure
	must(f.T, json.Unmarshal(first.Error, &failure))
	if first.CurrentState != "error" || !strings.HasPrefix(failure.Message, "worker queue TTL expired") || failure.Type != tasker.QueueExpiry {
		f.Errorf("the step is %s: %+v", first.CurrentState, failure)
	}
	e, err := f.client.EntryOfTask(f.Context(), task)
	must(f.T, err)
	if e.DLQReason != "worker_unavailable" || e.DetailCode != "no_workers" || e.ResolutionStatus != "pending" || e.RecoveredAt != nil ||
		e.StepUUID == nil || *e.StepUUID != first.StepUUID {
		f.Errorf("the investigation is %+v", e)
	}
	var metadata struct {
		Dispatch struct {
			Transport   string
			LiveWorkers int  `json:"live_workers"`
			TTL         int  `json:"worker_queue_ttl_ms"`
			Returns     bool `json:"returns_when_a_worker_lives"`
			DeadLetter  *struct {
				Deaths []struct {
					Reason, Queue string
					Count         int
					Time          time.Time
				}
			} `json:"dead_letter"`
		}
	}
	must(f.T, json.Unmarshal(e.Metadata, &metadata))
	d := metadata.Dispatch
	if d.Transport != f.transport || d.LiveWorkers != 0 || d.TTL != 4000 || !d.Returns {
		f.Errorf("the evidence is %s", e.Metadata)
	}
	switch {
	case f.transport == overPostgres:
		if d.DeadLetter != nil || e.DetectedBy != "sweep" {
			f.Errorf("detected by %s, with the evidence %s", e.DetectedBy, e.Metadata)
		}
	case e.DetectedBy != "broker" || d.DeadLetter == nil || len(d.DeadLetter.Deaths) != 1:
		f.Errorf("detected by %s, with the evidence %s", e.DetectedBy, e.Metadata)
	default:
		death := d.DeadLetter.Deaths[0]
		if death.Reason != "expired" || death.Queue != amqp.QueueOf(f.space) || death.Count != 1 || death.Time.IsZero() {
			f.Errorf("the message died of %+v", death)
		}
	}
}

// wantRecovered wants that the task went on by itself, at no cost.
func (f *fleet) wantRecovered(task tasker.ID) {
	f.Helper()
	if first := stepNamed(f.T, f.client, task, "a"); first.CurrentState != "complete" || first.Attempts != 1+f.number(`
		SELECT count(*) FROM tasker.workflow_step_transitions WHERE step_uuid = $1 AND event = 'lose'`, first.StepUUID) { // a worker of a loaded machine may be silent for a lease
		f.Errorf("the step is %s after %d attempts", first.CurrentState, first.Attempts)
	}
	e, err := f.client.EntryOfTask(f.Context(), task)
	must(f.T, err)
	if e.RecoveredAt == nil || e.CurrentTaskState != "complete" {
		f.Errorf("the investigation is %+v", e)
	}
}
