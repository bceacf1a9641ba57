package overload

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Pacer throttles task storage when it delays worker heartbeats and reports. It compares the
// latency of probes while work waits with their usual latency. If it exceeds one and a half times
// the usual latency, the work pauses longer after each piece, otherwise shorter. A nil Pacer has
// no effect.
type Pacer struct {
	PacerOptions

	one chan struct{} // held by the running piece while the work is paced

	mu      sync.Mutex
	inside  int           // pieces that run or pause
	share   float64       // part of the time that the work may use
	debt    time.Duration // work time to be compensated by pauses
	settled time.Time
	probing bool
	failed  bool // the last probe
	probed  time.Time
	judged  time.Time
	busy    time.Time       // when work last waited
	usual   []time.Duration // probes while nothing waited
	recent  []time.Duration // probes since the last adjustment, while work waited
}

// PacerOptions configures a [Pacer]. All fields but Log are required.
type PacerOptions struct {
	Probe   func(context.Context) error // performs one latency-sensitive commit
	Matters func() bool                 // reports whether the latency matters now
	Width   int                         // concurrent pieces
	Log     *slog.Logger
}

// NewPacer returns a pacer, which does not pause the work at first.
func NewPacer(o PacerOptions) *Pacer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Pacer{PacerOptions: o, share: 1, one: make(chan struct{}, 1)}
}

const (
	calmEvery    = time.Second
	busyEvery    = 50 * time.Millisecond
	judgeEvery   = 500 * time.Millisecond
	judgedBy     = 5  // minimum number of probes
	usualProbes  = 32 // number of stored probes
	firstProbes  = 10 // always count as usual
	probeTime    = 2 * time.Second
	longestPause = 5 * time.Second
	calmAfter    = 10 * time.Second
	manyQueued   = 16 // from this number on, waiting work is not a coincidence

	slower   = 1.5 // times the usual latency is too slow
	slowerBy = time.Millisecond
	// At twice the limit the share is halved, within these bounds.
	mostDecrease, leastDecrease = 0.3, 0.8
	increase                    = 0.02
	leastShare                  = 0.05
	// firstShare is the share when work starts to wait, because the reaction to a full share would
	// be too late.
	firstShare = 0.3
	// littleShare is so small that the work cannot cause the latency: probes count as usual.
	littleShare = 0.1
)

// Do runs a piece of work after a pause. queued returns the number of waiting pieces.
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
	for pause := p.pause(); pause > 0; pause = p.pause() {
		timer := time.NewTimer(pause)
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
	p.recordDuration(time.Since(begun), queued() >= manyQueued)
	return err
}

// pause returns the duration of the pause before the next piece of work.
func (p *Pacer) pause() time.Duration {
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
	return min(max(time.Duration(float64(p.debt)/perSecond), time.Millisecond), longestPause)
}

// recordDuration records the duration of a finished piece of work and starts a probe if one is due.
func (p *Pacer) recordDuration(took time.Duration, queued bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := time.Duration(float64(longestPause) * p.share)
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
		go p.startProbe(busy)
	}
}

// startProbe measures the latency and adjusts the share.
func (p *Pacer) startProbe(busy bool) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	begun := time.Now()
	err := p.Probe(ctx)
	took := time.Since(begun)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probing = false
	if err != nil && ctx.Err() == nil { // the duration of a failed probe is meaningless
		if !p.failed {
			p.Log.Warn("task creation is not paced: the probe commit failed", "err", err)
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

func (p *Pacer) adjust(at time.Time, busy bool) {
	if at.Sub(p.judged) < judgeEvery || busy && len(p.recent) < judgedBy {
		return
	}
	p.judged = at
	before, usual, now := p.share, computeQuantile(p.usual, 0.5), computeQuantile(p.recent, 0.7)
	limit := max(time.Duration(slower*float64(usual)), usual+slowerBy)
	switch {
	case busy && p.Matters() && now > limit:
		p.share = max(p.share*min(max(float64(limit)/float64(now), mostDecrease), leastDecrease), leastShare)
	default:
		p.share = min(p.share+increase, 1)
	}
	if (before == 1) != (p.share == 1) {
		p.Log.Info("pace of task creation changed", "slowed", p.share < 1, "usual_commit", usual, "commit", now)
	}
	p.recent = p.recent[:0]
}

// Share returns the part of the time that the work may use, from 0 to 1.
func (p *Pacer) Share() float64 {
	if p == nil {
		return 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.share
}

func computeQuantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[int(q*float64(len(sorted)-1))]
}
