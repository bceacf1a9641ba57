// Package loop runs background work periodically until it is stopped. It recovers from errors and
// panics, logs and counts them, and shuts down without interrupting a pass.
//
// A [Loop] knows rest, waking and stopping; its pass knows the work. A pass is
// never interrupted in the middle: stopping waits for its end, or for the
// deadline that the loop gives it. A pass that fails, or panics, is logged and
// counted, and the next one tries again, so that one bad row cannot end a loop
// while the server looks alive.
//
// A [Group] holds the loops and servers of one process together: they start
// together, the first to fail stops the others, and Wait returns when the last
// one has ended. Nothing started here outlives its group.
//
// This package knows nothing of tasks, steps or databases. Whether a loop that
// has been silent for long is ill is for its owner to judge, by [Loop.Status]
// and [Loop.Failures].
package loop
