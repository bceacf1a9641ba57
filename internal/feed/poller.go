package feed

import (
	"context"
	"sync"
	"time"

	"tasker.example/tasker/internal/postgres"
)

// poller reads the feed for all readers that have caught up.
type poller struct {
	feed *Feed
	stop context.CancelFunc
	done chan struct{}

	part *postgres.FeedPart // part that is being published, or nil

	mu       sync.Mutex
	database string
	point    Cursor // everything before it has been published
	readers  map[*Reader]bool
}

// add adds a reader and returns its cursor, or ErrReplaced.
func (p *poller) add(r *Reader) (Cursor, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.database != p.database {
		return Cursor{}, ErrReplaced
	}
	p.readers[r] = true
	return p.point, nil
}

// remove removes a reader and returns how many remain.
func (p *poller) remove(r *Reader) (remaining int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.readers, r)
	return len(p.readers)
}

// run polls until ctx ends. It logs the beginning and the end of a database outage.
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
			p.feed.Log.WarnContext(ctx, "cannot read the event feed", "err", err)
		case err == nil && failing:
			p.feed.Log.InfoContext(ctx, "reading the event feed again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pass publishes all events up to the horizon. If it fails, the next pass continues with the
// unfinished part.
func (p *poller) pass(ctx context.Context) error {
	if err := p.poll(ctx); err != nil {
		return err
	}
	for p.part != nil {
		if err := p.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// poll checks that the database is still the same, and finds the next part unless one is being
// published.
func (p *poller) poll(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, p.feed.StatementTimeout)
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

// replace ends all readers and continues with another database.
func (p *poller) replace(ctx context.Context, h postgres.Horizon) {
	p.feed.Log.WarnContext(ctx, "restarting the event feed: the database was restored or failed over to a standby")
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.readers {
		r.drop(ErrReplaced)
	}
	clear(p.readers)
	p.database, p.point, p.part = h.Database, cursorBefore(h.Transaction), nil
}

// read publishes the next page of the part.
func (p *poller) read(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, p.feed.StatementTimeout)
	defer cancel()
	events, rest, err := p.feed.readPage(limited, *p.part)
	if err != nil {
		return err
	}
	p.part = &rest
	after := Cursor{From: rest.From, Before: rest.Before, After: rest.After}
	if rest.After >= rest.Last {
		p.part, after = nil, cursorBefore(rest.Before)
	}
	p.publish(events, after)
	return nil
}

// publish sends a page to all readers without blocking. It drops a reader whose buffer is full,
// which then catches up on its own.
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
