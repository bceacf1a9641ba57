package config

import "time"

// PriorityAge returns priority_age_ms. It returns a negative duration for 0, which disables claims
// by age.
func (q MessageQueue) PriorityAge() time.Duration {
	if q.PriorityAgeMS == 0 {
		return -1
	}
	return millisecondsToDuration(q.PriorityAgeMS)
}

// NoWorkerAfter returns no_worker_after_ms.
func (q MessageQueue) NoWorkerAfter() time.Duration { return millisecondsToDuration(q.NoWorkerAfterMS) }

// WorkerQueueTTL returns worker_queue_ttl_ms.
func (r RabbitMQ) WorkerQueueTTL() time.Duration { return millisecondsToDuration(r.WorkerQueueTTLMS) }
