// Package amqp connects to RabbitMQ. It maintains one connection, declares queues and exchanges,
// publishes with confirms and consumes with acknowledgements, and recovers from connection loss.
//
// [Broker.Run] keeps the connection; everything else uses the one that there
// is, on a channel of its own. Messages wait in one work queue for each
// namespace. What a work queue holds for longer than its time to live goes
// through the dead-letter exchange to the dead-letter queue. What is not work, but
// news for whoever wants it, goes to queues that others have bound to the
// exchange ([Broker.PublishRouted]).
//
// A message that is confirmed is on disk, and is delivered at least once: after
// a loss of the connection, perhaps again. A message that is not confirmed may
// have arrived nevertheless. Callers publish it again, and recognise what comes
// twice by its id.
//
// Queues and exchanges of RabbitMQ cannot be changed, only deleted. One that
// exists with other settings is left alone: [Broker.LastError] names it and the
// command that helps, and everything else goes on.
//
// This package knows nothing of tasks and steps, nor of the database that
// decides who may run them.
package amqp
