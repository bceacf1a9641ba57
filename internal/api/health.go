package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// healthy answers without looking at anything: whoever gets an answer knows.
func (s *server) healthy(status string) func(*request) error {
	return func(x *request) error {
		return x.answer(http.StatusOK, apiv1.Health{Status: status, Timestamp: time.Now().UTC(), Version: s.version})
	}
}

const (
	// checkTime bounds what readiness depends on: who asks waits no longer.
	checkTime = 5 * time.Second
	// glanceTime is how long what was found out of the database is told again.
	glanceTime = time.Second
)

// A sharedCheck looks at something once for all who ask, also those who ask within glanceTime
// of it. So it costs the same however many ask, strangers too.
type sharedCheck[T any] struct {
	look func(ctx context.Context) T
	now  func() time.Time

	mu    sync.Mutex
	ended time.Time
	found T
}

func (g *sharedCheck[T]) get(ctx context.Context) T {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended.IsZero() && g.now().Sub(g.ended) < glanceTime {
		return g.found
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTime) // others may wait for it as well
	defer cancel()
	g.found, g.ended = g.look(ctx), g.now()
	return g.found
}

// A checkResult is what a check found, and how long that took.
type checkResult struct {
	err  error
	took time.Duration
}

func timed(ctx context.Context, check func(context.Context) error) checkResult {
	start := time.Now()
	err := check(ctx)
	return checkResult{err, time.Since(start)}
}

// found is what is found out of the database for readiness, and, for those who may see
// more, of what readiness does not depend on.
type found struct {
	ready  *sharedCheck[map[string]checkResult]
	beside *sharedCheck[componentStatus]
}

func (s *server) newFound(now func() time.Time) found {
	if now == nil {
		now = time.Now
	}
	return found{
		ready:  &sharedCheck[map[string]checkResult]{look: s.checkReadiness, now: now},
		beside: &sharedCheck[componentStatus]{look: s.lookBeside, now: now},
	}
}

// checkReadiness asks the database in the lane of what never waits behind requests, so that a
// server with much to do is ready.
func (s *server) checkReadiness(ctx context.Context) map[string]checkResult {
	ctx = postgres.WithConnClass(ctx, postgres.Heartbeats)
	all := map[string]checkResult{"database": timed(ctx, s.db.Writable)}
	if s.ready != nil {
		all["server"] = timed(ctx, s.ready)
	}
	return all
}

func (s *server) readiness(x *request) error {
	told := x.seesSystem()
	checks := maps.Clone(s.found.ready.get(x.ctx))
	checks["running"] = checkResult{err: s.stopping.Err()}
	loops, late := s.loopHealth()
	if s.loops != nil {
		checks["loops"] = checkResult{err: late}
	}
	seen := make(map[string]apiv1.HealthCheck, len(checks))
	var causes []error
	for name, check := range checks {
		status := "healthy"
		if check.err != nil {
			status = "unhealthy"
			causes = append(causes, fmt.Errorf("%s: %w", name, check.err))
		}
		seen[name] = apiv1.HealthCheck{Status: status, DurationMS: check.took.Milliseconds()}
	}
	if len(causes) > 0 && !told {
		return &tasker.Error{Code: tasker.Unavailable, Message: "the server is not ready; its log says why", Err: errors.Join(causes...)}
	}
	if !told {
		return x.answer(http.StatusOK, apiv1.Health{Status: "ready", Timestamp: time.Now().UTC(), Version: s.version})
	}
	components := s.components(access.WithPayloads(x.ctx, x.caller.Scope(access.ReadPayloads)))
	if len(causes) > 0 {
		return &tasker.Error{
			Code: tasker.Unavailable, Message: "the server is not ready; see details.checks",
			Details: map[string]any{"checks": seen, "loops": loops, "components": components}, Err: errors.Join(causes...),
		}
	}
	return x.answer(http.StatusOK, apiv1.Health{Status: "ready", Timestamp: time.Now().UTC(), Version: s.version, Checks: seen, Loops: loops, Components: components})
}

// loopHealth says how each loop is, and which are late that a task may wait for.
func (s *server) loopHealth() (all map[string]apiv1.HealthLoop, late error) {
	if s.loops == nil {
		return nil, nil
	}
	all = map[string]apiv1.HealthLoop{}
	var names []string
	for _, l := range s.loops() {
		h := apiv1.HealthLoop{Status: "healthy", Failures: l.Failures}
		if !l.LastSuccess.IsZero() {
			at := l.LastSuccess.UTC()
			h.LastGoodAt = &at
		}
		switch {
		case l.Late:
			h.Status = "late"
			if !l.Spare {
				names = append(names, l.Name)
			}
		case l.Failures > 0:
			h.Status = "failing"
		}
		all[l.Name] = h
	}
	if len(names) > 0 {
		late = fmt.Errorf("no good pass for too long, or one that does not end: %s", strings.Join(names, ", "))
	}
	return all, late
}

