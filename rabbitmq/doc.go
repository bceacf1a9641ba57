// Package rabbitmq adds RabbitMQ notifications to a worker's backend, so that the worker claims
// steps as soon as they are enqueued. If the broker is unavailable, the worker polls the server.
//
//	backend := rabbitmq.NewBackend(client.New(url).Backend(), rabbitmq.Options{URL: "amqp://…"})
//	w := worker.New(backend, worker.Options{Namespaces: []string{"orders"}})
//
// Handlers, leases and results do not change. A message only identifies a step; the worker claims
// it from the server and skips steps that are no longer available.
//
// Workers in other languages consume the queue worker.{namespace}.executions with manual
// acknowledgement in the same way, see docs/concepts/dispatch.md.
package rabbitmq
