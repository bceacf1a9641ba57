// Package hold implements holds and circuit breakers. It keeps the steps of a scope from being
// claimed, probes for recovery and releases the steps in waves. Each wave must succeed before the
// next begins.
//
// A held step stays enqueued, and the hold uses up neither attempts nor queue time nor staleness
// time. Every hold has an owner and an end. The function [nextTransition] decides from stored state
// only, so any server can continue a hold.
package hold

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// Options configures a Service. The zero value uses the defaults.
type Options struct {
	Breaker Breaker          // disabled by default
	Now     func() time.Time // clock of the breakers; default time.Now
	Log     *slog.Logger
}

// Service manages holds. Its methods may be called concurrently.
type Service struct {
	db      *postgres.DB
	engine  *engine.Engine
	breaker Breaker
	counter *counter
	server  tasker.ID // identifies the counts of this process among those of all servers
	log     *slog.Logger
	wake    chan struct{} // wakes the loop that advances holds
	park    chan struct{} // wakes the loop that parks held steps

	sharedPasses map[queue]int      // consecutive passes in which this server has shared failures
	unopened     suppressedBreakers // breakers that could not be opened

	page     int64         // page of the queue where the next scan for held steps begins
	lastHold tasker.ID     // hold that was advanced last
	turn     time.Duration // maximum time spent on one hold in a pass
}

// New returns a service on a database with the current schema.
func New(db *postgres.DB, e *engine.Engine, o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{
		db: db, engine: e, breaker: o.Breaker, counter: newCounter(o.Breaker, o.Now), server: tasker.NewID(), log: o.Log,
		wake: make(chan struct{}, 1), park: make(chan struct{}, 1), turn: turnTime,
	}
}

// Limits of the fields of a hold.
const (
	maxReason = 2000
	maxName   = 255
	maxPlace  = 128 // characters in the name of a namespace, handler, template or step
	maxWaves  = 20
	maxWave   = 1000
	leastTime = time.Minute
	maxShown  = 300 // characters in the error of a failed step
)

// Begin starts a hold. It returns Invalid, NotFound if the case does not exist, or a Conflict if
// there are too many holds or the scope already has one.
func (s *Service) Begin(ctx context.Context, n tasker.NewHold) (tasker.Hold, error) {
	if err := s.completeHold(ctx, &n); err != nil {
		return tasker.Hold{}, err
	}
	h, err := s.db.BeginHold(ctx, postgres.InsertedHold{NewHold: n, UUID: tasker.NewID(), Kind: tasker.ManualHold})
	if err == nil {
		loop.Wake(s.park)
		loop.Wake(s.wake)
	}
	return h, err
}

// completeHold validates a request and fills in defaults.
func (s *Service) completeHold(ctx context.Context, n *tasker.NewHold) error {
	if n.CaseID != nil {
		if n.HoldScope != (tasker.HoldScope{}) {
			return tasker.Errorf(tasker.Invalid,
				"a hold on a case uses the scope of the case: remove namespace, handler, template and step")
		}
		c, err := s.db.Case(ctx, *n.CaseID)
		if err != nil {
			return err
		}
		n.HoldScope = tasker.HoldScope{Namespace: c.Namespace, TaskName: c.TaskName, StepName: tasker.TemplateName(c.StepName)}
	}
	n.Actor = cmp.Or(n.Actor, n.Owner)
	if err := checkEnd(n.Until, n.For); err != nil {
		return err
	}
	return cmp.Or(
		checkText("namespace", n.Namespace, maxPlace, true), checkText("handler", n.Handler, maxPlace, false),
		checkText("template", n.TaskName, maxPlace, false), checkText("step", n.StepName, maxPlace, false),
		checkText("owner", n.Owner, maxName, true), checkText("by", n.Actor, maxName, true), checkText("reason", n.Reason, maxReason, true))
}

// checkEnd checks that exactly one end is set and that a duration is in range. Whether the end is
// in the future is checked in the database.
func checkEnd(until *time.Time, after time.Duration) error {
	switch {
	case (until == nil) == (after == 0):
		return tasker.Errorf(tasker.Invalid, "a hold needs an end: set exactly one of until and for")
	case until == nil && (after < leastTime || after > tasker.MaxHoldTime):
		return tasker.Errorf(tasker.Invalid,
			"invalid hold duration %s: must be between %s and %s", after, leastTime, tasker.MaxHoldTime)
	}
	return nil
}

func checkText(name, text string, most int, needed bool) error {
	switch n := utf8.RuneCountInString(text); {
	case needed && text == "":
		return tasker.Errorf(tasker.Invalid, "%s is missing", name)
	case !utf8.ValidString(text) || slices.Contains([]byte(text), 0):
		return tasker.Errorf(tasker.Invalid, "invalid %s: must be UTF-8 without NUL", name)
	case n > most:
		return tasker.Errorf(tasker.Invalid, "invalid %s: has %d characters, the limit is %d", name, n, most)
	}
	return nil
}

// List returns a page of holds, newest first, and reports whether there are more.
func (s *Service) List(ctx context.Context, f tasker.HoldFilter) (list []tasker.Hold, more bool, err error) {
	return s.db.Holds(ctx, f)
}

