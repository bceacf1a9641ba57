package templatefile

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// Turns limit how many checks run at the same time. They are the only work of
// a request that can keep a processor busy for long, and half of the processors
// stays free for heartbeats and reports. What the server does by itself has a turn
// beside them, because it may hold locks meanwhile.
var (
	checking = newTurns(max(1, runtime.GOMAXPROCS(0)/2))
	byTimers = newTurns(1)
)

// turns are taken by namespaces one after the other, however many checks of each wait.
type turns struct {
	size int

	mu      sync.Mutex
	free    int
	waiting map[string][]chan struct{} // by namespace, in the order of their arrival; closed when it is their turn
	next    []string                   // the namespaces that wait
}

func newTurns(n int) *turns {
	return &turns{size: n, free: n, waiting: map[string][]chan struct{}{}}
}

// enter returns when a check of a namespace may run. The error is that of ctx.
func (t *turns) enter(ctx context.Context, namespace string) error {
	turn := t.join(namespace)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !t.withdraw(namespace, turn) { // its turn came in the same moment
		t.leave()
	}
	return ctx.Err()
}

// join takes a turn, or returns what is closed when it comes.
func (t *turns) join(namespace string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	turn := make(chan struct{})
	if len(t.waiting[namespace]) == 0 {
		t.next = append(t.next, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], turn)
	return turn
}

// leave ends a check that ran, and has the next run.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.next) == 0 {
		t.free++
		return
	}
	namespace := t.next[0]
	close(t.waiting[namespace][0])
	t.next = t.next[1:]
	if t.drop(namespace, 0) {
		t.next = append(t.next, namespace) // behind the others
	}
}

// withdraw takes out a check that waits, and reports whether it still did.
func (t *turns) withdraw(namespace string, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.waiting[namespace], turn)
	if at < 0 {
		return false
	}
	if !t.drop(namespace, at) {
		t.next = slices.DeleteFunc(t.next, func(name string) bool { return name == namespace })
	}
	return true
}

// drop removes one that waits, and reports whether there are others of its namespace.
func (t *turns) drop(namespace string, at int) bool {
	rest := slices.Delete(t.waiting[namespace], at, at+1)
	if t.waiting[namespace] = rest; len(rest) == 0 {
		delete(t.waiting, namespace)
	}
	return len(rest) > 0
}
