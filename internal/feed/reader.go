package feed

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"time"

	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/postgres"
)

// A Reader returns the events after a cursor. It must be used by one goroutine at a time. It
// catches up on its own, then subscribes to the poller, and starts over when its buffer is full.
// Before it uses events from the poller, it reads the gaps between the two cursors. Its own reads
// are limited to its namespaces; the poller publishes the events of all namespaces.
type Reader struct {
	feed     *Feed
	point    Cursor
	database string // of its cursors

	address netip.Prefix
	subject string       // caller
	scope   access.Scope // limits catching up
	gaps    []readerGap
	near    bool // the next gap is small

	from    *poller       // nil before it has subscribed
	floor   uint64        // transaction up to which it had all events when it subscribed
	pages   chan page     // from the poller
	dropped chan struct{} // closed by the poller after it has set why
	why     error
}

// errBehind is the reason for dropping a reader with a full buffer.
var errBehind = errors.New("the reader is behind the feed")

// readerGap is a part of the feed that a reader reads on its own.
type readerGap struct {
	Cursor
	last  int64  // final position
	end   Cursor // cursor of the reader after it
	part  *postgres.FeedPart
	pages int
}

// Point returns the current cursor of the reader.
func (r *Reader) Point() Cursor { return r.setPosition(r.point) }

// setPosition adds the database to a cursor.
func (r *Reader) setPosition(p Cursor) Cursor {
	p.Database = r.database
	return p
}

// Close ends the reader. It must be called once.
func (r *Reader) Close() { r.feed.removeReader(r) }

// start makes the reader start to catch up on its own.
func (r *Reader) start() {
	r.dropped, r.near, r.gaps = make(chan struct{}), false, nil
	if r.point.From < r.point.Before {
		r.gaps = []readerGap{{Cursor: r.point, last: math.MaxInt64, end: cursorBefore(r.point.Before)}}
	}
}

// Next returns the next events. It returns no events if there are none within wait, and
// ErrReplaced if the database was replaced.
func (r *Reader) Next(ctx context.Context, wait time.Duration) ([]Event, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		list, err := r.next(ctx, timer.C)
		if !errors.Is(err, errBehind) {
			return list, err
		}
		r.feed.unsubscribe(r)
		r.start()
	}
}

// next is like Next but returns errBehind if the poller drops the reader.
func (r *Reader) next(ctx context.Context, timeout <-chan time.Time) ([]Event, error) {
	for r.from == nil || len(r.gaps) > 0 {
		select { // leave database connections to the engine
		case r.feed.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		list, err := r.catchUp(access.WithScope(ctx, r.scope))
		<-r.feed.reading
		if err != nil || len(list) > 0 {
			return list, err
		}
	}
	for {
		var events page
		select {
		case events = <-r.pages:
		case <-timeout:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.dropped:
			select {
			case events = <-r.pages: // sent before the drop
			default:
				return nil, r.why
			}
		}
		if list := r.filterEvents(events); len(list) > 0 {
			return list, nil
		}
	}
}

// maxCatchingUp limits the readers that catch up concurrently.
const maxCatchingUp = 3

// catchUp reads one page of the gaps. If none remain, it subscribes to the poller.
func (r *Reader) catchUp(ctx context.Context) ([]Event, error) {
	if len(r.gaps) == 0 && r.near {
		return nil, r.joinPoller()
	}
	if len(r.gaps) == 0 {
		h, err := r.feed.db.FeedHorizon(ctx, r.point.From)
		if err != nil {
			return nil, err
		}
		if h.Database != r.database {
			return nil, ErrReplaced
		}
		r.near = true // unless the gap has many pages
		r.gaps = []readerGap{{
			Cursor: Cursor{From: r.point.From, Before: h.Transaction}, last: math.MaxInt64, end: cursorBefore(h.Transaction),
		}}
	}
	g := &r.gaps[0]
	if g.part == nil {
		part, err := r.feed.begin(ctx, g.Cursor)
		if err != nil {
			return nil, err
		}
		if part == nil {
			r.closeGap()
			return nil, nil
		}
		part.Last = min(part.Last, g.last)
		g.part = part
	}
	events, rest, err := r.feed.readPage(ctx, *g.part)
	if err != nil {
		return nil, err
	}
	g.part = &rest
	if g.pages++; g.pages > 1 {
		r.near = false
	}
	list := r.filterEvents(events)
	if rest.After >= rest.Last {
		r.closeGap()
	}
	return list, nil
}

func (r *Reader) closeGap() {
	r.point = r.gaps[0].end
	r.gaps = r.gaps[1:]
}

// joinPoller subscribes to the poller and determines the gaps before its events.
func (r *Reader) joinPoller() error {
	r.floor = r.point.From
	p, err := r.feed.subscribe(r)
	if err != nil {
		return err
	}
	if p.From > r.floor {
		r.gaps = append(r.gaps, readerGap{
			Cursor: Cursor{From: r.floor, Before: p.From}, last: math.MaxInt64, end: cursorBefore(p.From),
		})
	}
	if from := max(p.From, r.floor); p.Before > from && p.After > 0 {
		r.gaps = append(r.gaps, readerGap{
			Cursor: Cursor{From: from, Before: p.Before}, last: p.After,
			end: Cursor{From: from, Before: p.Before, After: p.After},
		})
	}
	return nil
}

// filterEvents returns the events of a page that the reader does not have yet.
func (r *Reader) filterEvents(events page) []Event {
	list := make([]Event, 0, len(events))
	for _, e := range events {
		if e.WrittenIn < r.floor {
			continue
		}
		e.Point.From = max(e.Point.From, r.floor)
		r.point = e.Point
		e.Point = r.setPosition(e.Point)
		list = append(list, e)
	}
	return list
}

// drop ends the subscription of a reader to the poller. why is the reason.
func (r *Reader) drop(why error) {
	r.why = why
	close(r.dropped)
}
