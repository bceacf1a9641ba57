// Package loop runs background work periodically until it is stopped. It recovers from errors and
// panics, logs and counts them, and shuts down without interrupting a pass.
//
// A [Loop] handles intervals, wake-ups and shutdown; its pass does the work. Stopping waits for the end
// of the pass, or for its deadline. A failed pass is retried, so that one bad row cannot end a loop.
//
// A [Group] runs the loops and servers of a process. The first failure stops all of them, and Wait
// returns when the last one has ended.
package loop
