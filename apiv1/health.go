package apiv1

import "time"

// Health is the response of GET /health, GET /health/live and, if the server is ready, GET
// /health/ready.
type Health struct {
	Status    string                 `json:"status" enum:"healthy,alive,ready"`
	Timestamp time.Time              `json:"timestamp"`
	Version   string                 `json:"version"`
	Checks    map[string]HealthCheck `json:"checks,omitempty" doc:"Readiness checks by name."`

	Loops map[string]HealthLoop `json:"loops,omitempty" doc:"Background loops by name."`

	Components map[string]HealthComponent `json:"components,omitempty" doc:"Optional dependencies by name: broker, sink.webhook and so on for each sink, deferred_work while failed work on tasks or steps is deferred, and templates if template files could not be registered at the start."`
}

// HealthLoop is the state of one background loop, such as the retry of steps. A loop is late if no
// pass has succeeded for three times the sum of its interval and the timeout of a pass. The server
// is not ready while a loop is late, unless it is a cleanup loop.
type HealthLoop struct {
	Status     string     `json:"status" enum:"healthy,failing,late"`
	LastGoodAt *time.Time `json:"last_good_at,omitempty" doc:"End of the last successful pass."`
	Failures   int        `json:"failures" doc:"Failed passes since then."`
}

// HealthComponent is the state of an optional dependency. It does not affect readiness.
type HealthComponent struct {
	Status    string `json:"status" enum:"up,degraded,down,off,unknown" doc:"A sink is degraded while it accepts no events; they wait. off: not configured. unknown: the database is not available."`
	LastError string `json:"last_error,omitempty" doc:"Current error and remedy."`

	FailingSince  *time.Time `json:"failing_since,omitempty" doc:"Of a degraded sink."`
	OldestSeconds *float64   `json:"oldest_unpublished_seconds,omitempty" doc:"Of a sink: age of the oldest undelivered event, or 0."`
}

// HealthCheck is a readiness check. If one is unhealthy, GET /health/ready responds with 503 and
// the checks as error details.
type HealthCheck struct {
	Status     string `json:"status" enum:"healthy,unhealthy"`
	DurationMS int64  `json:"duration_ms"`
}
