// Package sink delivers events to external systems: webhooks, chat and paging services, a RabbitMQ
// exchange or the log. It keeps no state; retries and ordering belong to package emission.
// Receivers get each event at least once and recognize repetitions by id.
//
// An event fails either for itself ([Refused]), or because the other side accepts nothing at the
// moment.
package sink
