// Package tasker defines the domain model of the engine: tasks, steps, templates and investigations,
// their states, and the errors that callers can act on. It imports no other package of this module.
//
// A task is a graph of steps made from a template. Workers claim steps and
// report results; the engine retries, advances and finishes. A task that cannot
// go on becomes an investigation, an [Entry] of the dead letter queue: immutable
// evidence that a human works on. Nothing is ever silently stuck.
//
// To run steps in your own program see package worker; to call a server see
// package client; to run the whole engine inside a program see package embedded.
package tasker
