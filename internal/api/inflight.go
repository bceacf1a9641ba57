package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/overload"
)

// While a request body is read, validated and stored, it uses up to about seven times its size in
// memory, as a test measures. The server limits the total.
const (
	// DefaultMaxInflightBytes of bodies use up to 512 MiB of memory.
	DefaultMaxInflightBytes = 64 << 20
	// unmeteredBytes of each body are not counted, so that small requests such as heartbeats never
	// wait for large ones. Connections use as much.
	unmeteredBytes = 16 << 10
	// inflightWait limits how long a body waits for memory.
	inflightWait = 2 * time.Second
	// drainTime limits how long the rest of a rejected body is read. It is read because a client
	// that is still sending would not read the response.
	drainTime = 5 * time.Second
)

// errNoMemory means that other requests use all the memory.
var errNoMemory = errors.New("no room in memory")

// memoryBudget limits the memory for the bodies, or the responses, of all requests. One caller gets at
// most half of it. A quarter is reserved for workers. Bulk creates get at most half, because many of
// them wait with their bodies.
type memoryBudget struct {
	most    int64
	largest int64 // of one request; every share is at least this large
	free    int64 // of each request, not counted
	wait    time.Duration
	memory  *semaphore.Weighted

	mu     sync.Mutex
	shares map[string]*share // in use, by name
}

// share limits the memory of the requests of one caller or one kind.
type share struct {
	memory *semaphore.Weighted
	users  int
}

func newMemoryBudget(f *memoryBudget) *memoryBudget {
	f.most = max(f.most, f.largest)
	f.memory, f.shares = semaphore.NewWeighted(f.most), map[string]*share{}
	return f
}

// join returns the semaphore of the named share, which it creates if necessary, and counts a user
// of it.
func (f *memoryBudget) join(name string, part int64) *semaphore.Weighted {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shares[name]
	if s == nil {
		s = &share{memory: semaphore.NewWeighted(max(part, f.largest))}
		f.shares[name] = s
	}
	s.users++
	return s.memory
}

// leave removes a user of the named share and deletes the share if it was the last one.
func (f *memoryBudget) leave(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shares[name]
	if s.users--; s.users == 0 {
		delete(f.shares, name)
	}
}

// reservation is the memory of one request. It grows with the received data, so that a slow sender
// holds no more than it has sent.
type reservation struct {
	budget *memoryBudget
	caller string // "" without authentication: no share per caller
	class  overload.Class

	held    int64
	names   []string              // of its shares
	budgets []*semaphore.Weighted // of its shares, narrowest first, then the total
}

func (r *reservation) join() {
	join := func(name string, part int64) {
		r.names, r.budgets = append(r.names, name), append(r.budgets, r.budget.join(name, part))
	}
	most := r.budget.most
	if r.caller != "" {
		join("caller "+r.caller, most/2)
	}
	if r.class == overload.BulkCreates {
		join("bulk creates", most/2)
	}
	if r.class != overload.Reports && r.class != overload.Claims {
		join("all but workers", most-most/4)
	}
	r.budgets = append(r.budgets, r.budget.memory)
}

// grow extends the reservation to n bytes, of which the free ones do not count. It returns
// errNoMemory after a timeout, so that requests that wait for each other do not deadlock.
func (r *reservation) grow(ctx context.Context, n int64) error {
	if r.budget == nil {
		return nil
	}
	more := min(n-r.budget.free, r.budget.largest) - r.held
	if more <= 0 {
		return nil
	}
	if r.budgets == nil {
		r.join()
	}
	ctx, cancel := context.WithTimeout(ctx, r.budget.wait)
	defer cancel()
	for i, room := range r.budgets {
		if room.Acquire(ctx, more) != nil {
			releaseAll(r.budgets[:i], more)
			return errNoMemory
		}
	}
	r.held += more
	return nil
}

func releaseAll(rooms []*semaphore.Weighted, n int64) {
	for _, room := range rooms {
		room.Release(n)
	}
}

func (r *reservation) release() {
	releaseAll(r.budgets, r.held)
	for _, name := range r.names {
		r.budget.leave(name)
	}
	r.held, r.names, r.budgets = 0, nil, nil
}

// readAll reads a body. It reserves memory before it allocates it. The reader must limit the size.
func (x *request) readAll(body io.Reader) ([]byte, error) {
	doc := make([]byte, 0, min(max(x.r.ContentLength+1, 512), unmeteredBytes))
	for {
		n, err := body.Read(doc[len(doc):cap(doc)])
		doc = doc[:len(doc)+n]
		if errors.Is(err, io.EOF) {
			return doc, nil
		}
		if err != nil {
			return nil, err
		}
		if len(doc) < cap(doc) {
			continue
		}
		larger := 2 * int64(cap(doc))
		if known := x.r.ContentLength + 1; known > int64(cap(doc)) {
			larger = min(larger, known)
		}
		larger = min(larger, x.route.MaxBody+1)
		if err := x.memory.grow(x.ctx, larger); err != nil {
			return nil, err
		}
		doc = append(make([]byte, 0, larger), doc...)
	}
}

// rejectBody reads and discards the rest of a body for which there is no memory.
func (x *request) rejectBody(body io.Reader) error {
	x.memory.release()
	deadline, _ := x.ctx.Deadline()
	if soon := time.Now().Add(drainTime); soon.Before(deadline) {
		deadline = soon
	}
	_ = http.NewResponseController(x.w).SetReadDeadline(deadline) // an httptest recorder has none
	_, _ = io.Copy(io.Discard, body)
	return tasker.Errorf(tasker.Unavailable, "too many request bytes in flight (server.max_inflight_bytes): retry; "+
		"one caller may use at most half of them")
}

// releaseResources releases the slot and the memory of the request.
func (x *request) releaseResources() {
	x.leaveGate()
	x.memory.release()
}
