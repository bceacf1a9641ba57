package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// PlanOperation is the body of POST /v1/operations.
type PlanOperation struct {
	Act           OperationAct       `json:"act"`
	Select        OperationSelection `json:"select"`
	Reason        string             `json:"reason" minLength:"1" maxLength:"20000" doc:"Reason for the history of each step."`
	PlannedBy     string             `json:"planned_by,omitempty" maxLength:"255" doc:"Actor." flag:"by"`
	Waves         *[]int             `json:"waves,omitempty" maxItems:"20" doc:"Items per wave. The rest follows the last wave. Default: 1, 10 and 100. [] releases all at once." flag:"waves" usage:"wave sizes, then the rest; \"all\" releases everything at once"`
	RatePerMinute int                `json:"rate_per_minute,omitempty" minimum:"0" maximum:"60000" doc:"Items released per minute. 0: unlimited."`
	Guards        *OperationGuards   `json:"guards,omitempty"`
	Limit         int                `json:"limit,omitempty" minimum:"0" maximum:"100000" doc:"Maximum number of items. 0: 100000."`
	Overlap       string             `json:"overlap,omitempty" enum:"refuse,skip" doc:"Reaction to steps of another open operation: reject the plan or skip these steps."`
}

// OperationAct is the action that an operation applies to each item.
type OperationAct struct {
	Type             string          `json:"type" enum:"reset_for_retry,resolve_manually,complete_manually,answer,cancel,compensate,recreate,end_investigation" doc:"answer completes waiting external steps; the form of each step validates the result. compensate cancels each task and compensates its completed steps. recreate marks each task as permanently failed and creates a new one from the newest version of its template, with the same context."`
	Result           json.RawMessage `json:"result,omitempty" doc:"Of complete_manually and answer: the same result for all items."`
	ResultExpression string          `json:"result_expression,omitempty" maxLength:"4096" doc:"Of complete_manually and answer, instead of result: a CEL expression for the result of each item. See docs/how-to/operations.md." flag:"result-expression" usage:"CEL expression that computes each result (with --complete or --answer), such as '{\"paid\": context.amount}'"`
	Metadata         json.RawMessage `json:"metadata,omitempty" doc:"Of complete_manually and answer: metadata of the result, a JSON object."`
}

// OperationSelection selects open investigations. Absent fields match any, but at least one is
// required.
type OperationSelection struct {
	DLQReason     string     `json:"dlq_reason,omitempty" enum:"staleness_timeout,max_retries_exceeded,dependency_cycle_detected,worker_unavailable,manual_dlq"`
	Namespace     string     `json:"namespace,omitempty" maxLength:"128" flag:"namespace" usage:"select by namespace"`
	Name          string     `json:"name,omitempty" maxLength:"128" doc:"Name of the template." flag:"name" usage:"select by template"`
	CaseID        string     `json:"case_id,omitempty" format:"uuid" flag:"case" usage:"select by case"`
	CurrentState  string     `json:"current_state,omitempty" maxLength:"50" doc:"Current state of the task."`
	MinAgeMinutes int        `json:"min_age_minutes,omitempty" minimum:"0" maximum:"5256000" flag:"min-age" usage:"select by minimum age in whole minutes"`
	Text          string     `json:"text,omitempty" maxLength:"200" doc:"Substring of namespace, template, step, error pattern or assignee, or six or more digits of an id." flag:"text" usage:"select by text in namespace, template, step, error pattern or assignee"`
	Recovered     *bool      `json:"recovered,omitempty" doc:"Whether the task continued automatically." flag:"recovered" usage:"select by automatic recovery (true or false)"`
	Tags          []string   `json:"tags,omitempty" maxItems:"10" doc:"The task has all of these tags." flag:"tag" usage:"select by tag of the task; repeatable"`
	CorrelationID string     `json:"correlation_id,omitempty" maxLength:"128" doc:"The task has this correlation id." flag:"correlation-id" usage:"select by correlation id of the task"`
	Attributes    []string   `json:"attributes,omitempty" maxItems:"10" doc:"The task has all of these search attributes, as NAME:VALUE, such as customer:4711 or risk:>0.5." flag:"attribute" usage:"select by attribute of the task: customer:4711, or 'risk:>0.5'; repeatable"`
	WorkerVersion string     `json:"worker_version,omitempty" maxLength:"255" doc:"Version of the worker of the failed attempt." flag:"failed-on" usage:"select by worker version of the failure"`
	FailedSince   *time.Time `json:"failed_since,omitempty" doc:"The step failed at this time or later." flag:"failed-since" usage:"select by time of the failure, inclusive, such as 2026-01-31T02:10:00Z"`
	IDs           []string   `json:"ids,omitempty" maxItems:"100000" doc:"Ids of investigations or tasks."`
	IDCount       int        `json:"id_count,omitempty" readOnly:"true" doc:"Number of selected ids."`
}

