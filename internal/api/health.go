package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// healthy answers without looking at anything: whoever gets an answer knows.
func (s *server) healthy(status string) func(*request) error {
	return func(x *request) error {
		return x.answer(http.StatusOK, apiv1.Health{Status: status, Timestamp: time.Now().UTC(), Version: s.version})
	}
}

// checkTime bounds what readiness depends on: who asks waits no longer.
const checkTime = 5 * time.Second

func (s *server) readiness(x *request) error {
	ctx, cancel := context.WithTimeout(postgres.Use(x.ctx, postgres.Timers), checkTime)
	defer cancel()
	components := s.components(ctx)
	checks := map[string]func(context.Context) error{
		"database": s.db.Ping,
		"running":  func(context.Context) error { return s.stopping.Err() },
	}
	if s.ready != nil {
		checks["server"] = s.ready
	}
	loops, late := s.loopHealth()
	if s.loops != nil {
		checks["loops"] = func(context.Context) error { return late }
	}
	seen := make(map[string]apiv1.HealthCheck, len(checks))
	var causes []error
	for name, check := range checks {
		start := time.Now()
		status := "healthy"
		if err := check(ctx); err != nil {
			status = "unhealthy"
			causes = append(causes, fmt.Errorf("%s: %w", name, err))
		}
		seen[name] = apiv1.HealthCheck{Status: status, DurationMS: time.Since(start).Milliseconds()}
	}
	told := x.seesSystem()
	if len(causes) > 0 && !told {
		return &tasker.Error{Code: tasker.Unavailable, Message: "the server is not ready; its log says why", Err: errors.Join(causes...)}
	}
	if !told {
		return x.answer(http.StatusOK, apiv1.Health{Status: "ready", Timestamp: time.Now().UTC(), Version: s.version})
	}
	if len(causes) > 0 {
		return &tasker.Error{
			Code: tasker.Unavailable, Message: "the server is not ready; see details.checks",
			Details: map[string]any{"checks": seen, "loops": loops, "components": components()}, Err: errors.Join(causes...),
		}
	}
	return x.answer(http.StatusOK, apiv1.Health{Status: "ready", Timestamp: time.Now().UTC(), Version: s.version, Checks: seen, Loops: loops, Components: components()})
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
		if !l.LastGood.IsZero() {
			at := l.LastGood.UTC()
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
		late = fmt.Errorf("no good pass for too long: %s", strings.Join(names, ", "))
	}
	return all, late
}

// longestProblem is how much is told of what is wrong with a component.
const longestProblem = 2000

// components looks at what the server can do without, beside the checks: while the
// broker is away, steps go to workers by way of the database; while a sink is, its
// events wait.
func (s *server) components(ctx context.Context) (wait func() map[string]apiv1.HealthComponent) {
	sinks := make(chan map[string]apiv1.HealthComponent, 1)
	go func() {
		all := s.sinkComponents(ctx)
		s.addDeferred(ctx, all)
		sinks <- all
	}()
	return func() map[string]apiv1.HealthComponent {
		all := <-sinks
		all["broker"] = s.brokerComponent()
		if s.templates != nil {
			all["templates"] = apiv1.HealthComponent{Status: "degraded", LastError: payload.CleanText(s.templates.Error(), longestProblem)}
		}
		return all
	}
}

// deferredCount is how many rows that were set aside are counted.
const deferredCount = 1000

// addDeferred tells of tasks and steps that were set aside, if there are any.
func (s *server) addDeferred(ctx context.Context, all map[string]apiv1.HealthComponent) {
	if s.loops == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sinksTime)
	defer cancel()
	list, err := s.db.DeferredCounts(ctx, deferredCount)
	if err != nil || len(list) == 0 {
		return // the check of the database says what is wrong with it
	}
	words := make([]string, len(list))
	since := list[0].Oldest
	for i, d := range list {
		words[i] = fmt.Sprintf("%s: %d, such as %q", d.Kind, d.Rows, d.Error)
		if d.Oldest.Before(since) {
			since = d.Oldest
		}
	}
	since = since.UTC()
	all["deferred_work"] = apiv1.HealthComponent{
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

// sinksTime bounds what is waited for how the sinks are: less than what a probe of
// Kubernetes waits, 1 s, because nothing depends on it.
const sinksTime = 800 * time.Millisecond

func (s *server) sinkComponents(ctx context.Context) map[string]apiv1.HealthComponent {
	all := map[string]apiv1.HealthComponent{}
	if len(s.sinks) == 0 {
		return all
	}
	for _, name := range s.sinks {
		all[sinkPrefix+name] = apiv1.HealthComponent{Status: "unknown", LastError: "no server has begun to send to it; see the log"}
	}
	ctx, cancel := context.WithTimeout(ctx, sinksTime)
	defer cancel()
	list, err := s.db.SinkStates(ctx, s.sinks, 1) // nobody asks how many events wait
	if err != nil {
		s.log.WarnContext(ctx, "nobody can tell how the sinks are", "err", err)
		for name := range all {
			all[name] = apiv1.HealthComponent{Status: "unknown", LastError: "the database does not say how it is"}
		}
	}
	for _, state := range list {
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