// longestProblem is how much is told of what is wrong with a component.
const longestProblem = 2000

// components tells of what the server can do without, beside the checks: while the
// broker is away, steps go to workers by way of the database; while a sink is, its
// events wait.
func (s *server) components(ctx context.Context) map[string]apiv1.HealthComponent {
	b := s.found.beside.get(ctx)
	all := s.sinkComponents(ctx, b)
	if len(b.deferred) > 0 {
		all["deferred_work"] = deferredComponent(ctx, b.deferred)
	}
	all["broker"] = s.brokerComponent()
	if s.templates != nil {
		all["templates"] = apiv1.HealthComponent{Status: "degraded", LastError: payload.CleanText(s.templates.Error(), longestProblem)}
	}
	return all
}

// componentStatus is what is found of the components in the database.
type componentStatus struct {
	sinks    []tasker.SinkState
	sinksErr error
	deferred []postgres.DeferredCount
}

const (
	// sinksTime bounds what is waited for how the sinks are: less than what a probe of
	// Kubernetes waits, 1 s, because nothing depends on it.
	sinksTime = 800 * time.Millisecond
	// deferredCount is how many rows that were set aside are counted.
	deferredCount = 1000
)

// lookBeside looks for all callers: what one of them may not read is hidden when it is told.
func (s *server) lookBeside(ctx context.Context) (b componentStatus) {
	ctx = access.WithPayloads(ctx, access.Everywhere())
	within := func(do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, sinksTime)
		defer cancel()
		return do(ctx)
	}
	if len(s.sinks) > 0 {
		b.sinksErr = within(func(ctx context.Context) (err error) {
			b.sinks, err = s.db.SinkStates(ctx, s.sinks, 1) // nobody asks how many events wait
			return err
		})
	}
	if b.sinksErr != nil {
		s.log.WarnContext(ctx, "nobody can tell how the sinks are", "err", b.sinksErr)
	}
	if s.loops != nil {
		_ = within(func(ctx context.Context) (err error) { // the check of the database says what is wrong with it
			b.deferred, err = s.db.DeferredCounts(ctx, deferredCount)
			return err
		})
	}
	return b
}

// deferredComponent tells of tasks and steps that were set aside.
func deferredComponent(ctx context.Context, list []postgres.DeferredCount) apiv1.HealthComponent {
	words := make([]string, len(list))
	since := list[0].Oldest
	for i, d := range list {
		text := &d.Error
		access.HideLastError(ctx, &text)
		words[i] = fmt.Sprintf("%s: %d, such as %q", d.Kind, d.Rows, *text)
		if d.Oldest.Before(since) {
			since = d.Oldest
		}
	}
	since = since.UTC()
	return apiv1.HealthComponent{
		Status: "degraded", FailingSince: &since,
		LastError: "work on single tasks or steps failed and is tried again later (" + strings.Join(words, "; ") +
			"); the table tasker.deferred_work says which and why",
	}
}

func (s *server) brokerComponent() apiv1.HealthComponent {
	broker := apiv1.HealthComponent{Status: "off"}
	if s.broker != nil {
		up, problem := s.broker()
		broker.Status = "down"
		if up {
			broker.Status = "up"
		}
		if problem != nil {
			broker.LastError = payload.CleanText(problem.Error(), longestProblem)
		}
	}
	return broker
}

func (s *server) sinkComponents(ctx context.Context, b componentStatus) map[string]apiv1.HealthComponent {
	all := map[string]apiv1.HealthComponent{}
	for _, name := range s.sinks {
		c := apiv1.HealthComponent{Status: "unknown", LastError: "no server has begun to send to it; see the log"}
		if b.sinksErr != nil {
			c.LastError = "the database does not say how it is"
		}
		all[sinkPrefix+name] = c
	}
	for _, state := range b.sinks {
		access.HideLastError(ctx, &state.LastError)
		all[sinkPrefix+state.Sink] = sinkComponent(state)
	}
	return all
}

const sinkPrefix = "sink."

func sinkComponent(s tasker.SinkState) apiv1.HealthComponent {
	var age float64
	if s.OldestPending != nil {
		age = max(0, time.Since(*s.OldestPending).Seconds())
	}
	c := apiv1.HealthComponent{Status: "up", OldestSeconds: &age}
	if s.FailingSince != nil {
		since := s.FailingSince.UTC()
		c.Status, c.FailingSince = "degraded", &since
	}
	if s.LastError != nil {
		c.LastError = payload.CleanText(*s.LastError, longestProblem)
	}
	return c
}

// scrape answers who collects metrics.
func (s *server) scrape(x *request) error {
	if s.metrics == nil {
		return tasker.Errorf(tasker.NotFound, "this server keeps no metrics")
	}
	s.metrics.ServeHTTP(x.w, x.r)
	return nil
}

func (s *server) openAPI(x *request) error {
	x.w.Header().Set("Content-Type", jsonMedia)
	_, _ = x.w.Write(s.document)
	return nil
}
