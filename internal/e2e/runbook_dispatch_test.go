package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/testtool"
)

// A brokered situation is one of a server with a RabbitMQ of its own.
type brokered struct {
	*situation
	broker   *mqtest.Broker
	server   *process
	database string
	listen   string
	env      []string // of the server, and of whoever stands before its machine
}

// newBrokered starts a server whose steps wait for a worker for ten seconds, and a RabbitMQ.
func newBrokered(t *testing.T) *brokered {
	t.Helper()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	b := &brokered{
		situation: &situation{t: t, pool: database.Pool(t), databaseUp: filepath.Join(t.TempDir(), "up")},
		broker:    mqtest.Start(t), database: database.URL, listen: freeAddress(t),
	}
	b.env = []string{
		"TASKER_WORKERS_LEASE_SECONDS=6", "TASKER_WORKERS_HEARTBEAT_INTERVAL_SECONDS=2",
		"TASKER_MESSAGE_QUEUE_TRANSPORT=rabbitmq", "TASKER_MESSAGE_QUEUE_RABBITMQ_URL=" + b.broker.URL,
		"TASKER_MESSAGE_QUEUE_RABBITMQ_WORKER_QUEUE_TTL_MS=10000", "TASKER_MESSAGE_QUEUE_RABBITMQ_SWEEP_GRACE_MS=600000",
	}
	b.serve()
	return b
}

// serve starts the server, again where it was.
func (b *brokered) serve() {
	b.t.Helper()
	b.server = b.situation.serve(b.database, b.listen, b.env...)
}

// onPath is what makes rabbitmqctl that of the broker of the test: a folder to
// put at the beginning of the PATH.
func (b *brokered) onPath() string {
	b.t.Helper()
	dir := b.t.TempDir()
	var script strings.Builder
	script.WriteString("#!/bin/sh\n")
	for line := range strings.Lines(b.broker.Shell(b.t, "env; echo TOOL=$(command -v rabbitmqctl)")) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && (name == "TOOL" || name == "HOME" || strings.HasPrefix(name, "RABBITMQ_") || strings.HasPrefix(name, "ERL_")) {
			fmt.Fprintf(&script, "export %s='%s'\n", name, value)
		}
	}
	script.WriteString("exec \"$TOOL\" \"$@\"\n")
	testtool.WriteProgram(b.t, filepath.Join(dir, "rabbitmqctl"), []byte(script.String()))
	return dir
}

