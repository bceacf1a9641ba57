package apiv1

import (
	"time"

	"tasker.example/tasker"
)

// Queue is a queue as GET /v1/queues lists it: the steps of one namespace and
// handler that no worker holds.
type Queue struct {
	Namespace       string     `json:"namespace"`
	Handler         string     `json:"handler"`
	Queued          int        `json:"queued" doc:"Steps that wait to be claimed. Counting stops at 10000."`
	QueuedIsAtLeast bool       `json:"queued_is_at_least" doc:"There are more."`
	OldestQueuedAt  *time.Time `json:"oldest_queued_at" doc:"Since when the first of them waits, or null."`
	NextExpiresAt   *time.Time `json:"next_expires_at" doc:"When the first of them has waited too long, or null. Where counting stopped: the first of the most urgent, and of the oldest of each priority."`
	AwaitingWorker  int        `json:"awaiting_worker" doc:"Steps that waited too long and go back into the queue once a worker lives. Counting stops at 10000."`
	LiveWorkers     int        `json:"live_workers" doc:"Active workers that take such steps."`
	Unserved        bool       `json:"unserved" doc:"There is no such worker."`
}

// FromQueue converts a queue.
func FromQueue(q tasker.Queue) Queue {
	return Queue{
		Namespace: q.Namespace, Handler: q.Handler, Queued: q.Queued, QueuedIsAtLeast: q.QueuedIsAtLeast,
		OldestQueuedAt: utc(q.OldestQueuedAt), NextExpiresAt: utc(q.NextExpiresAt), AwaitingWorker: q.AwaitingWorker,
		LiveWorkers: q.LiveWorkers, Unserved: q.Unserved,
	}
}
