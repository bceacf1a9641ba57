// Package feed streams investigation events to any number of readers, in order and without gaps,
// from any server. A [Cursor] is the position from which a reader resumes.
//
// Positions become visible out of order, so a feed reads up to a horizon: all transactions before
// it have ended. The horizon never separates two events of one task whose transactions and
// positions differ in order.
//
// One poller serves all readers that have caught up and waits for none. A reader that is behind
// catches up on its own.
//
// A feed also streams the transitions of single tasks. One poller reads those of all followed tasks.
package feed

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

// Options configures a Feed. All fields are optional.
type Options struct {
	Every            time.Duration // interval of the poller; default half a second
	MaxReaders       int           // limit of readers, and of followers of tasks; default 100
	MaxShare         int           // readers per address and per caller; default half of MaxReaders
	Buffer           int           // pages that a reader may be behind the poller; default 16
	Page             int           // events per page; default 200
	StatementTimeout time.Duration // timeout of each statement; default 2 s
	Log              *slog.Logger
}

// An Event is an event with the cursor after it.
type Event struct {
	postgres.FeedEvent
	Point Cursor
}

// ErrReplaced ends readers after the database was restored or failed over.
var ErrReplaced = errors.New("the database was restored or failed over to a standby")

// errRestored prevents readers from missing events that are not marked yet.
var errRestored = tasker.Errorf(tasker.Unavailable,
	"the database was restored and a server is still marking its events: try again soon")

// A Feed streams events to readers. It is safe for concurrent use.
type Feed struct {
	Options
	db      *postgres.DB
	reading chan struct{} // limits readers that query the database

	mu        sync.Mutex
	readers   quota
	poller    *poller // nil without subscribers
	followers quota
	following *taskPoller // nil without followers
}

// New returns a feed of the events in a database.
func New(db *postgres.DB, o Options) *Feed {
	o.Every = cmp.Or(o.Every, 500*time.Millisecond)
	o.MaxReaders = cmp.Or(o.MaxReaders, 100)
	o.MaxShare = cmp.Or(o.MaxShare, max(o.MaxReaders/2, 1))
	o.Buffer = cmp.Or(o.Buffer, 16)
	o.Page = cmp.Or(o.Page, 200)
	o.StatementTimeout = cmp.Or(o.StatementTimeout, 2*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Feed{
		Options: o, db: db, reading: make(chan struct{}, maxCatchingUp), readers: newQuota(o), followers: newQuota(o),
	}
}

// Now returns the cursor after all current events.
func (f *Feed) Now(ctx context.Context) (Cursor, error) {
	h, err := f.db.Horizon(ctx)
	p := cursorBefore(h.Transaction)
	p.Database = h.Database
	return p, err
}

// Read starts a reader after a cursor; the zero cursor is before the first event. address is the
// network address of the client, which limits its readers, see [overload.Network]. Past events are
// limited to the namespaces of ctx. Read returns Unavailable if there are too many readers, and
// Invalid for a cursor of another database.
func (f *Feed) Read(ctx context.Context, after Cursor, address netip.Addr) (*Reader, error) {
	h, err := f.db.Horizon(ctx)
	if err != nil {
		return nil, err
	}
	if after.Before > h.Transaction || after.Database != "" && after.Database != h.Database {
		return nil, tasker.Errorf(tasker.Invalid, "event id %s belongs to another database, or precedes a "+
			"restore or failover of this one: read from the beginning", after)
	}
	if after == (Cursor{}) {
		adopted, err := f.db.HasAdopted(ctx)
		if err != nil {
			return nil, err
		}
		if !adopted {
			return nil, errRestored
		}
	}
	r := &Reader{
		feed: f, point: after, database: h.Database, address: overload.Network(address),
		subject: access.IdentityFromContext(ctx).Subject, scope: access.ScopeFromContext(ctx),
		pages: make(chan page, f.Buffer),
	}
	r.start()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.readers.enter(r.address, r.subject); err != nil {
		return nil, err
	}
	return r, nil
}

// subscribe adds a reader to the poller and returns the poller's cursor, or ErrReplaced.
func (f *Feed) subscribe(r *Reader) (Cursor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.poller == nil {
		ctx, stop := context.WithCancel(context.Background())
		f.poller = &poller{
			feed: f, stop: stop, done: make(chan struct{}), database: r.database, point: r.point, readers: map[*Reader]bool{},
		}
		go f.poller.run(ctx)
	}
	r.from = f.poller
	return f.poller.add(r)
}

// removeReader unregisters a reader.
func (f *Feed) removeReader(r *Reader) {
	f.mu.Lock()
	f.readers.leave(r.address, r.subject)
	f.mu.Unlock()
	f.unsubscribe(r)
}

// unsubscribe removes a reader from its poller. It stops a poller without readers.
func (f *Feed) unsubscribe(r *Reader) {
	f.mu.Lock()
	var last *poller
	if r.from != nil && r.from.remove(r) == 0 && f.poller == r.from {
		last, f.poller = f.poller, nil
	}
	r.from = nil
	f.mu.Unlock()
	if last != nil {
		last.stop()
		<-last.done
	}
}

// page is a sequence of events.
type page []Event

// begin returns the part of a cursor's transactions that remains to be read, or nil if nothing
// remains.
func (f *Feed) begin(ctx context.Context, p Cursor) (*postgres.FeedPart, error) {
	if p.From >= p.Before {
		return nil, nil //nolint:nilnil // nothing remains
	}
	first, last, err := f.db.FeedBounds(ctx, p.From, p.Before)
	if err != nil || last <= p.After {
		return nil, err
	}
	return &postgres.FeedPart{From: p.From, Before: p.Before, After: max(p.After, first-1), Last: last}, nil
}

// readPage reads the next page of a part. It also returns what remains of the part.
func (f *Feed) readPage(ctx context.Context, part postgres.FeedPart) (page, postgres.FeedPart, error) {
	events, rest, err := f.db.FeedEvents(ctx, part, f.Page)
	list := make(page, len(events))
	for i, e := range events {
		list[i] = Event{FeedEvent: e, Point: Cursor{From: part.From, Before: part.Before, After: e.Position}}
	}
	return list, rest, err
}
