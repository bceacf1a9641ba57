package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// notifier wakes waiting claims. Notifications are hints: claims also poll.
type notifier struct {
	mu      sync.Mutex
	waiting map[string]map[*waiter]struct{} // by namespace
	unsent  map[string]struct{}             // namespaces to announce to other processes
	send    chan struct{}                   // signals that unsent is not empty
}

// waiter is a claim that waits for work in some namespaces.
type waiter struct {
	notifier   *notifier
	worker     tasker.ID
	namespaces []string
	notified   chan struct{} // signals that there may be work
}

func newNotifier() *notifier {
	return &notifier{waiting: map[string]map[*waiter]struct{}{}, unsent: map[string]struct{}{}, send: make(chan struct{}, 1)}
}

// wait registers a waiter. The caller must stop it.
func (n *notifier) wait(worker tasker.ID, namespaces []string) *waiter {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := &waiter{notifier: n, worker: worker, namespaces: namespaces, notified: make(chan struct{}, 1)}
	for _, namespace := range namespaces {
		if n.waiting[namespace] == nil {
			n.waiting[namespace] = map[*waiter]struct{}{}
		}
		n.waiting[namespace][w] = struct{}{}
	}
	return w
}

func (w *waiter) stop() {
	w.notifier.mu.Lock()
	defer w.notifier.mu.Unlock()
	for _, namespace := range w.namespaces {
		delete(w.notifier.waiting[namespace], w)
		if len(w.notifier.waiting[namespace]) == 0 {
			delete(w.notifier.waiting, namespace)
		}
	}
}

// wake wakes the claims that wait for work in the namespaces.
func (n *notifier) wake(namespaces []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, namespace := range namespaces {
		for w := range n.waiting[namespace] {
			loop.Wake(w.notified)
		}
	}
}

func (n *notifier) wakeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, waiters := range n.waiting {
		for w := range waiters {
			loop.Wake(w.notified)
		}
	}
}

func (n *notifier) wakeWorker(worker tasker.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, waiters := range n.waiting {
		for w := range waiters {
			if w.worker == worker {
				loop.Wake(w.notified)
			}
		}
	}
}

// notifyOthers schedules a notification to other processes.
func (n *notifier) notifyOthers(namespaces []string) {
	if len(namespaces) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, namespace := range namespaces {
		n.unsent[namespace] = struct{}{}
	}
	loop.Wake(n.send)
}

func (n *notifier) takeUnsent() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := slices.Sorted(maps.Keys(n.unsent))
	clear(n.unsent)
	return list
}

// notify announces that steps in the namespaces were enqueued and committed.
func (e *Engine) notify(namespaces []string) {
	e.waiters.notifier.wake(namespaces)
	e.waiters.notifier.notifyOthers(namespaces)
	if len(namespaces) > 0 {
		e.requestPoll()
		e.opts.Hooks.StepsEnqueued()
	}
}

// channel is the PostgreSQL channel on which processes notify each other of work.
const channel = "tasker_work"

const (
	notifyEvery  = 20 * time.Millisecond // minimum interval, since NOTIFY locks the whole database
	relisten     = time.Second           // delay after a lost connection
	sendDeadline = 5 * time.Second
)

// Listen exchanges work notifications with other processes until ctx ends. If it does not run,
// waiting claims rely on polling.
func (e *Engine) Listen(ctx context.Context) error {
	g := loop.NewGroup(ctx)
	g.Go("send notifications", e.sendNotifications)
	g.Go("receive notifications", e.receiveNotifications)
	return g.Wait()
}

func (e *Engine) sendNotifications(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.waiters.notifier.send:
		}
		sending, cancel := context.WithTimeout(ctx, sendDeadline)
		unsent := e.waiters.notifier.takeUnsent()
		err := e.db.Notify(sending, channel, encodeMessages(e.waiters.instance.String(), unsent))
		cancel()
		rest := notifyEvery
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "work notification failed; retrying", "err", err)
			e.waiters.notifier.notifyOthers(unsent)
			rest = relisten
		}
		if !loop.Sleep(ctx, rest) {
			return nil
		}
	}
}

// maxNotification is the maximum payload of a notification in bytes. PostgreSQL requires less than
// 8000.
const maxNotification = 7900

// encodeMessages encodes the sender and the namespaces in as few notifications as possible.
func encodeMessages(from string, namespaces []string) []string {
	var list []string
	message := from
	for _, namespace := range namespaces {
		if len(message)+1+len(namespace) > maxNotification {
			list, message = append(list, message), from
		}
		message += " " + namespace
	}
	return append(list, message)
}

func (e *Engine) receiveNotifications(ctx context.Context) error {
	for ctx.Err() == nil {
		err := e.receive(ctx)
		if ctx.Err() == nil {
			e.log.WarnContext(ctx, "listening for notifications failed; retrying", "err", err)
		}
		loop.Sleep(ctx, relisten)
	}
	return nil
}

// receive listens until its connection fails.
func (e *Engine) receive(ctx context.Context) error {
	defer e.waiters.listening.Store(false)
	return e.db.Listen(ctx, []string{channel, postgres.DueChannel}, func() { e.waiters.listening.Store(true) }, func(name, message string) {
		if name == postgres.DueChannel {
			e.onPeerDue(message)
			return
		}
		switch words := strings.Fields(message); {
		case len(words) == 0:
		case words[0] == joinedSender:
			e.notifyAfterCommit(words[1:])
		case words[0] != e.waiters.instance.String():
			e.waiters.notifier.wake(words[1:])
		}
	})
}
