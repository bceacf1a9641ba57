// Package enginehook lets taskertest create an embedded.Engine on services that use a test clock.
package enginehook

import (
	"log/slog"

	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/postgres"
)

// Services are the parts of an embedded.Engine.
type Services struct {
	DB      *postgres.DB
	Engine  *engine.Engine
	DLQ     *dlq.Service
	Holds   *hold.Service
	Cases   *cases.Service
	Explain *explain.Service
	Log     *slog.Logger
}

// NewEmbedded returns an *embedded.Engine. Package embedded sets it.
var NewEmbedded func(Services) any