// Detail returns a hold with its history, or NotFound.
func (s *Service) Detail(ctx context.Context, id tasker.ID) (tasker.HoldDetail, error) {
	return s.db.Hold(ctx, id)
}

// Change describes who changes a hold, and why.
type Change struct {
	Actor  string
	Reason string
}

func (c Change) check() error {
	return cmp.Or(checkText("by", c.Actor, maxName, true), checkText("reason", c.Reason, maxReason, true))
}

// Extend moves the end of an active hold and may change its owner.
func (s *Service) Extend(ctx context.Context, id tasker.ID, e tasker.HoldExtension, c Change) (tasker.Hold, error) {
	if err := cmp.Or(checkEnd(e.Until, e.For), checkText("owner", e.Owner, maxName, false), c.check()); err != nil {
		return tasker.Hold{}, err
	}
	return s.change(ctx, id, func(_ *postgres.Tx, h *tasker.Hold, now time.Time) (postgres.HoldLine, error) {
		if h.State != tasker.HoldActive {
			return postgres.HoldLine{}, tasker.Errorf(tasker.Conflict, "hold %s is %s: only an active hold can be extended", id, h.State)
		}
		end := now.Add(e.For)
		if e.Until != nil {
			end = *e.Until
		}
		if !end.After(now) || end.After(now.Add(tasker.MaxHoldTime)) {
			return postgres.HoldLine{}, tasker.Errorf(tasker.Invalid, "invalid end %s: must be in the future, within %s", end.UTC().Format(time.RFC3339), tasker.MaxHoldTime)
		}
		line := postgres.HoldLine{Event: tasker.HoldExtended, Actor: c.Actor, Reason: c.Reason, Data: map[string]any{"from": h.EndsAt, "to": end}}
		if e.Owner != "" && e.Owner != h.Owner {
			line.Data["owner"] = e.Owner
			h.Owner = e.Owner
		}
		h.EndsAt, h.WarnedAt = end, nil
		return line, nil
	})
}

// Probe releases one step of an active hold to test whether it succeeds.
func (s *Service) Probe(ctx context.Context, id tasker.ID, c Change) (tasker.Hold, error) {
	if err := cmp.Or(checkText("by", c.Actor, maxName, true), checkText("reason", c.Reason, maxReason, false)); err != nil {
		return tasker.Hold{}, err
	}
	return s.change(ctx, id, func(tx *postgres.Tx, h *tasker.Hold, now time.Time) (postgres.HoldLine, error) {
		probing, err := tx.IsProbing(ctx, id)
		switch {
		case err != nil:
			return postgres.HoldLine{}, err
		case h.State != tasker.HoldActive:
			return postgres.HoldLine{}, tasker.Errorf(tasker.Conflict,
				"hold %s is %s: only an active hold can be probed", id, h.State)
		case probing:
			return postgres.HoldLine{}, tasker.Errorf(tasker.Conflict,
				"a probe of hold %s is already running: wait for its outcome", id)
		case h.Held == 0:
			return postgres.HoldLine{}, tasker.Errorf(tasker.Conflict, "hold %s has no parked steps to release", id)
		}
		h.NextProbeAt = &now
		return postgres.HoldLine{Event: "probe_requested", Actor: c.Actor, Reason: c.Reason}, nil
	})
}

// Release starts the release of a hold in waves. If waves is nil, it uses the default waves. If it
// is empty, all steps are released at once, even if a release is already in progress.
func (s *Service) Release(ctx context.Context, id tasker.ID, waves []int, c Change) (tasker.Hold, error) {
	if waves == nil {
		waves = tasker.DefaultHoldWaves()
	}
	if err := cmp.Or(checkWaves(waves), c.check()); err != nil {
		return tasker.Hold{}, err
	}
	return s.change(ctx, id, func(_ *postgres.Tx, h *tasker.Hold, now time.Time) (postgres.HoldLine, error) {
		if h.State == tasker.HoldEnded || h.State == tasker.HoldReleasing && (len(waves) > 0 || !h.Blocks) {
			return postgres.HoldLine{}, tasker.Errorf(tasker.Conflict, "hold %s is already %s", id, h.State)
		}
		beginWaves(h, waves, now)
		return postgres.HoldLine{Event: tasker.HoldReleaseBegan, Actor: c.Actor, Reason: c.Reason, Data: map[string]any{"waves": waves}}, nil
	})
}

func checkWaves(waves []int) error {
	if len(waves) > maxWaves {
		return tasker.Errorf(tasker.Invalid, "too many waves: got %d, the limit is %d", len(waves), maxWaves)
	}
	for _, n := range waves {
		if n < 1 || n > maxWave {
			return tasker.Errorf(tasker.Invalid, "invalid wave of %d steps: must be from 1 to %d", n, maxWave)
		}
	}
	return nil
}

// change locks a hold, applies f to it and returns its new state.
func (s *Service) change(ctx context.Context, id tasker.ID, f func(*postgres.Tx, *tasker.Hold, time.Time) (postgres.HoldLine, error)) (h tasker.Hold, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		h, err = tx.LockHold(ctx, id)
		if err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		line, err := f(tx, &h, now)
		if err != nil {
			return err
		}
		return tx.MoveHold(ctx, h, line)
	})
	if err == nil {
		loop.Wake(s.wake)
	}
	return h, err
}
