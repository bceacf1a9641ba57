package worker_test

import (
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/worker"
)

// What a worker can work for.
var (
	_ worker.Backend = (*engine.Engine)(nil)
	_ worker.Backend = (*client.Backend)(nil)
)
