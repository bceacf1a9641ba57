package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/rabbitmq"
)

// A fleet is a server with a database of its own, and workers that a broker notifies. A worker that
// is silent for three seconds has lost its steps.
type fleet struct {
	*testing.T
	space   string // the namespace
	broker  string // where its queues can be looked at
	pool    *pgxpool.Pool
	server  *process
	url     string
	client  *client.Client
	workers []*process
	created int // tasks
}

// newFleet starts the server, which dials the broker by a URL.
func newFleet(t *testing.T, broker, dial string) *fleet {
	t.Helper()
	database := pgtest.New(t)
	database.CheckAtEnd(t) // no step completed twice, no task without a way forward, …
	f := &fleet{T: t, space: mqtest.Name(t), broker: broker, pool: database.Pool(t)}
	f.server = serve(t, database.URL, "TASKER_WORKERS_LEASE_SECONDS=3", "TASKER_WORKERS_HEARTBEAT_INTERVAL_SECONDS=1",
		"TASKER_MESSAGE_QUEUE_TRANSPORT=rabbitmq", "TASKER_MESSAGE_QUEUE_RABBITMQ_URL="+dial,
		"TASKER_MESSAGE_QUEUE_RABBITMQ_EXCHANGE="+f.space, "TASKER_MESSAGE_QUEUE_RABBITMQ_DEAD_LETTER_EXCHANGE="+f.deadLetterExchange())
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
	for range n {
		f.workers = append(f.workers, startWorker(f.T, f.url, "", namespaceEnv+"="+f.space, brokerEnv+"="+dial))
	}
}

func (f *fleet) create(n int) {
	f.Helper()
	f.created += n
	for list := range slices.Chunk(slices.Repeat([]apiv1.CreateTask{{Namespace: f.space, Name: "chain"}}, n), 100) {
		_, err := f.client.CreateTasks(f.Context(), list)
		must(f.T, err)
	}
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
	await(f.T, "the workers to listen to the broker", func() bool {
		_, consumers := f.depth(amqp.QueueName(f.space))
		return consumers == len(f.workers)
	})
}

// finish checks, when all work is done, that it was done once, and that nothing
// of it is left anywhere.
func (f *fleet) finish() {
	f.Helper()
	if n := number(f.T, f.pool, `SELECT count(*) FROM tasker.tasks_dlq`); n != 0 {
		f.Errorf("%d investigations, want none: nothing has failed", n)
	}
	if n := number(f.T, f.pool, `SELECT count(*) FROM tasker.tasks`); n != f.created {
		f.Errorf("%d workflows exist, %d were created", n, f.created)
	}
	completions := number(f.T, f.pool, `SELECT count(*) FROM tasker.workflow_step_transitions WHERE to_state = 'complete'`)
	steps := number(f.T, f.pool, `SELECT count(DISTINCT step_uuid) FROM tasker.workflow_step_transitions WHERE to_state = 'complete'`)
	if want := chainSteps * f.created; completions != want || steps != want {
		f.Errorf("%d steps were completed %d times, want %d once each", steps, completions, want)
	}
	await(f.T, "the outbox to be empty", func() bool { return number(f.T, f.pool, `SELECT count(*) FROM tasker.dispatch_outbox`) == 0 })
	await(f.T, "the queues to be empty", f.queuesEmpty)
	// A worker that stops gives back what it has received and not settled, such as repeated messages of
	// steps that are done. The next one settles these.
	await(f.T, "every message to be settled", func() bool {
		for _, w := range f.workers {
			w.stop()
		}
		f.workers = nil
		if f.left(amqp.QueueName(f.space))+f.left(f.deadLetterQueue()) == 0 {
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
	work, _ := f.depth(amqp.QueueName(f.space))
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
