package tasker

import "time"

// A WorkerSpec is what a worker says of itself when it registers.
type WorkerSpec struct {
	Name           string
	Namespaces     []string
	Handlers       []string
	Version        string
	MaxConcurrency int
}

// A Registration is the engine's answer: the worker's id, how often it must be
// heard of, and how long it may hold a step without.
type Registration struct {
	WorkerUUID        ID
	HeartbeatInterval time.Duration
	LeaseDuration     time.Duration
	ClaimIsHeartbeat  bool      // a claim keeps a worker alive that holds nothing, if it claims as often as a heartbeat is due
	Dispatch          *Dispatch // the message broker that announces steps; nil means that there is none
}

// A Dispatch is what a worker must know of the message broker that announces
// steps, to listen to it. Where the broker is, and who may listen, is the worker's
// own configuration.
type Dispatch struct {
	Exchange           string
	Queues             []string      // of the worker's namespaces, in their order
	QueueTTL           time.Duration // of a namespace's queue
	DeadLetter         bool          // whether what expires is dead-lettered
	DeadLetterExchange string
	DeadLetterTTL      time.Duration
	ClaimsReady        bool // a report may claim the steps that become ready by it
}

// WorkerHealth says whether a worker takes work, and how long it has been silent.
type WorkerHealth string

// The healths. Of those that hold, the last counts.
const (
	WorkerActive   WorkerHealth = "active"   // heard of within three heartbeats
	WorkerDraining WorkerHealth = "draining" // gets no new work, finishes what it holds, and leaves
	WorkerStale    WorkerHealth = "stale"    // silent for longer than three heartbeats
	WorkerGone     WorkerHealth = "gone"     // left, or silent for longer than a lease
)

// A Worker is a worker as the engine knows it.
type Worker struct {
	WorkerSpec
	UUID            ID
	Health          WorkerHealth
	InFlight        int // steps it holds a lease on
	RegisteredAt    time.Time
	LastHeartbeatAt time.Time
	DrainingSince   *time.Time // nil as long as it may get work
	RegisteredBy    string     // who signed in; empty where nobody does
}

// A Queue is the steps of one namespace and handler that no worker holds.
type Queue struct {
	Namespace       string     `json:"namespace"`
	Handler         string     `json:"handler"`
	Queued          int        `json:"queued" doc:"Steps that wait to be claimed. Counting stops at 10000."`
	QueuedIsAtLeast bool       `json:"queued_is_at_least" doc:"There are more."`
	OldestQueuedAt  *time.Time `json:"oldest_queued_at" doc:"Since when the first of them waits, or null."`
	NextExpiresAt   *time.Time `json:"next_expires_at" doc:"When the first of them has waited too long, or null. Where counting stopped: the first of the most urgent, and of the oldest of each priority."`
	AwaitingWorker  int        `json:"awaiting_worker" doc:"Steps that waited too long and go back into the queue once a worker lives. Counting stops at 10000."`
	Held            int        `json:"held" doc:"Steps that a hold keeps from workers; they are not among the queued ones. Counting stops at 10000."`
	Limited         int        `json:"limited" doc:"Steps that a limit keeps from workers; they are not among the queued ones. Counting stops at 10000."`
	Saturated       int        `json:"saturated" doc:"Queued steps that have waited for longer than their limit and do not fail, because workers for them are alive and busy. Counting stops at 10000."`
	SaturatedSince  *time.Time `json:"saturated_since" doc:"Since when there are such steps, or null."`
	LiveWorkers     int        `json:"live_workers" doc:"Active workers that take such steps."`
	Unserved        bool       `json:"unserved" doc:"There is no such worker, and steps wait for one."`
}

// A Backlog is what waits for workers in one namespace.
type Backlog struct {
	Namespace string
	Steps     int64 // enqueued, and neither held nor limited
	Held      int64 // kept from workers by a hold
	Limited   int64 // kept from workers by a limit
	Saturated int64 // enqueued past their limit, with workers that are busy
	Unserved  int64 // enqueued, or waiting for a worker to live, with none alive for their handler
	Workers   int64 // alive, and not draining

	Oldest time.Duration // for how long the oldest enqueued step has waited; 0 if none waits
}

// ExpiryRule says whether a step fails that has waited for a worker too long.
type ExpiryRule string

// When such a step fails.
const (
	ExpireAlways          ExpiryRule = "always"           // whoever is alive
	ExpireUnlessSaturated ExpiryRule = "unless_saturated" // not while its queue is saturated: workers for it are alive, and busy
)

// MaxQueueCount is where counting the steps of a queue stops.
const MaxQueueCount = 10_000

// A LeaseExtension is a lease with its new end.
type LeaseExtension struct {
	StepUUID  ID
	ExpiresAt time.Time
}

// A Beat is the answer to a heartbeat. Work whose lease is lost must stop: its
// result would be refused.
type Beat struct {
	Extended []LeaseExtension
	Lost     []ID // steps
	Drain    bool // take no more, finish, and leave: there will be no new work
}

// A Receipt says what became of reported outcomes, and carries the next work
// where it was asked for.
type Receipt struct {
	Accepted []ID // steps whose outcome counts, also when it had been reported before
	Rejected []Rejection
	Next     []Assignment
}

// NoFence is the fence of a lease that no claim gave out.
const NoFence = -1

// Lease returns the right to report the outcome of a.
func (a Assignment) Lease() Lease {
	return Lease{TaskUUID: a.TaskUUID, StepUUID: a.StepUUID, Fence: a.Fence, Token: a.LeaseToken}
}
