package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// newHealthHandler returns a handler that always responds with status, to show that the server responds.
func (s *server) newHealthHandler(status string) func(*request) (apiv1.Health, error) {
	return func(*request) (apiv1.Health, error) { return s.newHealth(status), nil }
}

func (s *server) newHealth(status string) apiv1.Health {
	return apiv1.Health{Status: status, Timestamp: time.Now().UTC(), Version: s.version}
}

const (
	// checkTimeout limits the readiness checks.
	checkTimeout = 5 * time.Second
	// cacheDuration is the time for which the results of database checks are reused.
	cacheDuration = time.Second
)

// sharedCheck runs a check once for concurrent callers and caches its result for cacheDuration, so
// that its cost does not depend on the number of callers, who may be unauthenticated.
type sharedCheck[T any] struct {
	check func(ctx context.Context) T
	now   func() time.Time

	mu    sync.Mutex
	ended time.Time
	value T
}

func (g *sharedCheck[T]) get(ctx context.Context) T {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended.IsZero() && g.now().Sub(g.ended) < cacheDuration {
		return g.value
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout) // other callers may wait for the result
	defer cancel()
	g.value, g.ended = g.check(ctx), g.now()
	return g.value
}

type checkResult struct {
	err  error
	took time.Duration
}

func runCheck(ctx context.Context, check func(context.Context) error) checkResult {
	start := time.Now()
	err := check(ctx)
	return checkResult{err, time.Since(start)}
}

// databaseChecks caches the results of the readiness checks, and the states of components that do
// not affect readiness.
type databaseChecks struct {
	ready      *sharedCheck[map[string]checkResult]
	components *sharedCheck[componentStatus]
}

func (s *server) newDatabaseChecks(now func() time.Time) databaseChecks {
	if now == nil {
		now = time.Now
	}
	return databaseChecks{
		ready:      &sharedCheck[map[string]checkResult]{check: s.checkReadiness, now: now},
		components: &sharedCheck[componentStatus]{check: s.readComponents, now: now},
	}
}

// checkReadiness uses the connections of heartbeats, which never wait for requests, so that a busy
// server stays ready.
func (s *server) checkReadiness(ctx context.Context) map[string]checkResult {
	ctx = postgres.WithConnClass(ctx, postgres.Heartbeats)
	all := map[string]checkResult{"database": runCheck(ctx, s.db.CheckWritable)}
	if s.ready != nil {
		all["server"] = runCheck(ctx, s.ready)
	}
	return all
}

func (s *server) getReadiness(x *request) (apiv1.Health, error) {
	health := s.newHealth("ready")
	detailed := x.canSeeSystem()
	checks := maps.Clone(s.checks.ready.get(x.ctx))
	checks["running"] = checkResult{err: s.stopping.Err()}
	loops, late := s.checkLoops()
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
	if len(causes) > 0 && !detailed {
		return health, &tasker.Error{Code: tasker.Unavailable, Message: "the server is not ready: see its log", Err: errors.Join(causes...)}
	}
	if !detailed {
		return health, nil
	}
	components := s.checkComponents(access.WithPayloadScope(x.ctx, x.caller.Scope(access.ReadPayloads)))
	if len(causes) > 0 {
		return health, &tasker.Error{
			Code: tasker.Unavailable, Message: "the server is not ready; see details.checks",
			Details: map[string]any{"checks": seen, "loops": loops, "components": components}, Err: errors.Join(causes...),
		}
	}
	health.Checks, health.Loops, health.Components = seen, loops, components
	return health, nil
}

// checkLoops returns the status of each loop, and an error if loops that tasks depend on are late.
func (s *server) checkLoops() (all map[string]apiv1.HealthLoop, late error) {
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
		late = fmt.Errorf("late or blocked loops: %s", strings.Join(names, ", "))
	}
	return all, late
}

// maxProblemLength limits the error text of a component, in bytes.
const maxProblemLength = 2000

