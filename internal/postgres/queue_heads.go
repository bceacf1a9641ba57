package postgres

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Index entries of claimed steps remain until a vacuum removes them, which a long transaction such
// as a dump can delay. Each claim would have to skip all of them. While there are many, each
// process caches the time of the first waiting step for each queue and priority, and claims start
// there. Rare full scans from the beginning find steps that were committed later with an older
// time, or returned from a hold.

const (
	headsInterval      = 400 * time.Millisecond
	headsMargin        = time.Second     // tolerated delay between the time of a step and its commit
	minFullScan        = 5 * time.Second // minimum interval between full scans
	fullScanCost       = 20              // minimum interval between full scans, as a multiple of their duration
	fullScanMaxAge     = time.Minute     // maximum age of a full scan, plus two intervals
	maxHeads           = 10_000          // maximum number of cached pairs of queue and priority
	maxLevels          = 8               // priorities per queue; with more, claims start at the beginning
	expiryScanInterval = 5 * time.Second // expiry scans are expensive, since they skip claimed steps
)

// queueHeads caches where claims start to read queues.
type queueHeads struct {
	on atomic.Bool

	mu               sync.Mutex
	levels           map[QueueName]map[int]time.Time // by priority; the zero time means the beginning
	count            int
	scannedAt        time.Time
	expiryScannedAt  time.Time
	fullScanAt       time.Time
	fullScanInterval time.Duration
	fullScanTime     time.Time // fullScanAt by the database clock; priorities that are not known appeared later
	complete         bool      // everything that the full scan found is still cached
}

// queueRanges contains the parts of queues that a claim reads. A range contains the steps of a queue
// that are enqueued since a time, with one priority or with those between two.
type queueRanges struct {
	namespaces, handlers []string
	low, high            []int64 // if equal, a single priority; otherwise the priorities between them
	since                []time.Time
}

func (r *queueRanges) addRange(q QueueName, low, high int64, since time.Time) {
	r.namespaces, r.handlers = append(r.namespaces, q.Namespace), append(r.handlers, q.Handler)
	r.low, r.high, r.since = append(r.low, low), append(r.high, high), append(r.since, since)
}

// Bounds beyond all priorities, which are 32-bit integers.
const lowest, highest = math.MinInt32 - 1, math.MaxInt32 + 1

// rangesFor returns the ranges that a claim reads, or nil if it must start at the beginning.
func (h *queueHeads) rangesFor(c Claimant) *queueRanges {
	if !h.on.Load() || len(c.Namespaces)*len(c.Handlers) > manyQueues {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.complete || time.Since(h.fullScanAt) > fullScanMaxAge+2*h.fullScanInterval {
		return nil
	}
	r := &queueRanges{}
	for _, n := range c.Namespaces {
		for _, handler := range c.Handlers {
			q := QueueName{n, handler}
			levels := h.levels[q]
			if len(levels) > maxLevels {
				return nil
			}
			r.add(q, levels, h.fullScanTime.Add(-headsMargin))
		}
	}
	return r
}

// add adds ranges that cover all priorities of a queue. Priorities that have no head start at the
// time between.
func (r *queueRanges) add(q QueueName, levels map[int]time.Time, between time.Time) {
	below := int64(lowest)
	for _, priority := range slices.Sorted(maps.Keys(levels)) {
		p := int64(priority)
		if p > below+1 {
			r.addRange(q, below, p, between)
		}
		r.addRange(q, p, p, levels[priority])
		below = p
	}
	r.addRange(q, below, highest, between)
}

// addClaimed adds the priorities of claimed steps to the cache.
func (h *queueHeads) addClaimed(list []Claimed) {
	if !h.on.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range list {
		h.addLevel(QueueName{c.Namespace, c.Handler}, c.Priority)
	}
}

func (h *queueHeads) addLevel(q QueueName, priority int) {
	if _, known := h.levels[q][priority]; known {
		return
	}
	if h.count >= maxHeads || h.levels == nil {
		h.complete = h.complete && h.levels == nil
		h.levels, h.count = map[QueueName]map[int]time.Time{}, 0
	}
	if h.levels[q] == nil {
		h.levels[q] = map[int]time.Time{}
	}
	h.levels[q][priority] = time.Time{}
	h.count++
}

// enable enables or disables the cache.
func (h *queueHeads) enable(on bool) {
	if h.on.Swap(on) == on {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.levels, h.count, h.fullScanAt, h.complete, h.scannedAt = nil, 0, time.Time{}, false, time.Time{}
}

// isExpiryScanDue reports whether a scan for expired steps is due and, if so, records it.
func (h *queueHeads) isExpiryScanDue() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on.Load() && time.Since(h.expiryScannedAt) < expiryScanInterval {
		return false
	}
	h.expiryScannedAt = time.Now()
	return true
}

// queueHead is the first waiting step with a queue and priority. Since is nil if none is waiting. A
// full scan also returns a row without a namespace that contains the time of the scan.
type queueHead struct {
	Namespace, Handler string
	Priority           int
	Since              *time.Time
	At                 time.Time
}

// RefreshQueueHeads updates the cached heads if an update is due.
func (db *DB) RefreshQueueHeads(ctx context.Context) error {
	h := &db.heads
	known, full, start := h.nextScan()
	if known == nil {
		return nil
	}
	var list []queueHead
	var err error
	switch {
	case full:
		list, err = collect[queueHead](ctx, db.pool, statement("selectAllHeads"), maxHeads)
	case len(known.low) > 0:
		list, err = collect[queueHead](ctx, db.pool, statement("selectHeads"), known.namespaces, known.handlers, known.low,
			known.since)
	}
	if err != nil {
		return fmt.Errorf("refresh the heads of queues: %w", err)
	}
	h.update(list, full, start)
	return nil
}

// nextScan returns the known priorities and whether a full scan is due. If no scan is due, known is
// nil.
func (h *queueHeads) nextScan() (known *queueRanges, full bool, now time.Time) {
	now = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.on.Load() || now.Sub(h.scannedAt) < headsInterval {
		return nil, false, now
	}
	h.scannedAt = now
	known = &queueRanges{}
	for q, levels := range h.levels {
		for p, since := range levels {
			known.addRange(q, int64(p), int64(p), since)
		}
	}
	return known, h.fullScanAt.IsZero() || now.Sub(h.fullScanAt) >= h.fullScanInterval, now
}

// update stores the result of a scan. If a priority has no waiting step, its head is the time of
// the scan.
func (h *queueHeads) update(list []queueHead, full bool, start time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.on.Load() {
		return
	}
	h.complete = h.complete || full
	for _, f := range list {
		if f.Namespace == "" {
			h.fullScanTime = f.At
			continue
		}
		since := f.At.Add(-headsMargin)
		if f.Since != nil && f.Since.Before(since) {
			since = *f.Since
		}
		q := QueueName{f.Namespace, f.Handler}
		h.addLevel(q, f.Priority)
		h.levels[q][f.Priority] = since
	}
	if full {
		h.fullScanAt, h.fullScanInterval = time.Now(), max(minFullScan, fullScanCost*time.Since(start))
		h.complete = h.complete && len(list) < maxHeads // otherwise the scan was truncated
	}
}
