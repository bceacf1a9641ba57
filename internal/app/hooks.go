package app

import (
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/metrics"
)

// engineHooks wakes the services that follow the engine, and counts what has happened.
type engineHooks struct {
	*metrics.Metrics
	line  *brokerLine
	cases *cases.Service
	relay *emission.Relay // set before any loop runs
	holds *hold.Service   // set before any worker reports
}

func (h *engineHooks) StepsEnqueued() { h.line.wake() }

func (h *engineHooks) EventsWritten() {
	h.relay.Wake()
	h.cases.Wake()
}

func (h *engineHooks) AttemptsEnded(list []engine.Attempt) { h.holds.Concluded(list) }

// newEngineOptions returns the options of the engine without those of a broker.
func newEngineOptions(o Options, hooks engine.Hooks) engine.Options {
	c := o.Config
	return engine.Options{
		Environment: c.Server.Environment,
		Leases: engine.LeaseOptions{
			Duration: c.Workers.Lease(), HeartbeatInterval: c.Workers.HeartbeatInterval(), MaxRetryAfter: c.Workers.MaxRetryAfter(),
		},
		Queues: engine.QueueOptions{
			MaxExpiries: c.MessageQueue.MaxQueueExpiries, UnservedTimeout: c.MessageQueue.NoWorkerAfter(),
			DisableAutoRecovery: !c.MessageQueue.AutoRecover,
		},
		Retention:       c.Retention.FinishedAge(),
		Quotas:          c.Limits.Bounds(),
		ThrottleCreates: c.Limits.PaceCreates,
		Hooks:           hooks,
		Log:             o.Log,
	}
}
