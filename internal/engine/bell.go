package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker/internal/loop"
)

// A bell tells those who wait for work that there may be some. It is a hint: who
// waits also looks by itself, now and then.
type bell struct {
	mu      sync.Mutex
	waiting map[string]map[*waiter]struct{} // by namespace
	unsent  map[string]struct{}             // namespaces that other processes must hear of
	send    chan struct{}                   // has a value when unsent is not empty
}

// A waiter waits for work in some namespaces.
type waiter struct {
	bell       *bell
	namespaces []string
	rung       chan struct{} // has a value when work may have come
}

func newBell() *bell {
	return &bell{waiting: map[string]map[*waiter]struct{}{}, unsent: map[string]struct{}{}, send: make(chan struct{}, 1)}
}

// wait begins to wait. The waiter must stop in the end.
func (b *bell) wait(namespaces []string) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &waiter{bell: b, namespaces: namespaces, rung: make(chan struct{}, 1)}
	for _, n := range namespaces {
		if b.waiting[n] == nil {
			b.waiting[n] = map[*waiter]struct{}{}
		}
		b.waiting[n][w] = struct{}{}
	}
	return w
}

func (w *waiter) stop() {
	w.bell.mu.Lock()
	defer w.bell.mu.Unlock()
	for _, n := range w.namespaces {
		delete(w.bell.waiting[n], w)
		if len(w.bell.waiting[n]) == 0 {
			delete(w.bell.waiting, n)
		}
	}
}

// ring wakes those who wait in this process.
func (b *bell) ring(namespaces []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range namespaces {
		for w := range b.waiting[n] {
			select {
			case w.rung <- struct{}{}:
			default: // it has been told
			}
		}
	}
}

// tell has other processes hear of it too.
func (b *bell) tell(namespaces []string) {
	if len(namespaces) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range namespaces {
		b.unsent[n] = struct{}{}
	}
	select {
	case b.send <- struct{}{}:
	default:
	}
}

func (b *bell) takeUnsent() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.Sorted(maps.Keys(b.unsent))
	clear(b.unsent)
	return list
}

// ring says that steps were enqueued in the namespaces, after the commit.
func (e *Engine) ring(namespaces []string) {
	e.bell.ring(namespaces)
	e.bell.tell(namespaces)
	if len(namespaces) > 0 {
		e.enqueued()
	}
}

// channel is where processes tell each other of work.
const channel = "tasker_work"

const (
	tellEvery    = 20 * time.Millisecond // at most: NOTIFY takes a lock that all of the database shares
	listenAgain  = time.Second           // after the connection was lost
	sendDeadline = 5 * time.Second
)

// Listen wakes claims of this process when another one has enqueued work, and
// tells others of ours, until ctx ends. Without it claims find work of others
// when they look by themselves.
func (e *Engine) Listen(ctx context.Context) error {
	g := loop.NewGroup(ctx)
	g.Go("tell others of work", e.tellOthers)
	g.Go("hear of the work of others", e.hearOthers)
	return g.Wait()
}

func (e *Engine) tellOthers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.bell.send:
		}
		sending, cancel := context.WithTimeout(ctx, sendDeadline)
		err := e.db.Notify(sending, channel, messages(e.instance.String(), e.bell.takeUnsent()))
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "cannot tell others of work; they will find it by themselves", "err", err)
		}
		if !loop.Sleep(ctx, tellEvery) {
			return nil
		}
	}
}

// maxNotice is the size of a notification: PostgreSQL takes less than 8000 bytes.
const maxNotice = 7900

// messages spells who has work in which namespaces, in as many messages as it takes.
func messages(from string, namespaces []string) []string {
	var list []string
	message := from
	for _, n := range namespaces {
		if len(message)+1+len(n) > maxNotice {
			list, message = append(list, message), from
		}
		message += " " + n
	}
	return append(list, message)
}

func (e *Engine) hearOthers(ctx context.Context) error {
	for ctx.Err() == nil {
		err := e.hear(ctx)
		if ctx.Err() == nil {
			e.log.WarnContext(ctx, "cannot listen for work of others; trying again", "err", err)
		}
		loop.Sleep(ctx, listenAgain)
	}
	return nil
}

// hear listens until its connection breaks.
func (e *Engine) hear(ctx context.Context) error {
	pooled, err := e.db.Pool().Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // one that has listened must not go back
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		words := strings.Fields(n.Payload)
		if len(words) > 1 && words[0] != e.instance.String() {
			e.bell.ring(words[1:])
		}
	}
}
