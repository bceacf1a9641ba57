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

// A Reader gets the events after a point. One goroutine uses it. It catches up by itself, then
// joins the poller, and starts over when its buffer is full. Before it takes events from the
// poller it reads the gaps between both positions. Own reads have the events of its namespaces,
// the poller those of all.
type Reader struct {
	feed     *Feed
	point    Cursor
	database string // that its points are of

	address netip.Prefix // where it comes from
	subject string       // who reads
	scope   access.Scope // what it catches up with is in these namespaces
	gaps    []gap
	near    bool // the next gap is a small one

	from    *poller       // once joined
	floor   uint64        // events of transactions before this one it had when it joined
	pages   chan page     // what the poller tells
	dropped chan struct{} // closed by the poller, after it has set why
	why     error
}

// errBehind is why the poller drops a reader that has not taken what it was told before.
var errBehind = errors.New("the reader is behind the feed")

// A gap is a part that a reader reads by itself.
type gap struct {
	Cursor
	last  int64  // position where it ends
	end   Cursor // where the reader is then
	part  *postgres.FeedPart
	pages int
}

// Point returns how far the reader has come.
func (r *Reader) Point() Cursor { return r.stamp(r.point) }

// stamp names the database in a point.
func (r *Reader) stamp(p Cursor) Cursor {
	p.Database = r.database
	return p
}

// Close ends the reading. It must be called, once.
func (r *Reader) Close() { r.feed.leave(r) }

// begin has the reader read on by itself from its point.
func (r *Reader) begin() {
	r.dropped, r.near, r.gaps = make(chan struct{}), false, nil
	if r.point.From < r.point.Before {
		r.gaps = []gap{{Cursor: r.point, last: math.MaxInt64, end: cursorBefore(r.point.Before)}}
	}
}

// Next returns the next events, none after a wait, or ErrReplaced.
func (r *Reader) Next(ctx context.Context, wait time.Duration) ([]Event, error) {
	rest := time.NewTimer(wait)
	defer rest.Stop()
	for {
		list, err := r.next(ctx, rest.C)
		if !errors.Is(err, errBehind) {
			return list, err
		}
		r.feed.unsubscribe(r)
		r.begin()
	}
}

// next is Next until the poller has dropped the reader.
func (r *Reader) next(ctx context.Context, rest <-chan time.Time) ([]Event, error) {
	for r.from == nil || len(r.gaps) > 0 {
		select { // the connections are there for the engine, first of all
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
		var told page
		select {
		case told = <-r.pages:
		case <-rest:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.dropped:
			select {
			case told = <-r.pages: // of before
			default:
				return nil, r.why
			}
		}
		if list := r.take(told); len(list) > 0 {
			return list, nil
		}
	}
}

// atOnce is how many readers catch up concurrently.
const atOnce = 3

// catchUp goes on by one page. When none is left it joins the poller.
func (r *Reader) catchUp(ctx context.Context) ([]Event, error) {
	if len(r.gaps) == 0 && r.near {
		return nil, r.join()
	}
	if len(r.gaps) == 0 {
		h, err := r.feed.db.FeedHorizon(ctx, r.point.From)
		if err != nil {
			return nil, err
		}
		if h.Database != r.database {
			return nil, ErrReplaced
		}
		r.near = true // unless it takes many pages
		r.gaps = []gap{{Cursor: Cursor{From: r.point.From, Before: h.Transaction}, last: math.MaxInt64, end: cursorBefore(h.Transaction)}}
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
	events, left, err := r.feed.page(ctx, *g.part)
	if err != nil {
		return nil, err
	}
	g.part = &left
	if g.pages++; g.pages > 1 {
		r.near = false
	}
	list := r.take(events)
	if left.After >= left.Last {
		r.closeGap()
	}
	return list, nil
}

func (r *Reader) closeGap() {
	r.point = r.gaps[0].end
	r.gaps = r.gaps[1:]
}

// join has the poller tell what comes, and finds out what lies between.
func (r *Reader) join() error {
	r.floor = r.point.From
	p, err := r.feed.subscribe(r)
	if err != nil {
		return err
	}
	if p.From > r.floor {
		r.gaps = append(r.gaps, gap{Cursor: Cursor{From: r.floor, Before: p.From}, last: math.MaxInt64, end: cursorBefore(p.From)})
	}
	if from := max(p.From, r.floor); p.Before > from && p.After > 0 {
		r.gaps = append(r.gaps, gap{Cursor: Cursor{From: from, Before: p.Before}, last: p.After, end: Cursor{From: from, Before: p.Before, After: p.After}})
	}
	return nil
}

// take returns what the reader does not have of a page.
func (r *Reader) take(told page) []Event {
	list := make([]Event, 0, len(told))
	for _, e := range told {
		if e.WrittenIn < r.floor {
			continue
		}
		e.Point.From = max(e.Point.From, r.floor)
		r.point = e.Point
		e.Point = r.stamp(e.Point)
		list = append(list, e)
	}
	return list
}

// drop ends the reading: the poller tells it nothing more.
func (r *Reader) drop(why error) {
	r.why = why
	close(r.dropped)
}
