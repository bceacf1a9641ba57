// Package amqp connects to RabbitMQ. It maintains one connection, declares queues and exchanges,
// publishes with confirms and consumes with acknowledgements, and recovers from connection loss.
//
// Each namespace has one work queue. Expired messages go through the dead-letter exchange to the
// dead-letter queue. Routed messages go to queues that others have bound ([Broker.PublishRouted]).
//
// A confirmed message is on disk and delivered at least once. An unconfirmed one may have arrived
// too: callers publish it again and recognize repetitions by id. A queue or exchange that exists
// with other settings is left alone; [Broker.LastError] names it and the command that helps.
package amqp
