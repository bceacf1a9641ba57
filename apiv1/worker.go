package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// WorkerProtocol is the version of the worker protocol that servers and the Go SDK use.
const WorkerProtocol = 1

// RegisterWorker is the body of POST /v1/workers.
type RegisterWorker struct {
	Name           string   `json:"name" minLength:"1" maxLength:"255"`
	Namespaces     []string `json:"namespaces" minItems:"1" maxItems:"100"`
	Handlers       []string `json:"handlers" minItems:"1" maxItems:"1000"`
	Version        string   `json:"version,omitempty" maxLength:"128"`
	MaxConcurrency int      `json:"max_concurrency,omitempty" minimum:"1" maximum:"10000"`
	Protocol       int      `json:"protocol,omitempty" minimum:"1" doc:"Version of the worker protocol that the worker uses. Default 1. A version that the server does not support is NOT_SUPPORTED."`
}

// RegisteredWorker is the response of POST /v1/workers.
type RegisteredWorker struct {
	WorkerUUID          string `json:"worker_uuid"`
	HeartbeatIntervalMS int64  `json:"heartbeat_interval_ms"`
	LeaseMS             int64  `json:"lease_ms"`
	ClaimIsHeartbeat    bool   `json:"claim_is_heartbeat,omitempty" doc:"Claims count as heartbeats while the worker holds no lease. Absent: they do not."`
	Protocol            int    `json:"protocol" minimum:"1" doc:"Version of the worker protocol that both use."`

	Dispatch *Dispatch `json:"dispatch,omitempty" doc:"Message broker that announces steps. Absent if there is none."`
}

// Dispatch contains the broker settings of a worker. It must declare its queues with the same
// arguments.
type Dispatch struct {
	Transport          string   `json:"transport" enum:"rabbitmq"`
	Exchange           string   `json:"exchange"`
	Queues             []string `json:"queues" doc:"One per namespace of the worker, in the same order."`
	WorkerQueueTTLMS   int64    `json:"worker_queue_ttl_ms"`
	DeadLetterEnabled  bool     `json:"dead_letter_enabled"`
	DeadLetterExchange string   `json:"dead_letter_exchange"`
	DeadLetterTTLMS    int64    `json:"dead_letter_ttl_ms"`
	ClaimsReady        bool     `json:"claims_ready,omitempty" doc:"Reports may set claim_ready. Absent: they must not."`
}

// FromDispatch converts the broker settings. It returns nil for nil.
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

// ToDispatch converts d to the domain type.
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

// WorkerList is the response of GET /v1/workers.
type WorkerList struct {
	Workers    []tasker.Worker `json:"workers"`
	Pagination Pagination      `json:"pagination"`
}

// ClaimSteps is the body of POST /v1/workers/{worker_uuid}/claims.
type ClaimSteps struct {
	Max    int `json:"max" minimum:"1" maximum:"1000"`
	WaitMS int `json:"wait_ms,omitempty" minimum:"0" maximum:"60000" doc:"How long to wait for work."`
}

// TakeSteps is the body of POST /v1/workers/{worker_uuid}/take.
type TakeSteps struct {
	Steps []StepRef `json:"steps" minItems:"1" maxItems:"1000"`
}

// StepRef identifies a step, as in a broker message.
type StepRef struct {
	TaskUUID string `json:"task_uuid" format:"uuid"`
	StepUUID string `json:"step_uuid" format:"uuid"`
}

// ClaimedSteps is the response to a claim.
type ClaimedSteps struct {
	Steps []ClaimedStep `json:"steps"`
}

// ClaimedStep is a claimed step with the inputs of its handler.
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
	LeaseToken        string                     `json:"lease_token" doc:"Required in all requests about this attempt."`
	LeaseExpiresAt    time.Time                  `json:"lease_expires_at"`
	Deadline          *time.Time                 `json:"deadline" doc:"End of timeout_seconds, or null."`
	CorrelationID     string                     `json:"correlation_id"`
	Context           json.RawMessage            `json:"context"`
	DependencyResults map[string]json.RawMessage `json:"dependency_results" doc:"Results of the dependencies by step name. Null if a step was resolved without a result."`
	Initialization    json.RawMessage            `json:"initialization"`

	Item  json.RawMessage `json:"item,omitempty" doc:"Element of an item of a map step. Absent for other steps."`
	Index *int            `json:"index,omitempty" doc:"Position of the element in the list, from 0."`

	ContextOmitted []string `json:"context_omitted,omitempty" doc:"JSON Pointers of context parts left out, such as the list of the map step. GET context_href returns the whole context. Absent if it is complete."`
	ContextHref    string   `json:"context_href,omitempty" doc:"API path of the whole context, if parts are left out."`

	Checkpoint json.RawMessage `json:"checkpoint,omitempty" doc:"Latest checkpoint of an earlier attempt, if any."`

	DependencyResultRefs map[string]ResultRef `json:"dependency_result_refs,omitempty" doc:"Results too large for dependency_results, by step name: GET href."`
}

