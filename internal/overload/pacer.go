package overload

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A Pacer slows down storing tasks when that slows the heartbeats and reports of workers. It
// compares their time with the time without waiting work: above one and a half times as much, the
// work pauses longer and longer after each piece, otherwise shorter. A nil Pacer has no effect.
type Pacer struct {
	PacerOptions

	one chan struct{} // has the piece that is done while the work rests between them

	mu      sync.Mutex
	inside  int           // pieces that are done or rest
	share   float64       // of its time that the work may take
	debt    time.Duration // of work, that is to be rested for
	settled time.Time
	probing bool
	failed  bool // the last probe
	probed  time.Time
	judged  time.Time
	busy    time.Time       // when something last waited
	usual   []time.Duration // probes while nothing waited
	recent  []time.Duration // probes since the last judgement, while something waited
}

// PacerOptions of a [Pacer]. All but the log are needed.
type PacerOptions struct {
	Probe   func(context.Context) error // does once what matters
	Matters func() bool                 // reports whether somebody needs it now
	Width   int                         // pieces of the work that are done at once
	Log     *slog.Logger
}

// NewPacer returns a pacer of work that takes all of its time.
func NewPacer(o PacerOptions) *Pacer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Pacer{PacerOptions: o, share: 1, one: make(chan struct{}, 1)}
}

const (
	calmEvery   = time.Second
	busyEvery   = 50 * time.Millisecond
	judgeEvery  = 500 * time.Millisecond
	judgedBy    = 5  // probes at least
	usualProbes = 32 // that are remembered
	firstProbes = 10 // count as usual in any case: there is nothing else
	probeTime   = 2 * time.Second
	longestRest = 5 * time.Second
	calmAfter   = 10 * time.Second
	manyQueued  = 16 // are more than wait by chance

	slower   = 1.5 // than usual is too slow
	slowerBy = time.Millisecond
	// What is twice too slow has the share halved, within these bounds.
	mostDecrease, leastDecrease = 0.3, 0.8
	increase                    = 0.02
	leastShare                  = 0.05
	// firstShare is where the work begins when more of it waits than before: it is too late
	// to find out what it does to others by trying all.
	firstShare = 0.3
	// littleShare is so little that the work cannot be what makes something slow: what is
	// probed then is usual.
	littleShare = 0.1
)

// Do does a piece of work when it is its turn. Queued tells how many more wait for it.
func (p *Pacer) Do(ctx context.Context, queued func() int, work func() error) error {
	if p == nil {
		return work()
	}
	p.mu.Lock()
	p.inside++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.inside--
	}()
	for rest := p.rest(); rest > 0; rest = p.rest() {
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	if p.Share() < 1 {
		select {
		case p.one <- struct{}{}:
			defer func() { <-p.one }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	begun := time.Now()
	err := work()
	p.done(time.Since(begun), queued() >= manyQueued)
	return err
}

// rest returns how long the next piece of work rests.
func (p *Pacer) rest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	perSecond := p.share
	now := time.Now()
	if passed := now.Sub(p.settled); p.debt > 0 {
		p.debt -= time.Duration(float64(passed) * perSecond)
	}
	p.settled = now
	if p.share == 1 || p.debt <= 0 {
		p.debt = 0
		return 0
	}
	return min(max(time.Duration(float64(p.debt)/perSecond), time.Millisecond), longestRest)
}

// done notes what a piece of work took, and probes now and then.
func (p *Pacer) done(took time.Duration, queued bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := time.Duration(float64(longestRest) * p.share)
	p.debt = min(p.debt+took, most)
	busy := queued || p.inside > p.Width
	every := calmEvery
	if busy {
		every = busyEvery
	}
	now := time.Now()
	if busy {
		if p.share == 1 && now.Sub(p.busy) > calmAfter && p.Matters() {
			p.share = firstShare
		}
		p.busy = now
	}
	if !p.probing && now.Sub(p.probed) >= every {
		p.probing, p.probed = true, now
		go p.probe(busy)
	}
}

// probe does once what matters, and judges.
func (p *Pacer) probe(busy bool) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	begun := time.Now()
	err := p.Probe(ctx)
	took := time.Since(begun)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probing = false
	if err != nil && ctx.Err() == nil { // it says nothing about what it would take
		if !p.failed {
			p.Log.Warn("storing tasks is not paced: the probe of a commit fails", "err", err)
		}
		p.failed = true
		return
	}
	p.failed = false
	if !busy || len(p.usual) < firstProbes || p.share < littleShare {
		if p.usual = append(p.usual, took); len(p.usual) > usualProbes {
			p.usual = slices.Delete(p.usual, 0, 1)
		}
	}
	if busy {
		p.recent = append(p.recent, took)
	}
	p.adjust(time.Now(), busy)
}

// adjust changes the share of the work.
func (p *Pacer) adjust(at time.Time, busy bool) {
	if at.Sub(p.judged) < judgeEvery || busy && len(p.recent) < judgedBy {
		return
	}
	p.judged = at
	before, usual, now := p.share, quantile(p.usual, 0.5), quantile(p.recent, 0.7)
	limit := max(time.Duration(slower*float64(usual)), usual+slowerBy)
	switch {
	case busy && p.Matters() && now > limit:
		p.share = max(p.share*min(max(float64(limit)/float64(now), mostDecrease), leastDecrease), leastShare)
	default:
		p.share = min(p.share+increase, 1)
	}
	if (before == 1) != (p.share == 1) {
		p.Log.Info("the pace at which tasks are stored", "slowed", p.share < 1, "usual_commit", usual, "commit", now)
	}
	p.recent = p.recent[:0]
}

// Share returns the part of its time that the work may take, 0 to 1.
func (p *Pacer) Share() float64 {
	if p == nil {
		return 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.share
}

func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[int(q*float64(len(sorted)-1))]
}
