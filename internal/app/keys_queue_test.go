package app_test

import (
	"net/http"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/mqtest"
)

var queueEffects = map[string]func(*keyTest){
	"message_queue.transport": func(k *keyTest) {
		k.broker()
		k.also("message_queue.transport", "postgres")
		k.set("rabbitmq")
		k.start().await("tasker_dispatch_broker_up", 1)
	},
	"message_queue.rabbitmq.url": func(k *keyTest) {
		k.broker()
		k.also("message_queue.rabbitmq.url", "amqp://127.0.0.1:1/")
		k.set(mqtest.URL(k.T))
		k.start().await("tasker_dispatch_broker_up", 1)
	},
	"message_queue.rabbitmq.exchange": func(k *keyTest) {
		k.broker()
		name := mqtest.Name(k.T)
		k.set(name)
		k.start().await("tasker_dispatch_broker_up", 1)
		k.untilDeclared(func(ch *amqp091.Channel) error {
			return ch.ExchangeDeclarePassive(name, amqp091.ExchangeTopic, true, false, false, false, nil)
		})
	},
	"message_queue.rabbitmq.dead_letter.exchange": func(k *keyTest) {
		k.broker()
		name := mqtest.Name(k.T)
		k.set(name)
		k.start().await("tasker_dispatch_broker_up", 1)
		k.untilDeclared(func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclarePassive(name+".queue", true, false, false, false, nil)
			return err
		})
	},
	"message_queue.rabbitmq.dead_letter.ttl_ms": func(k *keyTest) {
		name := k.broker()
		k.set("61000")
		k.start().await("tasker_dispatch_broker_up", 1)
		k.untilDeclared(func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclarePassive(name+".dlx.queue", true, false, false, false, nil)
			return err
		})
		// A queue that has other arguments, or is not there, refuses these.
		_, err := brokerChannel(k.T, mqtest.URL(k.T)).QueueDeclare(name+".dlx.queue", true, false, false, false, amqp091.Table{
			amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.QueueMessageTTLArg: int64(61_000), "x-delivery-limit": int64(1_000_000),
		})
		k.must(err)
	},
	// With dead letters off, the sweep waits for nobody.
	"message_queue.rabbitmq.dead_letter.enabled": func(k *keyTest) {
		k.broker()
		k.set("false")
		s := k.expectExpiryBySweep()
		if got := s.ready().Components["broker"]; got.LastError != "" { // as of a handler without its queue
			k.Errorf("the broker is %+v", got)
		}
	},
	"message_queue.rabbitmq.sweep_grace_ms": func(k *keyTest) {
		k.broker()
		k.set("1")
		k.expectExpiryBySweep()
	},
	"message_queue.rabbitmq.worker_queue_ttl_ms": func(k *keyTest) {
		k.set("4000")
		s := k.start()
		k.expectAnswer(s, http.MethodPost, "/v1/templates", `{"namespace_name": "n", "name": "greet", "version": "1.0.0", "steps": [{"name": "a", "handler": {"callable": "h"}}]}`, http.StatusCreated)
		k.expectAnswer(s, http.MethodPost, "/v1/tasks", `{"namespace": "n", "name": "greet"}`, http.StatusCreated)
		k.expect("00:00:04", `SELECT max(expires_at - state_since) FROM tasker.workflow_steps`)
	},
	"message_queue.auto_recover": func(k *keyTest) {
		k.set("false")
		s := k.expireOne(false)
		k.until("false", returns)
		if n := s.scraped(`tasker_loop_passes_total{loop="redispatch"}`); n != -1 {
			k.Errorf("the steps are looked for all the same, %g times", n)
		}
	},
	"message_queue.queue_ttl": func(k *keyTest) {
		k.also("workers.lease_seconds", "3")
		k.also("workers.heartbeat_interval_seconds", "1")
		k.create(1)
		k.exec(`INSERT INTO tasker.queues (namespace, handler, busy_at) SELECT DISTINCT namespace, handler, clock_timestamp() FROM tasker.workflow_steps`)
		k.set("always")
		k.register(k.start())
		k.exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour'`)
		k.expire()
		k.until("dispatch_expired", `SELECT detail_code FROM tasker.tasks_dlq`)
	},
	"message_queue.no_worker_after_ms": func(k *keyTest) {
		k.also("workers.lease_seconds", "3")
		k.also("workers.heartbeat_interval_seconds", "1")
		k.create(1)
		k.set("1000")
		k.start()
		k.until("1000", `SELECT metadata->'dispatch'->>'no_live_worker_for_ms' FROM tasker.tasks_dlq`)
	},
	"message_queue.priority_age_ms": func(k *keyTest) {
		tasks := k.create(2)
		k.exec(`UPDATE tasker.workflow_steps SET priority = 1 WHERE task_uuid = $1`, tasks[1])
		k.exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '30 seconds' WHERE task_uuid = $1`, tasks[0])
		k.set("20000")
		r, c := k.register(k.start())
		list, err := c.Backend().Claim(k.Context(), r.WorkerUUID, 1, 0)
		k.must(err)
		if len(list) != 1 || list[0].TaskUUID != tasks[0] {
			k.Errorf("claimed %+v, want what has waited for longer than the age", list)
		}
	},
	"message_queue.max_queue_expiries": func(k *keyTest) {
		k.set("1")
		k.expireOne(true)
		k.until("false", returns)
	},
}

// returns says whether a step that no worker took will return into the queue.
const returns = `SELECT metadata->'dispatch'->>'returns_when_a_worker_lives' FROM tasker.tasks_dlq`

// broker has the server use RabbitMQ, with exchanges of its own: name and name.dlx.
func (k *keyTest) broker() (name string) {
	k.Helper()
	name = mqtest.Name(k.T)
	for key, value := range map[string]string{
		"message_queue.transport": "rabbitmq", "message_queue.rabbitmq.url": mqtest.URL(k.T),
		"message_queue.rabbitmq.exchange": name, "message_queue.rabbitmq.dead_letter.exchange": name + ".dlx",
	} {
		k.also(key, value)
	}
	return name
}

// untilDeclared waits until something is found at the broker. Asking for what is not
// there ends a channel.
func (k *keyTest) untilDeclared(find func(*amqp091.Channel) error) {
	k.Helper()
	await(k.T, "what the server declares", func() bool { return find(brokerChannel(k.T, mqtest.URL(k.T))) == nil })
}

// expireOne has a step wait too long in a server, with a worker alive or without one.
// A short lease is a short grace for workers after the start.
func (k *keyTest) expireOne(served bool) *server {
	k.Helper()
	k.also("workers.lease_seconds", "3")
	k.also("workers.heartbeat_interval_seconds", "1")
	k.create(1)
	s := k.start()
	if served {
		k.register(s)
		k.exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour'`)
	}
	k.expire()
	return s
}

// expectExpiryBySweep fails unless the sweep finds a step that waited too long, which
// the broker does not know of, before the grace that is the default.
func (k *keyTest) expectExpiryBySweep() *server {
	k.Helper()
	k.also("workers.lease_seconds", "3")
	k.also("workers.heartbeat_interval_seconds", "1")
	s := k.start()
	s.await("tasker_dispatch_broker_up", 1)
	space := mqtest.Name(k.T)
	k.expectAnswer(s, http.MethodPost, "/v1/templates", `{"namespace_name": "`+space+`", "name": "greet", "version": "1.0.0", "steps": [{"name": "a", "handler": {"callable": "h"}}]}`, http.StatusCreated)
	k.expectAnswer(s, http.MethodPost, "/v1/tasks", `{"namespace": "`+space+`", "name": "greet"}`, http.StatusCreated)
	k.untilDeclared(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclarePassive(amqp.QueueName(space), true, false, false, false, nil)
		return err
	})
	k.expire()
	begun := time.Now()
	k.until("sweep", `SELECT detected_by FROM tasker.tasks_dlq`)
	if took := time.Since(begun); took >= 29*time.Second { // 30 is the default
		k.Errorf("the sweep found the step after %v", took)
	}
	return s
}
