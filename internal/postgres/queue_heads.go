package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Index entries of claimed steps stay until a vacuum can remove them, which a long transaction
// such as a dump delays: each claim would pass over all of them. While there are many, a process
// keeps for each queue and priority the instant of its first waiting step and starts claims there.
// Steps that were committed later with an older instant, or returned from a hold, are found by a
// rare scan from the beginning.

const (
	headsEvery   = 400 * time.Millisecond
	headsMargin  = time.Second     // what was committed so much later is not missed
	allHeadsRest = 5 * time.Second // between two looks from the beginning, or
	allHeadsCost = 20              // so many times as long as one takes
	headsLast    = time.Minute     // and twice that: without such a look, claims read from the beginning
	maxHeads     = 10_000          // queues and priorities
	maxLevels    = 8               // priorities of a queue: with more, claims read from the beginning and not in so many parts
	expiryRest   = 5 * time.Second // between two looks for steps that have waited too long: each passes over those that were claimed
)

// deadTupleThreshold is from how many rows on that were claimed and are not removed claims begin at heads.
const deadTupleThreshold = `20000`

const hasManyDead = `coalesce(pg_stat_get_dead_tuples('tasker.ready_steps'::regclass), 0) > ` + deadTupleThreshold

// queueHeads are where claims begin.
type queueHeads struct {
	on atomic.Bool

	mu     sync.Mutex
	levels map[QueueName]map[int]time.Time // by priority; zero: at the beginning
	count  int
	looked time.Time
	expiry time.Time     // the last look for steps that have waited too long
	all    time.Time     // the last look from the beginning
	whole  bool          // of what waited then nothing is forgotten
	allAt  time.Time     // the same by the clock of the database: other priorities came to be afterwards
	rest   time.Duration // until the next one
}

// A headRanges is the part of queues that a claim reads: by priority and age, and between them.
type headRanges struct {
	namespaces, handlers []string
	low, high            []int64 // a priority if they are the same, those between otherwise
	since                []time.Time
}

// The priorities of steps are integers of four bytes.
const lowest, highest = math.MinInt32 - 1, math.MaxInt32 + 1

