package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"tasker.example/tasker"
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
var errNoRoom = errors.New("no room for the body")

// An inflight is the memory for bodies of all requests of a server.
type inflight struct {
	room    *semaphore.Weighted
	wait    time.Duration
	held    atomic.Int64
	refused atomic.Int64
}

func newInflight(most int64, wait time.Duration) *inflight {
	return &inflight{room: semaphore.NewWeighted(most), wait: wait}
}

// A reservation is the part of one request. It grows with what has arrived, so
// that a slow sender holds no more than it has sent.
type reservation struct {
	of   *inflight
	held int64
}

// grow takes room until the reservation has n bytes beyond those that are free.
// Requests that wait for each other's room give up after a while, all but some.
func (r *reservation) grow(ctx context.Context, n int64) error {
	more := n - freeBytes - r.held
	if more <= 0 || r.of == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.of.wait)
	defer cancel()
	if r.of.room.Acquire(ctx, more) != nil {
		r.of.refused.Add(1)
		return errNoRoom
	}
	r.held += more
	r.of.held.Add(more)
	return nil
}

// release gives everything back.
func (r *reservation) release() {
	if r.held > 0 {
		r.of.room.Release(r.held)
		r.of.held.Add(-r.held)
		r.held = 0
	}
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

// noRoom refuses a body for which there is no memory, after its rest was read
// and thrown away.
func (x *request) noRoom(body io.Reader) error {
	x.room.release()
	deadline, _ := x.ctx.Deadline()
	if soon := time.Now().Add(drainTime); soon.Before(deadline) {
		deadline = soon
	}
	_ = http.NewResponseController(x.w).SetReadDeadline(deadline) // an httptest recorder has none
	_, _ = io.Copy(io.Discard, body)
	return tasker.Errorf(tasker.Unavailable, "too many bytes of other requests are in flight (server.max_inflight_bytes); send the request again")
}
