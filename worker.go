package tasker

import "time"

// WorkerSpec describes a worker at its registration.
type WorkerSpec struct {
	Name           string   `json:"name"`
	Namespaces     []string `json:"namespaces"`
	Handlers       []string `json:"handlers"`
	Version        string   `json:"version"`
	MaxConcurrency int      `json:"max_concurrency"`
}

// Registration is the result of registering a worker.
type Registration struct {
	WorkerUUID        ID
	HeartbeatInterval time.Duration
	LeaseDuration     time.Duration
	ClaimIsHeartbeat  bool      // claims count as heartbeats while the worker holds no lease
	Dispatch          *Dispatch // message broker, or nil
}

// Dispatch contains the settings that a worker needs to consume step announcements. The address
// and the credentials of the broker are configured in the worker.
type Dispatch struct {
	Exchange           string
	Queues             []string // one per namespace of the worker, in the same order
	QueueTTL           time.Duration
	DeadLetter         bool // expired messages are dead-lettered
	DeadLetterExchange string
	DeadLetterTTL      time.Duration
	ClaimsReady        bool // reports may claim the steps that they make ready
}

// WorkerHealth is the availability of a worker.
type WorkerHealth string

// Worker healths. If several apply, the last one counts.
const (
	WorkerActive   WorkerHealth = "active"   // seen within three heartbeat intervals
	WorkerDraining WorkerHealth = "draining" // claims no more steps, finishes its current ones and leaves
	WorkerStale    WorkerHealth = "stale"    // not seen for three heartbeat intervals
	WorkerGone     WorkerHealth = "gone"     // left, or not seen for the duration of a lease
)

// Worker is a registered worker.
type Worker struct {
	UUID ID `json:"worker_uuid"`
	WorkerSpec
	Health          WorkerHealth `json:"health" enum:"active,draining,stale,gone"`
	InFlight        int          `json:"in_flight"` // leases
	RegisteredAt    time.Time    `json:"registered_at"`
	LastHeartbeatAt time.Time    `json:"last_heartbeat_at"`
	DrainingSince   *time.Time   `json:"draining_since" doc:"Since when it drains, or null."`
	RegisteredBy    string       `json:"registered_by,omitempty" doc:"Authenticated subject that registered it, if any."`
}

// Queue describes the unclaimed steps of one namespace and handler.
type Queue struct {
	Namespace       string     `json:"namespace"`
	Handler         string     `json:"handler"`
	Queued          int        `json:"queued" doc:"Steps that wait to be claimed. Counting stops at 10000."`
	QueuedIsAtLeast bool       `json:"queued_is_at_least" doc:"There may be more."`
	OldestQueuedAt  *time.Time `json:"oldest_queued_at" doc:"When the oldest of them was enqueued, or null."`
	NextExpiresAt   *time.Time `json:"next_expires_at" doc:"When the first of them exceeds its queue timeout, or null. If counting stopped: of the most urgent, and of the oldest of each priority."`
	AwaitingWorker  int        `json:"awaiting_worker" doc:"Steps that exceeded their queue timeout and are enqueued again when a worker is live. Counting stops at 10000."`
	Held            int        `json:"held" doc:"Steps parked by a hold; not included in queued. Counting stops at 10000."`
	Limited         int        `json:"limited" doc:"Steps parked by a limit; not included in queued. Counting stops at 10000."`
	Saturated       int        `json:"saturated" doc:"Queued steps past their queue timeout that do not fail because their live workers are busy. Counting stops at 10000."`
	SaturatedSince  *time.Time `json:"saturated_since" doc:"Since when the queue is saturated, or null."`
	LiveWorkers     int        `json:"live_workers" doc:"Active workers for these steps."`
	Unserved        bool       `json:"unserved" doc:"Steps wait and no live worker serves them."`
}

// Backlog counts the steps that wait for workers in one namespace.
type Backlog struct {
	Namespace string
	Steps     int64 // enqueued, neither held nor limited
	Held      int64 // parked by a hold
	Limited   int64 // parked by a limit
	Saturated int64 // past their queue timeout, with busy workers
	Unserved  int64 // without a live worker for their handler
	Workers   int64 // live and not draining

	Oldest time.Duration // age of the oldest enqueued step; 0 if there is none
}

// ExpiryRule selects whether a step fails when its queue timeout passes.
type ExpiryRule string

// Expiry rules.
const (
	ExpireAlways ExpiryRule = "always"
	// Not while its queue is saturated: live workers exist and are busy.
	ExpireUnlessSaturated ExpiryRule = "unless_saturated"
)

// MaxQueueCount limits the counted steps of a queue.
const MaxQueueCount = 10_000

// LeaseExtension is the new expiry of a lease.
type LeaseExtension struct {
	StepUUID  ID
	ExpiresAt time.Time
}

// Beat is the response to a heartbeat. Work on lost steps must stop: reports for them are rejected.
type Beat struct {
	Extended []LeaseExtension
	Lost     []ID // steps
	Drain    bool // stop claiming, finish the current steps and leave
}

// Receipt lists the accepted and rejected outcomes of a report, and the next steps if requested.
type Receipt struct {
	Accepted []ID // including outcomes that were reported before
	Rejected []Rejection
	Next     []Assignment
}

// NoFence is a fence that no claim ever returns.
const NoFence = -1

// Lease returns the lease of a.
func (a Assignment) Lease() Lease {
	return Lease{TaskUUID: a.TaskUUID, StepUUID: a.StepUUID, Fence: a.Fence, Token: a.LeaseToken}
}
