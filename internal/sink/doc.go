// Package sink delivers events to external systems: webhooks, chat and paging services, a RabbitMQ
// exchange or the log. It keeps no state; retries and ordering belong to package emission.
// Receivers get each event at least once and recognize repetitions by id.
//
// A delivery fails either because the receiver rejects this particular event ([IsRefused]), or
// because it currently accepts no events at all.
package sink
