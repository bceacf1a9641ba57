package feed

import (
	"context"
	"sync"
	"time"

	"tasker.example/tasker/internal/postgres"
)

// taskPoller reads the transitions of all followed tasks.
type taskPoller struct {
	feed *Feed
	stop context.CancelFunc
	done chan struct{}

	mu        sync.Mutex
	followers map[*Follower]bool
	wake      chan struct{} // a follower was added
}

func startTaskPoller(f *Feed) *taskPoller {
	ctx, stop := context.WithCancel(context.Background())
	p := &taskPoller{
		feed: f, stop: stop, done: make(chan struct{}), followers: map[*Follower]bool{}, wake: make(chan struct{}, 1),
	}
	go p.run(ctx)
	return p
}

func (p *taskPoller) add(w *Follower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followers[w] = true
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// remove removes a follower and returns how many remain.
func (p *taskPoller) remove(w *Follower) (remaining int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.followers, w)
	return len(p.followers)
}

// run polls until ctx ends. It waits longer after slow passes, so that followers take only a fifth
// of the time of one connection.
func (p *taskPoller) run(ctx context.Context) {
	defer close(p.done)
	failing := false
	for ctx.Err() == nil {
		begun := time.Now()
		more, err := p.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			p.feed.Log.WarnContext(ctx, "cannot read the transitions of followed tasks", "err", err)
		case err == nil && failing:
			p.feed.Log.InfoContext(ctx, "reading the transitions of followed tasks again")
		}
		failing = err != nil
		delay := loadFactor * time.Since(begun)
		if !more {
			delay = max(delay, p.feed.Every)
		}
		p.sleep(ctx, delay)
	}
}

func (p *taskPoller) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-p.wake:
	case <-timer.C:
	}
}

// pass sends the next page to each follower that has room for it. A follower that does not keep up
// is not read further and delays no other. pass reports whether a follower has more to read.
func (p *taskPoller) pass(ctx context.Context) (more bool, err error) {
	var batch []*Follower
	p.mu.Lock()
	for w := range p.followers {
		if !w.ended && len(w.pages) < cap(w.pages) {
			batch = append(batch, w)
		}
	}
	p.mu.Unlock()
	for from := 0; from < len(batch); from += followedPerStatement {
		some, err := p.read(ctx, batch[from:min(from+followedPerStatement, len(batch))])
		if err != nil {
			return false, err
		}
		more = more || some
	}
	return more, nil
}

// read reads the next pages of some followers. The states are read first, so that the transitions
// of an ended task are complete.
func (p *taskPoller) read(ctx context.Context, batch []*Follower) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.feed.StatementTimeout)
	defer cancel()
	list := make([]postgres.FollowedTask, len(batch))
	for i, w := range batch {
		list[i] = w.followed
	}
	states, err := p.feed.db.TaskStates(ctx, list)
	if err != nil {
		return false, err
	}
	changes, err := p.feed.db.TaskChanges(ctx, list, p.feed.Page)
	if err != nil {
		return false, err
	}
	of := make([][]postgres.TaskChange, len(batch))
	for _, c := range changes {
		of[c.Place] = append(of[c.Place], c)
	}
	for _, s := range states {
		page, again := batch[s.Place].advance(s, of[s.Place], p.feed.Page)
		more = more || again
		if len(page.Transitions) > 0 || page.Ended || again {
			batch[s.Place].pages <- page // has room: only this goroutine sends
		}
	}
	return more, nil
}
