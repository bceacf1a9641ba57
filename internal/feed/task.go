package feed

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

const (
	followedPerStatement = 20
	followerBuffer       = 4                // pages that a follower may be behind
	maxRemembered        = 20_000           // transitions that a follower recognizes; further ones may be repeated
	rowOverlap           = 5 * time.Second  // history rows become visible in another order within this time
	moveOverlap          = 30 * time.Second // so do the transitions of attempts in progress
	loadFactor           = 4                // the poller waits this multiple of the duration of a pass
)

// FormatTaskCursor formats a position for clients.
func FormatTaskCursor(p postgres.TaskPosition) string {
	since := int64(0)
	if !p.Since.IsZero() {
		since = p.Since.UnixMicro()
	}
	return fmt.Sprintf("%d.%d.%d", p.TaskAfter, p.StepAfter, since)
}

// ParseTaskCursor parses the result of [FormatTaskCursor]. The error is Invalid.
func ParseTaskCursor(text string) (p postgres.TaskPosition, err error) {
	wrong := tasker.Errorf(tasker.Invalid,
		"invalid event id %.60q: must be the last id received from this stream, unchanged", text)
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return p, wrong
	}
	var numbers [3]int64
	for i, part := range parts {
		if numbers[i], err = strconv.ParseInt(part, 10, 64); err != nil || numbers[i] < 0 {
			return p, wrong
		}
	}
	p.TaskAfter, p.StepAfter = numbers[0], numbers[1]
	if numbers[2] > 0 {
		p.Since = time.UnixMicro(numbers[2]).UTC()
	}
	if FormatTaskCursor(p) != text {
		return p, wrong
	}
	return p, nil
}

// A TaskPage is the next part of the transitions of a task.
type TaskPage struct {
	Transitions []tasker.Transition
	Before      postgres.TaskPosition // resuming from here repeats this page
	After       postgres.TaskPosition
	State       postgres.FollowedState
	Ended       bool // the task has ended, and this page is the last one
}

// A Follower returns the transitions of one task. It must be used by one goroutine at a time.
type Follower struct {
	feed    *Feed
	address netip.Prefix
	subject string
	pages   chan TaskPage // from the poller

	// The poller uses the following fields.
	followed postgres.FollowedTask
	known    map[int64]int64 // transitions of steps that were sent, with their history rows; 0 means none yet
	ended    bool
}

// Follow starts a follower of a task after a position. The quotas are those of readers, but
// followers are counted separately. It returns Unavailable if there are too many, and Invalid for a
// position that the task has not reached, as after a restore of the database.
func (f *Feed) Follow(ctx context.Context, task tasker.ID, after postgres.TaskPosition, address netip.Addr) (*Follower, error) {
	now, err := f.db.TaskPosition(ctx, task)
	if err != nil {
		return nil, err
	}
	if after.TaskAfter > now.TaskAfter || after.StepAfter > now.StepAfter {
		return nil, tasker.Errorf(tasker.Invalid, "event id %s belongs to another task or precedes a restore of the "+
			"database: follow the task from the beginning", FormatTaskCursor(after))
	}
	w := &Follower{
		feed: f, address: overload.Network(address), subject: access.IdentityFromContext(ctx).Subject,
		pages: make(chan TaskPage, followerBuffer), known: map[int64]int64{},
		followed: postgres.FollowedTask{UUID: task, TaskPosition: after},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.followers.enter(w.address, w.subject); err != nil {
		return nil, err
	}
	if f.following == nil {
		f.following = startTaskPoller(f)
	}
	f.following.add(w)
	return w, nil
}

// Close ends the follower. It must be called once.
func (w *Follower) Close() {
	f := w.feed
	f.mu.Lock()
	f.followers.leave(w.address, w.subject)
	var last *taskPoller
	if f.following.remove(w) == 0 {
		last, f.following = f.following, nil
	}
	f.mu.Unlock()
	if last != nil {
		last.stop()
		<-last.done
	}
}

// Next returns the next page, or nil if there is none within wait.
func (w *Follower) Next(ctx context.Context, wait time.Duration) (*TaskPage, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case p := <-w.pages:
		return &p, nil
	case <-timer.C:
		return nil, nil //nolint:nilnil // nothing happened
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lastRow returns the last history row of steps among changes, its time, and whether the changes
// have as many rows as were requested, so that more may follow.
func lastRow(changes []postgres.TaskChange, limit int) (id int64, at time.Time, full bool) {
	rows := 0
	for _, c := range changes {
		if c.StepUUID == nil || c.RowID != c.ID {
			continue
		}
		if rows++; c.ID > id {
			id, at = c.ID, c.CreatedAt
		}
	}
	return id, at, rows >= limit
}

// remember reports whether a transition was sent before, and remembers it if it may be read again.
func (w *Follower) remember(c postgres.TaskChange) (sent bool) {
	if c.StepUUID == nil {
		return false // read once
	}
	row, sent := w.known[c.ID]
	if sent || len(w.known) < maxRemembered {
		w.known[c.ID] = max(row, c.RowID)
	}
	return sent
}

// advance makes a page of the changes after the position of the follower, and moves the position.
// It reports whether more changes may follow immediately.
func (w *Follower) advance(state postgres.FollowedState, changes []postgres.TaskChange, limit int) (p TaskPage, more bool) {
	p = TaskPage{Before: w.followed.TaskPosition, State: state}
	after := p.Before
	last, until, more := lastRow(changes, limit)
	tasks := 0
	if more {
		after.StepAfter = last
	}
	for _, c := range changes {
		if more && (c.StepUUID == nil || c.RowID == 0) && c.CreatedAt.After(until) {
			continue // after the history rows of the next page
		}
		switch {
		case c.StepUUID == nil:
			tasks++
			after.TaskAfter = max(after.TaskAfter, c.ID)
		case c.RowID == 0 && c.CreatedAt.Add(-moveOverlap).After(after.Since):
			after.Since = c.CreatedAt.Add(-moveOverlap)
		case c.RowID == c.ID && c.CreatedAt.Before(c.ReadAt.Add(-rowOverlap)):
			after.StepAfter = max(after.StepAfter, c.ID)
		}
		if !w.remember(c) {
			p.Transitions = append(p.Transitions, c.Transition)
		}
	}
	for id, row := range w.known {
		if row > 0 && row <= p.Before.StepAfter {
			delete(w.known, id)
		}
	}
	w.followed.TaskPosition, p.After = after, after
	w.ended = !more && tasks < limit && (state.State == "" || state.State.Final() || state.PermanentlyFailed)
	p.Ended = w.ended
	return p, more
}