// OperationGuards pause an operation automatically.
type OperationGuards struct {
	Tolerate           string `json:"tolerate,omitempty" maxLength:"20" doc:"How many steps of a wave may fail before the operation pauses: a percentage such as 2%, which is the default, or a number. See docs/how-to/operations.md." flag:"tolerate" usage:"failures per wave to tolerate before pausing, as a percentage or a number (default 2%)"`
	IgnoreNewCause     bool   `json:"ignore_new_cause,omitempty" doc:"Do not count failures with a cause that was not among the selected ones separately." flag:"ignore-new-causes" usage:"do not pause on failures with a new cause"`
	WorkerAtLeast      string `json:"worker_at_least,omitempty" maxLength:"100" doc:"Only workers of this semantic version or a newer one claim the steps. For reset_for_retry only." flag:"worker-at-least" usage:"minimum worker version for the retried steps, such as 1.6.0 (with --reset)"`
	WaveTimeoutSeconds int    `json:"wave_timeout_seconds,omitempty" minimum:"0" maximum:"86400" doc:"A wave that is not verified within this time pauses the operation. 0: 900."`
}

// StartOperation is the body of POST /v1/operations/{operation_uuid}/start.
type StartOperation struct {
	PlanDigest string `json:"plan_digest" minLength:"1" maxLength:"200" doc:"Digest of the reviewed plan. A different plan is not started." flag:"plan-digest" usage:"digest of the plan that you reviewed (required)" why:"it confirms the plan that you reviewed; operation show prints it"`
	By         string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// ChangeOperation is the body of POST /v1/operations/{operation_uuid}/pause and abort.
type ChangeOperation struct {
	By string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// ResumeOperation is the body of POST /v1/operations/{operation_uuid}/resume.
type ResumeOperation struct {
	By            string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
	Tolerate      string `json:"tolerate,omitempty" maxLength:"20" doc:"New tolerance for the failed steps of a wave, such as 5% or 20. Default: unchanged." flag:"tolerate" usage:"failures per wave to tolerate from now on, as a percentage or a number"`
	TolerateCause bool   `json:"tolerate_cause,omitempty" doc:"Ignore further failures with the causes of the pause." flag:"tolerate-cause" usage:"ignore further failures with the causes that paused it"`
}

// DryRunOperation is the body of POST /v1/operations/{operation_uuid}/dry-run.
type DryRunOperation struct {
	After int `json:"after,omitempty" minimum:"0" maximum:"100000" doc:"Ordinal after which the part starts: next of the previous part."`
	Limit int `json:"limit,omitempty" minimum:"0" maximum:"100000" doc:"Maximum number of items. 0: 10000."`
}

// Operation applies one action to many steps.
type Operation struct {
	OperationUUID string                    `json:"operation_uuid"`
	State         string                    `json:"state" enum:"planned,running,paused,done,aborted"`
	Act           OperationAct              `json:"act"`
	Select        OperationSelection        `json:"select"`
	Reason        string                    `json:"reason"`
	PlannedBy     string                    `json:"planned_by"`
	StartedBy     *string                   `json:"started_by"`
	Namespaces    []string                  `json:"namespaces" doc:"Namespaces of the items."`
	Items         int                       `json:"items" doc:"Number of frozen items. The counts always add up to it."`
	Complete      bool                      `json:"complete" doc:"False if the limit excluded selected steps."`
	WithoutStep   int                       `json:"without_step" doc:"Selected investigations without a failed step."`
	Overlapping   []tasker.OperationOverlap `json:"overlapping" doc:"Other operations with some of the selected steps, which were skipped."`
	Counts        map[string]int64          `json:"counts" doc:"Items by state: planned, released, running, verified, failed_again, skipped, aborted."`
	Waves         []int                     `json:"waves"`
	Wave          int                       `json:"wave" doc:"Current wave, from 1. The rest counts as the last wave."`
	RatePerMinute int                       `json:"rate_per_minute"`
	Guards        OperationGuards           `json:"guards"`
	Tolerated     []string                  `json:"tolerated_causes" doc:"Fingerprints of failures that the guards ignore because an operator tolerated them on resume."`
	Paused        *tasker.OperationPause    `json:"paused"`
	PlanDigest    string                    `json:"plan_digest" doc:"Required to start the operation."`
	ArrivedSince  *int                      `json:"arrived_since,omitempty" doc:"Matching investigations opened after the plan, at most 1000. They are not changed."`
	CreatedAt     time.Time                 `json:"created_at"`
	ExpiresAt     time.Time                 `json:"expires_at" doc:"When a plan that was not started is aborted."`
	StartedAt     *time.Time                `json:"started_at"`
	EndedAt       *time.Time                `json:"ended_at"`
	SettledAt     *time.Time                `json:"settled_at" doc:"When the last item got its outcome. An aborted operation may still have released items."`
}

// OperationList is a page of operations, newest first.
type OperationList struct {
	Operations []Operation `json:"operations"`
	Pagination Pagination  `json:"pagination"`
}

// OperationItemList is a page of items, in order.
type OperationItemList struct {
	Items []tasker.OperationItem `json:"items"`
	Next  *int                   `json:"next" doc:"Value of after for the next page. Null at the end."`
}

// FromOperation converts an operation.
func FromOperation(o tasker.Operation) Operation {
	out := Operation{
		OperationUUID: o.UUID.String(), State: string(o.State), Act: OperationAct{Type: string(o.Act)}, Select: FromSelection(o.Selection, o.Selected),
		Reason: o.Reason, PlannedBy: o.PlannedBy, StartedBy: textOrNull(o.StartedBy), Namespaces: orEmpty(o.Namespaces), Items: o.Items, Complete: !o.Capped,
		WithoutStep: o.WithoutStep, Overlapping: orEmpty(o.Overlapping), Counts: toTextKeys(o.Counts),
		Waves: orEmpty(o.Waves), Wave: o.Wave + 1, RatePerMinute: o.RatePerMinute,
		Guards: OperationGuards{
			IgnoreNewCause: o.Guards.IgnoreNewCause, WaveTimeoutSeconds: int(o.Guards.WaveTimeout / time.Second), WorkerAtLeast: o.Guards.WorkerAtLeast,
		},
		Tolerated: orEmpty(o.Tolerated), Paused: o.Pause,
		PlanDigest: o.PlanDigest, CreatedAt: o.CreatedAt.UTC(), ExpiresAt: o.ExpiresAt.UTC(), StartedAt: toUTC(o.StartedAt), EndedAt: toUTC(o.EndedAt), SettledAt: toUTC(o.SettledAt),
	}
	if t := o.Guards.Tolerate; t != nil {
		out.Guards.Tolerate = t.String()
	}
	var args OperationAct
	if json.Unmarshal(o.Arguments, &args) == nil {
		out.Act.Result, out.Act.ResultExpression, out.Act.Metadata = args.Result, args.ResultExpression, args.Metadata
	}
	return out
}

// FromSelection converts a selection. It returns the number of ids instead of the ids.
func FromSelection(s tasker.OperationSelection, ids int) OperationSelection {
	f := s.Filter
	out := OperationSelection{
		DLQReason: string(f.Reason), Namespace: f.Namespace, Name: f.Name, CurrentState: string(f.State), MinAgeMinutes: int(f.Age / time.Minute), Text: f.Text,
		Recovered: f.Recovered, WorkerVersion: s.WorkerVersion, FailedSince: toUTC(s.FailedSince), IDCount: ids,
		Tags: f.Tags, CorrelationID: f.CorrelationID,
	}
	if f.Case != nil {
		out.CaseID = f.Case.String()
	}
	for _, a := range f.Attributes {
		out.Attributes = append(out.Attributes, a.String())
	}
	return out
}
