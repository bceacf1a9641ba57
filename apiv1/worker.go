package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// RegisterWorker is the body of POST /v1/workers.
type RegisterWorker struct {
	Name           string   `json:"name" minLength:"1" maxLength:"255"`
	Namespaces     []string `json:"namespaces" minItems:"1" maxItems:"100"`
	Handlers       []string `json:"handlers" minItems:"1" maxItems:"1000"`
	Version        string   `json:"version,omitempty" maxLength:"128"`
	MaxConcurrency int      `json:"max_concurrency,omitempty" minimum:"1" maximum:"10000"`
}

// RegisteredWorker is the answer: who the worker is from now on, how often it
// must be heard of, and how long it may hold a step without.
type RegisteredWorker struct {
	WorkerUUID          string `json:"worker_uuid"`
	HeartbeatIntervalMS int64  `json:"heartbeat_interval_ms"`
	LeaseMS             int64  `json:"lease_ms"`
	ClaimIsHeartbeat    bool   `json:"claim_is_heartbeat,omitempty" doc:"A worker that holds nothing need not send heartbeats while it claims as often. Missing: it must."`

	Dispatch *Dispatch `json:"dispatch,omitempty" doc:"The message broker that announces steps. Missing: there is none."`
}

// Dispatch is what a worker must know of the message broker to listen to it: it
// declares its queues with the same arguments.
type Dispatch struct {
	Transport          string   `json:"transport" enum:"rabbitmq"`
	Exchange           string   `json:"exchange"`
	Queues             []string `json:"queues" doc:"Of the worker's namespaces, in their order."`
	WorkerQueueTTLMS   int64    `json:"worker_queue_ttl_ms"`
	DeadLetterEnabled  bool     `json:"dead_letter_enabled"`
	DeadLetterExchange string   `json:"dead_letter_exchange"`
	DeadLetterTTLMS    int64    `json:"dead_letter_ttl_ms"`
	ClaimsReady        bool     `json:"claims_ready,omitempty" doc:"A report may have claim_ready. Missing: it must not."`
}

// FromDispatch converts what a worker is told of the broker; nil stays nil.
func FromDispatch(d *tasker.Dispatch) *Dispatch {
	if d == nil {
		return nil
	}
	return &Dispatch{
		Transport: "rabbitmq", Exchange: d.Exchange, Queues: orEmpty(d.Queues), WorkerQueueTTLMS: d.QueueTTL.Milliseconds(),
		DeadLetterEnabled: d.DeadLetter, DeadLetterExchange: d.DeadLetterExchange, DeadLetterTTLMS: d.DeadLetterTTL.Milliseconds(),
		ClaimsReady: d.ClaimsReady,
	}
}

// ToDispatch reads it.
func (d *Dispatch) ToDispatch() *tasker.Dispatch {
	if d == nil {
		return nil
	}
	return &tasker.Dispatch{
		Exchange: d.Exchange, Queues: d.Queues, QueueTTL: time.Duration(d.WorkerQueueTTLMS) * time.Millisecond,
		DeadLetter: d.DeadLetterEnabled, DeadLetterExchange: d.DeadLetterExchange, DeadLetterTTL: time.Duration(d.DeadLetterTTLMS) * time.Millisecond,
		ClaimsReady: d.ClaimsReady,
	}
}

// Worker is a worker as GET /v1/workers lists it.
type Worker struct {
	WorkerUUID      string     `json:"worker_uuid"`
	Name            string     `json:"name"`
	Namespaces      []string   `json:"namespaces"`
	Handlers        []string   `json:"handlers"`
	Version         string     `json:"version"`
	MaxConcurrency  int        `json:"max_concurrency"`
	Health          string     `json:"health" enum:"active,draining,stale,gone"`
	InFlight        int        `json:"in_flight"`
	RegisteredAt    time.Time  `json:"registered_at"`
	LastHeartbeatAt time.Time  `json:"last_heartbeat_at"`
	DrainingSince   *time.Time `json:"draining_since" doc:"From when on it gets no new work, or null."`
	RegisteredBy    string     `json:"registered_by,omitempty" doc:"The subject that registered it; absent where callers are not asked who they are."`
}

// FromWorker converts a worker.
func FromWorker(w tasker.Worker) Worker {
	return Worker{
		WorkerUUID: w.UUID.String(), Name: w.Name, Namespaces: orEmpty(w.Namespaces), Handlers: orEmpty(w.Handlers),
		Version: w.Version, MaxConcurrency: w.MaxConcurrency, Health: string(w.Health), InFlight: w.InFlight,
		RegisteredAt: w.RegisteredAt.UTC(), LastHeartbeatAt: w.LastHeartbeatAt.UTC(), DrainingSince: utc(w.DrainingSince),
		RegisteredBy: w.RegisteredBy,
	}
}