// rangesFor returns what a claim reads; nil: all queues from their beginning.
func (h *queueHeads) rangesFor(c Claimant) *headRanges {
	if !h.on.Load() || len(c.Namespaces)*len(c.Handlers) > manyQueues {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.whole || time.Since(h.all) > headsLast+2*h.rest {
		return nil
	}
	r := &headRanges{}
	for _, n := range c.Namespaces {
		for _, handler := range c.Handlers {
			levels := h.levels[QueueName{n, handler}]
			if len(levels) > maxLevels {
				return nil
			}
			r.add(QueueName{n, handler}, levels, h.allAt.Add(-headsMargin))
		}
	}
	return r
}

// add adds the ranges of a queue, which between its priorities begin at an instant. Every priority is in one of them.
func (r *headRanges) add(q QueueName, levels map[int]time.Time, between time.Time) {
	put := func(low, high int64, since time.Time) {
		r.namespaces, r.handlers = append(r.namespaces, q.Namespace), append(r.handlers, q.Handler)
		r.low, r.high, r.since = append(r.low, low), append(r.high, high), append(r.since, since)
	}
	priorities := make([]int64, 0, len(levels))
	for p := range levels {
		priorities = append(priorities, int64(p))
	}
	slices.Sort(priorities)
	below := int64(lowest)
	for _, p := range priorities {
		if p > below+1 {
			put(below, p, between)
		}
		put(p, p, levels[int(p)])
		below = p
	}
	put(below, highest, between)
}

// taken notes the priorities of steps that were handed out.
func (h *queueHeads) taken(list []Claimed) {
	if !h.on.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range list {
		h.level(QueueName{c.Namespace, c.Handler}, c.Priority)
	}
}

func (h *queueHeads) level(q QueueName, priority int) {
	levels := h.levels[q]
	if _, known := levels[priority]; known {
		return
	}
	if h.count >= maxHeads || h.levels == nil {
		h.whole = h.whole && h.levels == nil // if some are forgotten
		h.levels, h.count = map[QueueName]map[int]time.Time{}, 0
		levels = nil
	}
	if levels == nil {
		levels = map[int]time.Time{}
		h.levels[q] = levels
	}
	levels[priority] = time.Time{}
	h.count++
}

// hasDeadTuples notes whether there are many rows of steps that were claimed.
func (h *queueHeads) hasDeadTuples(many bool) {
	if h.on.Swap(many) == many {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.levels, h.count, h.all, h.whole, h.looked = nil, 0, time.Time{}, false, time.Time{}
}

// claimHeads hands out what is most urgent of the ranges of queues: for $8 and the turns in $9 and $10 see claim.go; $11 to $15 are the ranges,
// and $16 the age from which on what waits comes first, or null.
func claimHeads(h holds, b claimedBefore) string {
	const order = "turn, old_since, priority DESC, state_since"
	columns := `s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes,
                CASE WHEN s.state_since <= (SELECT at FROM clock) - $16::interval THEN s.state_since ELSE 'infinity' END AS old_since`
	free := ` AND s.state_since >= l.since AND s.step_uuid <> ALL ($6::uuid[])` + h.free("s", "$17")
	return `
WITH ` + h.clock(hasLimits) + `,` + b.with() + `
candidate AS MATERIALIZED (
    SELECT e.*, t.turn + t.share * (row_number() OVER (PARTITION BY e.namespace ORDER BY e.old_since, e.priority DESC, e.state_since) - 1) AS turn
    FROM unnest($1::text[], $9::float8[], $10::float8[]) AS t (namespace, turn, share)
    JOIN unnest($11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::timestamptz[]) AS l (namespace, handler, low, high, since) ON l.namespace = t.namespace
    CROSS JOIN LATERAL (
        (
            SELECT ` + columns + `
            FROM tasker.ready_steps s
            WHERE l.low = l.high AND s.namespace = l.namespace AND s.handler = l.handler AND s.priority = l.low` + free + `
            ORDER BY s.state_since
            LIMIT ` + b.steps("$8::int") + `
        )
        UNION ALL
        (
            SELECT ` + columns + `
            FROM tasker.ready_steps s
            WHERE l.low < l.high AND s.namespace = l.namespace AND s.handler = l.handler AND s.priority > l.low AND s.priority < l.high` + free + `
            ORDER BY s.priority DESC, s.state_since
            LIMIT ` + b.steps("$8::int") + `
        )
    ) e
    WHERE ` + mayClaim + `
    ORDER BY ` + order + `
    LIMIT ` + b.steps("$8::int") + `
),
locked AS MATERIALIZED (
    SELECT q.*
    FROM (SELECT * FROM candidate WHERE inputs_bytes <= ` + maxInputBytes + ` ORDER BY ` + order + `) s
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row, r.task_uuid, r.step_uuid, r.priority, r.state_since, r.inputs_bytes
        FROM tasker.ready_steps r
        WHERE ` + readyKey + ` AND r.task_uuid = s.task_uuid
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    LIMIT ` + b.steps("$3::int") + `
),
` + leaseSteps("", b) + blockedSteps("candidate") +
		busy("(SELECT least(count(*), "+b.steps("$3")+") FROM candidate WHERE inputs_bytes <= "+maxInputBytes+") > (SELECT count(*) FROM locked)") +
		noteOf(`'old'`, `(SELECT min(priority) FROM candidate WHERE old_since < 'infinity') < (SELECT max(priority) FROM candidate)`)
}

var claimFromHeads, claimUnheldFromHeads = claimHeads(withoutHolds, false), claimHeads(withHolds, false)

// claimMoreFromHeads is claimMoreSteps.
var claimMoreFromHeads = claimHeads(withoutHolds, true)

// looksAtExpiry reports whether a look for what is due is also one for steps that have waited too long.
func (h *queueHeads) looksAtExpiry() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on.Load() && time.Since(h.expiry) < expiryRest {
		return false
	}
	h.expiry = time.Now()
	return true
}

// A head is where one priority of a queue begins. Since is nil if nothing waits there. One without a namespace says when the
// look was made.
type head struct {
	Namespace, Handler string
	Priority           int
	Since              *time.Time
	At                 time.Time
}

const selectHeads = `
SELECT l.namespace, l.handler, l.priority::int AS priority, (
    SELECT s.state_since FROM tasker.ready_steps s
    WHERE s.namespace = l.namespace AND s.handler = l.handler AND s.priority = l.priority AND s.state_since >= l.since
    ORDER BY s.state_since LIMIT 1
) AS since, now() AS at
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[]) AS l (namespace, handler, priority, since)`

// The priorities of all queues are found by jumping from one to the next.
var selectAllHeads = `
WITH RECURSIVE heads AS (
    (
        SELECT s.namespace, s.handler, s.priority, s.state_since FROM tasker.ready_steps s
        ORDER BY s.namespace, s.handler, s.priority DESC, s.state_since LIMIT 1
    )
    UNION ALL
    SELECT n.*
    FROM heads h
    CROSS JOIN LATERAL (
        SELECT * FROM (
            ` + nextHead("s.namespace = h.namespace AND s.handler = h.handler AND s.priority < h.priority") + `
            UNION ALL
            ` + nextHead("s.namespace = h.namespace AND s.handler > h.handler") + `
            UNION ALL
            ` + nextHead("s.namespace > h.namespace") + `
        ) x
        LIMIT 1
    ) n
)
(SELECT namespace, handler, priority, state_since AS since, now() AS at FROM heads LIMIT $1)
UNION ALL
SELECT '', '', 0, NULL, now()`

func nextHead(after string) string {
	return `(
                SELECT s.namespace, s.handler, s.priority, s.state_since FROM tasker.ready_steps s
                WHERE ` + after + `
                ORDER BY s.namespace, s.handler, s.priority DESC, s.state_since LIMIT 1
            )`
}

// RefreshQueueHeads looks where claims have to begin, if there are many rows of steps that were claimed and if it is time.
func (db *DB) RefreshQueueHeads(ctx context.Context) error {
	h := &db.heads
	known, all, now := h.nextScan()
	if known == nil {
		return nil
	}
	var list []head
	var err error
	switch {
	case all:
		list, err = collect[head](ctx, db.pool, selectAllHeads, maxHeads)
	case len(known.low) > 0:
		list, err = collect[head](ctx, db.pool, selectHeads, known.namespaces, known.handlers, known.low, known.since)
	}
	if err != nil {
		return fmt.Errorf("look where claims begin: %w", err)
	}
	h.found(list, all, now)
	return nil
}

// nextScan returns the known priorities, and whether to look for all from the beginning; nil: it is not the time for a look.
func (h *queueHeads) nextScan() (known *headRanges, all bool, now time.Time) {
	now = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.on.Load() || now.Sub(h.looked) < headsEvery {
		return nil, false, now
	}
	h.looked = now
	known = &headRanges{}
	for q, levels := range h.levels {
		for p, since := range levels {
			known.namespaces, known.handlers = append(known.namespaces, q.Namespace), append(known.handlers, q.Handler)
			known.low, known.since = append(known.low, int64(p)), append(known.since, since)
		}
	}
	return known, h.all.IsZero() || now.Sub(h.all) >= h.rest, now
}

// found notes where priorities begin. One of which nothing was found begins where the look was made.
func (h *queueHeads) found(list []head, all bool, begun time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.on.Load() {
		return
	}
	h.whole = h.whole || all
	for _, f := range list {
		if f.Namespace == "" {
			h.allAt = f.At
			continue
		}
		since := f.At.Add(-headsMargin)
		if f.Since != nil && f.Since.Before(since) {
			since = *f.Since
		}
		q := QueueName{f.Namespace, f.Handler}
		h.level(q, f.Priority)
		h.levels[q][f.Priority] = since
	}
	if all {
		h.all, h.rest = time.Now(), max(allHeadsRest, allHeadsCost*time.Since(begun))
		h.whole = h.whole && len(list) < maxHeads // else there may be more
	}
}
