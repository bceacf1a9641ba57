package config

import "time"

// PriorityAge is what priority_age_ms says; negative for 0.
func (q MessageQueue) PriorityAge() time.Duration {
	if q.PriorityAgeMS == 0 {
		return -1
	}
	return milliseconds(q.PriorityAgeMS)
}

// NoWorkerAfter is what no_worker_after_ms says.
func (q MessageQueue) NoWorkerAfter() time.Duration { return milliseconds(q.NoWorkerAfterMS) }

// WorkerQueueTTL is what worker_queue_ttl_ms says.
func (r RabbitMQ) WorkerQueueTTL() time.Duration { return milliseconds(r.WorkerQueueTTLMS) }