// checkComponents returns the state of optional components. If the broker is down, workers poll the
// database; if a sink is down, its events wait.
func (s *server) checkComponents(ctx context.Context) map[string]apiv1.HealthComponent {
	b := s.checks.components.get(ctx)
	all := s.checkSinks(ctx, b)
	if len(b.deferred) > 0 {
		all["deferred_work"] = toDeferredComponent(ctx, b.deferred)
	}
	all["broker"] = s.checkBroker()
	if s.templates != nil {
		all["templates"] = apiv1.HealthComponent{Status: "degraded", LastError: payload.CleanText(s.templates.Error(), maxProblemLength)}
	}
	return all
}

// componentStatus is the state of the components in the database.
type componentStatus struct {
	sinks    []tasker.SinkState
	sinksErr error
	deferred []postgres.DeferredCount
}

const (
	// sinksTimeout limits the query of sink states. It is below the default probe timeout of
	// Kubernetes, 1 s, because readiness does not depend on it.
	sinksTimeout = 800 * time.Millisecond
	// maxDeferredCount is the number of deferred rows at which counting stops.
	maxDeferredCount = 1000
)

// readComponents reads the states of components with all payloads, because all callers share the
// result. It is redacted for each caller later.
func (s *server) readComponents(ctx context.Context) (b componentStatus) {
	ctx = access.WithPayloadScope(ctx, access.EverywhereScope())
	within := func(do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, sinksTimeout)
		defer cancel()
		return do(ctx)
	}
	if len(s.sinks) > 0 {
		b.sinksErr = within(func(ctx context.Context) (err error) {
			b.sinks, err = s.db.SinkStates(ctx, s.sinks, 1) // the number of events is not needed
			return err
		})
	}
	if b.sinksErr != nil {
		s.log.WarnContext(ctx, "could not read sink states", "err", b.sinksErr)
	}
	if s.loops != nil {
		_ = within(func(ctx context.Context) (err error) { // the database check reports its errors
			b.deferred, err = s.db.DeferredCounts(ctx, maxDeferredCount)
			return err
		})
	}
	return b
}

func toDeferredComponent(ctx context.Context, list []postgres.DeferredCount) apiv1.HealthComponent {
	words := make([]string, len(list))
	since := list[0].Oldest
	for i, d := range list {
		text := &d.Error
		access.RedactLastError(ctx, &text)
		words[i] = fmt.Sprintf("%s: %d, such as %q", d.Kind, d.Rows, *text)
		if d.Oldest.Before(since) {
			since = d.Oldest
		}
	}
	since = since.UTC()
	return apiv1.HealthComponent{
		Status: "degraded", FailingSince: &since,
		LastError: "processing of tasks or steps failed and will be retried (" + strings.Join(words, "; ") +
			"): see the table tasker.deferred_work",
	}
}

func (s *server) checkBroker() apiv1.HealthComponent {
	broker := apiv1.HealthComponent{Status: "off"}
	if s.broker != nil {
		up, problem := s.broker()
		broker.Status = "down"
		if up {
			broker.Status = "up"
		}
		if problem != nil {
			broker.LastError = payload.CleanText(problem.Error(), maxProblemLength)
		}
	}
	return broker
}

func (s *server) checkSinks(ctx context.Context, b componentStatus) map[string]apiv1.HealthComponent {
	all := map[string]apiv1.HealthComponent{}
	for _, name := range s.sinks {
		c := apiv1.HealthComponent{Status: "unknown", LastError: "no server sends to it yet: see the log"}
		if b.sinksErr != nil {
			c.LastError = "cannot read the sink's state from the database"
		}
		all[sinkPrefix+name] = c
	}
	for _, state := range b.sinks {
		access.RedactLastError(ctx, &state.LastError)
		all[sinkPrefix+state.Sink] = toSinkComponent(state)
	}
	return all
}

const sinkPrefix = "sink."

func toSinkComponent(s tasker.SinkState) apiv1.HealthComponent {
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
		c.LastError = payload.CleanText(*s.LastError, maxProblemLength)
	}
	return c
}

func (s *server) serveMetrics(x *request) error {
	if s.metrics == nil {
		return tasker.Errorf(tasker.NotFound, "metrics are disabled on this server")
	}
	s.metrics.ServeHTTP(x.w, x.r)
	return nil
}

func (s *server) serveOpenAPI(x *request) error {
	x.w.Header().Set("Content-Type", jsonMedia)
	_, _ = x.w.Write(s.document)
	return nil
}
