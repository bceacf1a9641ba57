package worker_test

import (
	"tasker/client"
	"tasker/internal/engine"
	"tasker/worker"
)

// What a worker can work for.
var (
	_ worker.Engine = (*engine.Engine)(nil)
	_ worker.Engine = (*client.Engine)(nil)
)