// FromAssignment converts a claimed step. It omits the fence; the server adds the lease token.
func FromAssignment(a tasker.Assignment) ClaimedStep {
	out := ClaimedStep{
		StepUUID: a.StepUUID.String(), TaskUUID: a.TaskUUID.String(), Namespace: a.Namespace, TaskName: a.TaskName,
		TaskVersion: a.TaskVersion, Name: a.Name, Handler: a.Handler, Attempt: a.Attempt, MaxAttempts: a.MaxAttempts,
		LeaseToken: a.LeaseToken, LeaseExpiresAt: a.LeaseExpiresAt.UTC(), Deadline: toUTC(a.Deadline), CorrelationID: a.CorrelationID,
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

// ResultRef locates a result that a claimed step does not carry inline.
type ResultRef struct {
	StepUUID string `json:"step_uuid" format:"uuid" doc:"Step that returned the result."`
	Bytes    int64  `json:"bytes"`
	Href     string `json:"href" doc:"API path of the result."`
}

// Lease identifies one attempt of a step.
type Lease struct {
	StepUUID   string `json:"step_uuid" format:"uuid"`
	LeaseToken string `json:"lease_token" maxLength:"200"`
}

// Leases is the body of heartbeat and release requests.
type Leases struct {
	Leases []Lease `json:"leases" maxItems:"1000"`
}

// SaveCheckpoint is the body of POST /v1/workers/{worker_uuid}/checkpoint.
type SaveCheckpoint struct {
	Lease
	Checkpoint json.RawMessage `json:"checkpoint" doc:"Any JSON up to 16 KiB."`
}

// HeartbeatAnswer lists the extended and the lost leases. Work on lost steps must stop: reports
// for them are rejected.
type HeartbeatAnswer struct {
	Extended []ExtendedLease `json:"extended"`
	Lost     []string        `json:"lost" doc:"Ids of steps."`
	Drain    bool            `json:"drain" doc:"Stop claiming, finish or release the current steps, and leave."`
}

// ExtendedLease is the new expiry of a lease.
type ExtendedLease struct {
	StepUUID       string    `json:"step_uuid"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
}

// Released is the response to a release.
type Released struct {
	Released []string `json:"released" doc:"Ids of steps that are enqueued again without using an attempt."`
	Lost     []string `json:"lost" doc:"Ids of steps whose lease was already lost."`
}

// ReportResults is the body of POST /v1/workers/{worker_uuid}/results.
type ReportResults struct {
	Results []Result    `json:"results" maxItems:"1000"`
	Claim   *ClaimSteps `json:"claim,omitempty" doc:"Claims the next steps in the same request."`

	ClaimReady bool `json:"claim_ready,omitempty" doc:"Claim only steps that these results make ready. For workers that receive step announcements from a message broker."`
}

// Result is the outcome of one attempt.
type Result struct {
	StepUUID   string          `json:"step_uuid" format:"uuid"`
	LeaseToken string          `json:"lease_token" maxLength:"200"`
	Success    bool            `json:"success"`
	Result     json.RawMessage `json:"result,omitempty" doc:"Any JSON, on success."`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Error      *ResultError    `json:"error,omitempty" doc:"On failure."`
}

// ResultError describes why an attempt failed.
type ResultError struct {
	Message      string          `json:"message"`
	Type         string          `json:"type,omitempty"`
	Retryable    *bool           `json:"retryable,omitempty" doc:"False prevents retries. Default: true."`
	RetryAfterMS int64           `json:"retry_after_ms,omitempty" minimum:"0" doc:"Minimum delay before the next attempt."`
	Context      json.RawMessage `json:"context,omitempty"`
	Fingerprint  string          `json:"fingerprint,omitempty" doc:"Failures of the step with equal fingerprints form one case, regardless of their messages. At most 200 characters are used. {default} is replaced by the fingerprint of type and message."`
}

// ReportAnswer lists the accepted and rejected results, and the next steps if requested.
type ReportAnswer struct {
	Accepted []string         `json:"accepted" doc:"Ids of steps whose result was accepted, now or earlier."`
	Rejected []RejectedResult `json:"rejected"`
	Steps    []ClaimedStep    `json:"steps"`
}

// RejectedResult is a result that was not applied.
type RejectedResult struct {
	StepUUID string `json:"step_uuid"`
	Code     string `json:"code"`
	Message  string `json:"message"`
}

// NamespaceList is the response of GET /v1/namespaces.
type NamespaceList struct {
	Namespaces []tasker.NamespaceWeight `json:"namespaces"`
}

// SetNamespace sets the weight of a namespace.
type SetNamespace struct {
	Weight float64 `json:"weight" doc:"From 0.01 to 1000."`
}