// WorkerList is the answer of GET /v1/workers.
type WorkerList struct {
	Workers    []Worker   `json:"workers"`
	Pagination Pagination `json:"pagination"`
}

// ClaimSteps is the body of POST /v1/workers/{worker_uuid}/claims.
type ClaimSteps struct {
	Max    int `json:"max" minimum:"1" maximum:"1000"`
	WaitMS int `json:"wait_ms,omitempty" minimum:"0" maximum:"60000" doc:"How long to wait for work when there is none."`
}

// TakeSteps is the body of POST /v1/workers/{worker_uuid}/take.
type TakeSteps struct {
	Steps []StepRef `json:"steps" minItems:"1" maxItems:"1000"`
}

// StepRef names a step of a task, as a message of the broker does.
type StepRef struct {
	TaskUUID string `json:"task_uuid" format:"uuid"`
	StepUUID string `json:"step_uuid" format:"uuid"`
}

// ClaimedSteps is the answer.
type ClaimedSteps struct {
	Steps []ClaimedStep `json:"steps"`
}

// ClaimedStep is a step handed to a worker.
type ClaimedStep struct {
	StepUUID          string                     `json:"step_uuid"`
	TaskUUID          string                     `json:"task_uuid"`
	Namespace         string                     `json:"namespace"`
	TaskName          string                     `json:"task_name"`
	TaskVersion       string                     `json:"task_version"`
	Name              string                     `json:"name"`
	Handler           string                     `json:"handler"`
	Attempt           int                        `json:"attempt"`
	MaxAttempts       int                        `json:"max_attempts"`
	LeaseToken        string                     `json:"lease_token" doc:"Send it back with everything said about this attempt."`
	LeaseExpiresAt    time.Time                  `json:"lease_expires_at"`
	Deadline          *time.Time                 `json:"deadline" doc:"End of timeout_seconds, or null."`
	CorrelationID     string                     `json:"correlation_id"`
	Context           json.RawMessage            `json:"context"`
	DependencyResults map[string]json.RawMessage `json:"dependency_results" doc:"Result of each step this one depends on, by name; null where a step was resolved without one."`
	Initialization    json.RawMessage            `json:"initialization"`

	Item  json.RawMessage `json:"item,omitempty" doc:"Of a step that is one of several for a list: the element that it is for. Missing: it is none."`
	Index *int            `json:"index,omitempty" doc:"The place of the element in the list, from 0. Missing as item is."`

	ContextOmitted []string `json:"context_omitted,omitempty" doc:"JSON Pointers of what the context is without, which is the list that the item is of: GET context_href where all of it is needed. Missing: it is whole."`
	ContextHref    string   `json:"context_href,omitempty" doc:"The path of the whole context on this server. Missing as context_omitted is."`

	Checkpoint json.RawMessage `json:"checkpoint,omitempty" doc:"The last value that an attempt before this one saved, to go on from there. Missing: none did."`

	DependencyResultRefs map[string]ResultRef `json:"dependency_result_refs,omitempty" doc:"The results that dependency_results has no room for, by name of the step: GET href where they are needed. Missing: there are none."`
}

// FromAssignment converts a step for the worker that claimed it. The lease token is the
// server's to add: the fence of an assignment stays inside.
func FromAssignment(a tasker.Assignment) ClaimedStep {
	out := ClaimedStep{
		StepUUID: a.StepUUID.String(), TaskUUID: a.TaskUUID.String(), Namespace: a.Namespace, TaskName: a.TaskName,
		TaskVersion: a.TaskVersion, Name: a.Name, Handler: a.Handler, Attempt: a.Attempt, MaxAttempts: a.MaxAttempts,
		LeaseToken: a.LeaseToken, LeaseExpiresAt: a.LeaseExpiresAt.UTC(), Deadline: utc(a.Deadline), CorrelationID: a.CorrelationID,
		Context: orObject(a.Context), DependencyResults: make(map[string]json.RawMessage, len(a.DependencyResults)),
		Initialization: orObject(a.Initialization), Item: a.Item, Index: a.Index, Checkpoint: a.Checkpoint, ContextOmitted: a.ContextOmitted,
	}
	if len(a.ContextOmitted) > 0 {
		out.ContextHref = tasker.ContextPath(a.TaskUUID)
	}
	for name, result := range a.DependencyResults {
		out.DependencyResults[name] = orNull(result)
	}
	if len(a.DependencyRefs) > 0 {
		out.DependencyResultRefs = make(map[string]ResultRef, len(a.DependencyRefs))
	}
	for name, ref := range a.DependencyRefs {
		out.DependencyResultRefs[name] = ResultRef{
			StepUUID: ref.StepUUID.String(), Bytes: ref.Bytes, Href: tasker.ResultPath(a.TaskUUID, ref.StepUUID.String()),
		}
	}
	return out
}

