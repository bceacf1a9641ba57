// Package sink delivers events to external systems: webhooks, chat and paging services, a RabbitMQ
// exchange or the log. It keeps no state; retries and ordering belong to package emission.
//
// A sink takes one event and says whether the other side has it. It keeps
// nothing and repeats nothing. Order, repetition and the memory of what was told
// belong to its caller, who tells an event again whenever it is not certain that
// it arrived: receivers get each event at least once, and know it by its id.
//
// An event that is not told has one of two causes. Either the other side does
// not want this event ([Refused]), and will not want it a minute later; or it
// cannot be told anything now, and any other event would fare the same.
package sink
