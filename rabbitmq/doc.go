// Package rabbitmq adds RabbitMQ notifications to a worker's backend, so that the worker claims steps
// as soon as they are enqueued. If the broker is unavailable, the worker polls the server.
//
//	backend := rabbitmq.NewBackend(client.New(url).Backend(), rabbitmq.Options{URL: "amqp://…"})
//	w := worker.New(backend, worker.Options{Namespaces: []string{"orders"}})
//
// Nothing else changes: the same handlers, leases and results. A message only names
// a step; the worker claims it from the server, and what is taken already is passed
// over. While the broker is away, the worker asks the server for work itself.
//
// A worker in another language consumes the queue worker.{namespace}.executions
// with manual acknowledgement, and does the same: see docs/concepts/dispatch.md.
package rabbitmq