// ResultRef says where a result is that a claimed step does not carry.
type ResultRef struct {
	StepUUID string `json:"step_uuid" format:"uuid" doc:"The step whose result it is."`
	Bytes    int64  `json:"bytes"`
	Href     string `json:"href" doc:"The path of the result on this server."`
}

// Lease names one attempt of one step.
type Lease struct {
	StepUUID   string `json:"step_uuid" format:"uuid"`
	LeaseToken string `json:"lease_token" maxLength:"200"`
}

// Leases is the body of heartbeat and release.
type Leases struct {
	Leases []Lease `json:"leases" maxItems:"1000"`
}

// SaveCheckpoint is the body of POST /v1/workers/{worker_uuid}/checkpoint.
type SaveCheckpoint struct {
	Lease
	Checkpoint json.RawMessage `json:"checkpoint" doc:"Any JSON of at most 16 KiB."`
}

// HeartbeatAnswer says which leases were extended and which are lost. Stop the
// work of a lost one: its result would be refused.
type HeartbeatAnswer struct {
	Extended []ExtendedLease `json:"extended"`
	Lost     []string        `json:"lost" doc:"Ids of steps."`
	Drain    bool            `json:"drain" doc:"True: you get no new work. Finish or give back what you hold, and leave."`
}

// ExtendedLease is a lease with its new end.
type ExtendedLease struct {
	StepUUID       string    `json:"step_uuid"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
}

// Released is the answer to a release.
type Released struct {
	Released []string `json:"released" doc:"Ids of steps that are back in the queue, their attempt not used."`
	Lost     []string `json:"lost" doc:"Ids of steps whose lease was another's already."`
}

// ReportResults is the body of POST /v1/workers/{worker_uuid}/results.
type ReportResults struct {
	Results []Result    `json:"results" maxItems:"1000"`
	Claim   *ClaimSteps `json:"claim,omitempty" doc:"Take the next work in the same round trip."`

	ClaimReady bool `json:"claim_ready,omitempty" doc:"Take only steps that become ready by these results: for workers that are told by a message broker of what waits."`
}

// Result is the outcome of one attempt.
type Result struct {
	StepUUID   string          `json:"step_uuid" format:"uuid"`
	LeaseToken string          `json:"lease_token" maxLength:"200"`
	Success    bool            `json:"success"`
	Result     json.RawMessage `json:"result,omitempty" doc:"Of a success: any JSON."`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Error      *ResultError    `json:"error,omitempty" doc:"Of a failure."`
}

// ResultError is why an attempt failed.
type ResultError struct {
	Message      string          `json:"message"`
	Type         string          `json:"type,omitempty"`
	Retryable    *bool           `json:"retryable,omitempty" doc:"False: no retry, whatever the template says. True when absent."`
	RetryAfterMS int64           `json:"retry_after_ms,omitempty" minimum:"0" doc:"Rest at least this long before the next attempt."`
	Context      json.RawMessage `json:"context,omitempty"`
	Fingerprint  string          `json:"fingerprint,omitempty" doc:"Failures of the step with the same one are one case, whatever their messages say; at most 200 characters count. {default} in it stands for what type and message tell."`
}

// ReportAnswer says what became of each result, and carries the next work where
// it was asked for.
type ReportAnswer struct {
	Accepted []string         `json:"accepted" doc:"Ids of steps whose result counts, also when it was sent before."`
	Rejected []RejectedResult `json:"rejected"`
	Steps    []ClaimedStep    `json:"steps"`
}

// RejectedResult is a result that changed nothing, and why.
type RejectedResult struct {
	StepUUID string `json:"step_uuid"`
	Code     string `json:"code"`
	Message  string `json:"message"`
}

// Namespace is what is said of a namespace as a whole, as GET /v1/namespaces lists it.
type Namespace struct {
	Namespace string    `json:"namespace"`
	Weight    float64   `json:"weight" doc:"Its share in claims of several namespaces, when all have work: with 3 it gets three steps for each of a namespace with 1."`
	SetBy     string    `json:"set_by"`
	SetAt     time.Time `json:"set_at"`
}

// NamespaceList is the answer of GET /v1/namespaces.
type NamespaceList struct {
	Namespaces []Namespace `json:"namespaces"`
}

// SetNamespace gives a namespace its weight.
type SetNamespace struct {
	Weight float64 `json:"weight" doc:"From 0.01 to 1000."`
}

// FromNamespaceWeight converts the weight of a namespace.
func FromNamespaceWeight(w tasker.NamespaceWeight) Namespace {
	return Namespace{Namespace: w.Namespace, Weight: w.Weight, SetBy: w.SetBy, SetAt: w.SetAt.UTC()}
}
