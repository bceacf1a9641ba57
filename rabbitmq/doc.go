// Package rabbitmq has workers hear of steps from RabbitMQ, where the server
// announces them there.
//
//	backend := rabbitmq.NewBackend(client.New(url).Backend(), rabbitmq.Options{URL: "amqp://…"})
//	w := worker.New(backend, worker.Options{Namespaces: []string{"orders"}})
//
// Nothing else changes: the same handlers, leases and results. A message only names
// a step; the worker claims it from the server, and what is taken already is passed
// over. While the broker is away, the worker asks the server for work itself.
//
// A worker in another language consumes the queue worker.{namespace}.executions
// with manual acknowledgement, and does the same: see docs/dispatch.md.
package rabbitmq
