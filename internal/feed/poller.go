package feed

import (
	"context"
	"sync"
	"time"

	"tasker.example/tasker/internal/postgres"
)

// A poller reads the feed for all readers that have caught up.
type poller struct {
	feed *Feed
	stop context.CancelFunc
	done chan struct{}

	part *postgres.FeedPart // what is being told; nil while there is nothing

	mu       sync.Mutex
	database string
	point    Cursor // all before it has been told
	readers  map[*Reader]bool
}

// add adds a reader and returns its start, or ErrReplaced.
func (p *poller) add(r *Reader) (Cursor, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.database != p.database {
		return Cursor{}, ErrReplaced
	}
	p.readers[r] = true
	return p.point, nil
}

// remove has a reader told no more, and returns how many are left.
func (p *poller) remove(r *Reader) (left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.readers, r)
	return len(p.readers)
}

// run polls. Readers get nothing while the database is away, which is logged once.
func (p *poller) run(ctx context.Context) {
	defer close(p.done)
	tick := time.NewTicker(p.feed.Every)
	defer tick.Stop()
	failing := false
	for {
		err := p.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			p.feed.Log.WarnContext(ctx, "the feed of events stands still", "err", err)
		case err == nil && failing:
			p.feed.Log.InfoContext(ctx, "the feed of events goes on")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pass sends all complete events. The next pass continues an unfinished part.
func (p *poller) pass(ctx context.Context) error {
	if err := p.look(ctx); err != nil {
		return err
	}
	for p.part != nil {
		if err := p.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look looks whether the database is still the same, and for the next part if none is
// being told.
func (p *poller) look(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, p.feed.Patience)
	defer cancel()
	h, err := p.feed.db.FeedHorizon(limited, p.point.Before)
	switch {
	case err != nil:
		return err
	case h.Database != p.database:
		p.replace(ctx, h)
		return nil
	case p.part != nil || h.Transaction <= p.point.Before:
		return nil
	}
	part, err := p.feed.begin(limited, Cursor{From: p.point.Before, Before: h.Transaction})
	if err != nil {
		return err
	}
	if part == nil {
		p.publish(nil, cursorBefore(h.Transaction))
	}
	p.part = part
	return nil
}

// replace ends all readings and goes on in another database.
func (p *poller) replace(ctx context.Context, h postgres.Horizon) {
	p.feed.Log.WarnContext(ctx, "the feed of events begins anew: the database was restored, or a standby took its place")
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.readers {
		r.drop(ErrReplaced)
	}
	clear(p.readers)
	p.database, p.point, p.part = h.Database, cursorBefore(h.Transaction), nil
}

// read tells the next page of the part.
func (p *poller) read(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, p.feed.Patience)
	defer cancel()
	events, left, err := p.feed.page(limited, *p.part)
	if err != nil {
		return err
	}
	p.part = &left
	after := Cursor{From: left.From, Before: left.Before, After: left.After}
	if left.After >= left.Last {
		p.part, after = nil, cursorBefore(left.Before)
	}
	p.publish(events, after)
	return nil
}

// publish gives a page to all readers, and waits for none: one whose buffer is full is told no
// more, and reads on by itself.
func (p *poller) publish(events page, after Cursor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.point = after
	if len(events) == 0 {
		return
	}
	for r := range p.readers {
		select {
		case r.pages <- events:
		default:
			delete(p.readers, r)
			r.drop(errBehind)
		}
	}
}
