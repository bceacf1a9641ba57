// Package amqp connects to RabbitMQ. It maintains one connection, declares queues and exchanges,
// publishes with confirms and consumes with acknowledgements, and recovers from connection loss.
//
// Each namespace has one work queue. Expired messages go through the dead-letter exchange to the
// dead-letter queue. Routed messages go to queues that other programs have bound
// ([Broker.PublishRouted]).
//
// Confirmed messages are on disk and are delivered at least once. An unconfirmed message may have
// arrived: publish it again and deduplicate by message id.
//
// RabbitMQ queues and exchanges cannot be altered. If one exists with different settings, it is
// left unchanged; [Broker.LastError] names it and the command that fixes it.
package amqp
