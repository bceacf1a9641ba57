package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tasker"
	"tasker/apiv1"
	"tasker/internal/payload"
)

// healthy answers without looking at anything: whoever gets an answer knows.
func (s *server) healthy(status string) func(*exchange) error {
	return func(x *exchange) error {
		return x.answer(http.StatusOK, apiv1.Health{Status: status, Timestamp: time.Now().UTC(), Version: s.version})
	}
}

// checkTime bounds what readiness depends on: who asks waits no longer.
const checkTime = 5 * time.Second

func (s *server) readiness(x *exchange) error {
	ctx, cancel := context.WithTimeout(x.ctx, checkTime)
	defer cancel()
	checks := map[string]func(context.Context) error{
		"database": s.db.Ping,
		"running":  func(context.Context) error { return s.stopping.Err() },
	}
	if s.ready != nil {
		checks["server"] = s.ready
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
	if len(causes) > 0 {
		return &tasker.Error{
			Code: tasker.Unavailable, Message: "the server is not ready; see details.checks",
			Details: map[string]any{"checks": seen, "components": s.components()}, Err: errors.Join(causes...),
		}
	}
	return x.answer(http.StatusOK, apiv1.Health{Status: "ready", Timestamp: time.Now().UTC(), Version: s.version, Checks: seen, Components: s.components()})
}

// longestProblem is how much is told of what is wrong with a component.
const longestProblem = 2000

// components are what the server can do without: while the broker is away, steps
// go to workers by way of the database.
func (s *server) components() map[string]apiv1.HealthComponent {
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
	return map[string]apiv1.HealthComponent{"broker": broker}
}

// scrape answers who collects metrics.
func (s *server) scrape(x *exchange) error {
	if s.metrics == nil {
		return tasker.Errorf(tasker.NotFound, "this server keeps no metrics")
	}
	s.metrics.ServeHTTP(x.w, x.r)
	return nil
}

func (s *server) openAPI(x *exchange) error {
	x.w.Header().Set("Content-Type", jsonMedia)
	_, _ = x.w.Write(s.document)
	return nil
}
