package apiv1

import "time"

// Health is the answer of GET /health, /health/live and, while the server can do
// its work, /health/ready.
type Health struct {
	Status    string                 `json:"status" enum:"healthy,alive,ready"`
	Timestamp time.Time              `json:"timestamp"`
	Version   string                 `json:"version"`
	Checks    map[string]HealthCheck `json:"checks,omitempty" doc:"What readiness depends on, by name."`

	Loops map[string]HealthLoop `json:"loops,omitempty" doc:"What this server does by itself, by name."`

	Components map[string]HealthComponent `json:"components,omitempty" doc:"What the server uses and can do without, by name: broker, sink.webhook and so on for each sink to which this server sends events, deferred_work while tasks or steps are set aside because work on them failed, and templates when template files were not registered at the start."`
}

// HealthLoop is one thing that a server does by itself again and again, such as
// retrying steps. It is late when it has made no good pass for three times as long as
// one may take with the rest after it; the server is then not ready, unless the loop
// only tidies up.
type HealthLoop struct {
	Status     string     `json:"status" enum:"healthy,failing,late"`
	LastGoodAt *time.Time `json:"last_good_at,omitempty" doc:"When the last pass ended that did not fail."`
	Failures   int        `json:"failures" doc:"Passes that failed since then."`
}

// HealthComponent is one thing that the server works without, if less well: it
// is ready all the same.
type HealthComponent struct {
	Status    string `json:"status" enum:"up,degraded,down,off,unknown" doc:"A sink is degraded while it takes no events: they wait. off means that the configuration does not ask for it, unknown that the database cannot tell how it is."`
	LastError string `json:"last_error,omitempty" doc:"What is wrong with it now, and what to do."`

	FailingSince  *time.Time `json:"failing_since,omitempty" doc:"Of a sink that is degraded."`
	OldestSeconds *float64   `json:"oldest_unpublished_seconds,omitempty" doc:"Of a sink: how long ago the oldest event happened that it has not got; 0 if it has all."`
}

// HealthCheck is one thing that the server depends on. When one is unhealthy,
// GET /health/ready answers 503 and the checks are the details of its error.
type HealthCheck struct {
	Status     string `json:"status" enum:"healthy,unhealthy"`
	DurationMS int64  `json:"duration_ms"`
}