// connect returns a connection to the broker that ends with the test.
func (b *brokered) connect() *amqp091.Connection {
	b.t.Helper()
	conn, err := amqp091.Dial(b.broker.URL)
	must(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// channel returns a channel to the broker that ends with the test.
func (b *brokered) channel() *amqp091.Channel {
	b.t.Helper()
	ch, err := b.connect().Channel()
	must(b.t, err)
	return ch
}

// awaitDepth waits until a queue has so many messages and consumers. The server makes the queue of a
// namespace with its first announcement: until then there is none.
func (b *brokered) awaitDepth(queue string, messages, consumers int) {
	b.t.Helper()
	conn := b.connect()
	await(b.t, fmt.Sprintf("%d messages and %d consumers in %s", messages, consumers, queue), func() bool {
		m, c := depth(b.t, conn, queue)
		return m == messages && c == consumers
	})
}

// get returns what the server answers.
func (b *brokered) get(path string) string {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, http.NoBody)
	must(b.t, err)
	answer, err := (&http.Client{Timeout: patience}).Do(request)
	must(b.t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(b.t, err)
	return string(body)
}

// submit makes a task for shipping, where nobody works.
func (b *brokered) submit() tasker.ID {
	b.t.Helper()
	return b.create("ship_parcel", "steps_in_process")
}

const (
	deadLetters = "tasker.dlx.queue"
	workQueue   = "worker.shipping.executions"
)

// Every command of the runbooks of the dispatch does what they say, exactly as printed.
func TestDispatchRunbooks(t *testing.T) {
	t.Parallel()
	t.Run("steps-without-workers", testStepsWithoutWorkers)
	t.Run("dead-letter-queue", testDeadLetterQueue)
}

func testStepsWithoutWorkers(t *testing.T) {
	b := newBrokered(t)
	startWorker(t, b.url, b.databaseUp) // for others
	var tasks []tasker.ID
	for range 3 {
		tasks = append(tasks, b.submit())
	}
	for _, task := range tasks {
		awaitStatus(t, b.client, task, "error")
	}
	said := b.run("steps-without-workers.md", map[string]func(){"7. Verify": b.ship})
	said.want("1. Count the waiting steps",
		`tasker_dispatch_expired_total{detail_code="no_workers",detected_by="broker",namespace="shipping"} 3`,
		`tasker_dispatch_dead_letters_total{outcome="expired"} 3`, `tasker_workers_live{namespace="order_processing"} 1`,
		`tasker_queue_unserved_steps{namespace="shipping"} 3`, `"status": "up"`)
	said.want("2. Find queues without workers", "NO WORKER for shipping/echo: 0 wait, 3 waited too long")
	said.want("3. Check the workers", "active\te2e ")
	said.want("4. Find the reason", "3\tshipping\tno_workers\tno worker for a step is alive")
	said.want("5. Check one investigation", `"detected_by": "broker"`, `"reason": "expired"`, `"queue": "worker.shipping.executions"`, `"live_workers": 0`)
	said.want("7. Verify", "steps that wait without a worker: 0", "3 investigations recovered")
	for _, task := range tasks {
		awaitStatus(t, b.client, task, "complete")
	}
}

// deadLettersHandled counts those that the server has handled, whatever it found. What
// expired while no server ran may be failed by the sweep before its dead letter is read, or
// while it is: then the dead letter comes once more. While workers may still come back to a server
// that was just started, it announces steps again, and each leaves another dead letter.
func (b *brokered) deadLettersHandled() (n int) {
	for _, m := range regexp.MustCompile(`(?m)^tasker_dispatch_dead_letters_total\{(.*)\} (\d+)$`).FindAllStringSubmatch(b.get("/metrics"), -1) {
		if strings.Contains(m[1], `outcome="retried"`) {
			continue
		}
		count, err := strconv.Atoi(m[2])
		must(b.t, err)
		n += count
	}
	return n
}

func testDeadLetterQueue(t *testing.T) {
	b := newBrokered(t)
	b.create("ship_parcel", "error") // by its dead letter
	b.awaitDepth(deadLetters, 0, 1)
	said := b.run("dead-letter-queue.md", map[string]func(){
		"Dead letters are not handled": func() {
			b.submit()
			b.submit()
			b.awaitDepth(workQueue, 2, 0)
			b.server.stop()
			await(t, "rabbitmqctl to list both", func() bool { // later than the broker answers clients
				return strings.Contains(b.broker.Shell(t, "rabbitmqctl --quiet list_queues name messages consumers"), deadLetters+"\t2\t0\n")
			})
		},
		"After the repair": b.serve,
		"Messages do not become dead letters": func() {
			await(t, "the dead letters", func() bool {
				return b.deadLettersHandled() >= 2
			})
			ch := b.channel()
			_, err := ch.QueueDelete(workQueue, false, false, false)
			must(t, err)
			b.server.stop() // it knows the queue
			_, err = ch.QueueDeclare(workQueue, true, false, false, false, nil)
			must(t, err)
			b.serve()
			b.submit()
			await(t, "the fault", func() bool { return strings.Contains(b.get("/health/ready"), workQueue) })
			must(t, ch.QueueUnbind(deadLetters, "#", "tasker.dlx", nil)) // the server has bound it by now
		},
		"The broker is away": func() {
			b.broker.Stop(t)
			await(t, "the loss of the broker", func() bool { return strings.Contains(b.get("/metrics"), "tasker_dispatch_broker_up 0") })
		},
		"When it is available again": func() { b.broker.Restart(t) },
		"Purge the dead-letter queue, with care": func() {
			b.submit()
			b.awaitDepth(workQueue, 1, 0)
			b.server.stop()
			b.awaitDepth(deadLetters, 1, 0)
		},
	}, append(b.env, "PURGE=yes", "PATH="+b.onPath())...)
	said.want("1. List the queues", deadLetters+"\tquorum\t0\t1", workQueue+"\tquorum\t")
	said.want("2. Show a dead letter", `"reason": "expired"`, `"queue": "worker.shipping.executions"`)
	said.want("Dead letters are not handled", "NO SERVER answers", deadLetters+"\t2\t0", "enabled = true")
	said.want("After the repair", "dead letters that wait: 0", "tasker_dispatch_dead_letters_total")
	said.want("Messages do not become dead letters", "tasker.dlx\ttopic", "MISSING: the binding", "as they should not be: "+workQueue,
		"exists with different settings")
	said.wantNot("Messages do not become dead letters", "MISSING: the exchange")
	said.want("Verify the canary", "tasker.dlx\t"+deadLetters+"\t#", "a canary has come back")
	said.wantNot("Verify the canary", "NO CANARY")
	said.want("The broker is away", `"status": "ready"`, `"status": "down"`, "tasker_dispatch_broker_up 0", "THE BROKER does not run")
	said.want("When it is available again", `"status": "up"`)
	said.want("Purge the dead-letter queue, with care", "Purging queue '"+deadLetters+"'")
	b.awaitDepth(deadLetters, 0, 0)
	b.serve()
}
