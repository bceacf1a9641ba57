package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tasker"
	"tasker/apiv1"
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
			Details: map[string]any{"checks": seen}, Err: errors.Join(causes...),
		}
	}
	return x.answer(http.StatusOK, apiv1.Health{Status: "ready", Timestamp: time.Now().UTC(), Version: s.version, Checks: seen})
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
