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

// Bodies of requests that are in flight take memory: about seven bytes for each
// byte of the body at the worst, while it is read, checked and stored (a test
// measures it). The server reads no more at once than it has room for.
const (
	// DefaultMaxInflightBytes of bodies take up to 512 MiB of memory.
	DefaultMaxInflightBytes = 64 << 20
	// freeBytes of each body are not counted, so that small requests, heartbeats
	// above all, never wait for large ones. Connections cost as much.
	freeBytes = 16 << 10
	// inflightWait is how long a body waits for others to be done.
	inflightWait = 2 * time.Second
	// drainTime is how long the rest of a body that is refused may take to arrive.
	// A client that is still sending would not read the answer.
	drainTime = 5 * time.Second
)

// errNoRoom says that too many bytes of other requests are in flight.
var errNoRoom = errors.New("no room in memory")

// An inflight is the memory for bodies, or for answers, of all requests of a server.
//
// One caller has half of it at most. Whoever is no worker leaves a quarter to workers.
// Bulk creates have half at most: many of them wait with their bodies.
type inflight struct {
	most    int64
	largest int64 // of one request; each share has room for it
	free    int64 // of each request
	wait    time.Duration
	room    *semaphore.Weighted

	mu     sync.Mutex
	shares map[string]*share // of those who hold or want some of it
}

// A share is the part that some requests have together at most.
type share struct {
	room  *semaphore.Weighted
	users int
}

func newInflight(f *inflight) *inflight {
	f.most = max(f.most, f.largest)
	f.room, f.shares = semaphore.NewWeighted(f.most), map[string]*share{}
	return f
}

// join returns the share with a name, which part of all the room is.
func (f *inflight) join(name string, part int64) *semaphore.Weighted {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shares[name]
	if s == nil {
		s = &share{room: semaphore.NewWeighted(max(part, f.largest))}
		f.shares[name] = s
	}
	s.users++
	return s.room
}

// leave forgets a share that nobody uses any more.
func (f *inflight) leave(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shares[name]
	if s.users--; s.users == 0 {
		delete(f.shares, name)
	}
}

// A reservation is the part of one request. It grows with what has arrived, so
// that a slow sender holds no more than it has sent.
type reservation struct {
	of     *inflight
	caller string // "" shares with nobody: one of a server that asks nobody who they are
	class  overload.Class

	held  int64
	names []string              // of the shares it is part of
	rooms []*semaphore.Weighted // theirs, the narrowest first, and that of all
}

// join has the reservation be part of its shares.
func (r *reservation) join() {
	join := func(name string, part int64) {
		r.names, r.rooms = append(r.names, name), append(r.rooms, r.of.join(name, part))
	}
	most := r.of.most
	if r.caller != "" {
		join("caller "+r.caller, most/2)
	}
	if r.class == overload.BulkCreates {
		join("bulk creates", most/2)
	}
	if r.class != overload.Reports && r.class != overload.Claims {
		join("all but workers", most-most/4)
	}
	r.rooms = append(r.rooms, r.of.room)
}

// grow takes room until the reservation has n bytes beyond those that are free.
// Requests that wait for each other's room give up after a while, all but some.
func (r *reservation) grow(ctx context.Context, n int64) error {
	if r.of == nil {
		return nil
	}
	more := min(n-r.of.free, r.of.largest) - r.held
	if more <= 0 {
		return nil
	}
	if r.rooms == nil {
		r.join()
	}
	ctx, cancel := context.WithTimeout(ctx, r.of.wait)
	defer cancel()
	for i, room := range r.rooms {
		if room.Acquire(ctx, more) != nil {
			giveAll(r.rooms[:i], more)
			return errNoRoom
		}
	}
	r.held += more
	return nil
}

func giveAll(rooms []*semaphore.Weighted, n int64) {
	for _, room := range rooms {
		room.Release(n)
	}
}

// release gives everything back.
func (r *reservation) release() {
	giveAll(r.rooms, r.held)
	for _, name := range r.names {
		r.of.leave(name)
	}
	r.held, r.names, r.rooms = 0, nil, nil
}

// readAll reads a body into memory that is reserved before it is allocated. The
// body ends by itself at the limit of its route.
func (x *request) readAll(body io.Reader) ([]byte, error) {
	doc := make([]byte, 0, min(max(x.r.ContentLength+1, 512), freeBytes))
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
		larger = min(larger, x.route.maxBody+1)
		if err := x.room.grow(x.ctx, larger); err != nil {
			return nil, err
		}
		doc = append(make([]byte, 0, larger), doc...)
	}
}

// rejectBody refuses a body for which there is no memory, after its rest was read
// and thrown away.
func (x *request) rejectBody(body io.Reader) error {
	x.room.release()
	deadline, _ := x.ctx.Deadline()
	if soon := time.Now().Add(drainTime); soon.Before(deadline) {
		deadline = soon
	}
	_ = http.NewResponseController(x.w).SetReadDeadline(deadline) // an httptest recorder has none
	_, _ = io.Copy(io.Discard, body)
	return tasker.Errorf(tasker.Unavailable, "too many bytes of other requests are in flight (server.max_inflight_bytes), "+
		"of all callers or of this one, who has half of them at most; send the request again")
}

// done gives back what the request takes of others: its turn, and the room of its body.
func (x *request) done() {
	x.leave()
	x.room.release()
}
