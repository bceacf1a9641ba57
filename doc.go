// Package tasker defines the domain model of the engine: tasks, steps, templates and
// investigations, their states, and the errors that callers can act on. It imports no other
// package of this module.
//
// A task is a graph of steps created from a template. Workers claim steps and report results; the
// engine retries failed steps, enqueues their dependents and completes the task. A task that
// cannot make progress gets an investigation, an [Entry] of the dead letter queue: immutable
// evidence for an operator.
//
// See package worker to run steps in your own program, package client to call a server, and
// package embedded to run the whole engine inside a program.
package tasker
