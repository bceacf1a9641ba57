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
	Reason        string             `json:"reason" minLength:"1" maxLength:"20000" doc:"Why, for the history of each step."`
	PlannedBy     string             `json:"planned_by,omitempty" maxLength:"255" doc:"Who plans it."`
	Waves         *[]int             `json:"waves,omitempty" maxItems:"20" doc:"How many items each wave releases; the rest follows after the last. 1, 10 and 100 when absent; [] is all at once."`
	RatePerMinute int                `json:"rate_per_minute,omitempty" minimum:"0" maximum:"60000" doc:"How many items are released in a minute; 0 is no limit."`
	Guards        *OperationGuards   `json:"guards,omitempty"`
	Limit         int                `json:"limit,omitempty" minimum:"0" maximum:"100000" doc:"Items at most; 0 is 100000."`
	Overlap       string             `json:"overlap,omitempty" enum:"refuse,skip" doc:"What happens to steps that another operation holds: the plan is refused, or they are left out."`
}

// OperationAct is what an operation does to each of its items.
type OperationAct struct {
	Type             string          `json:"type" enum:"reset_for_retry,resolve_manually,complete_manually,answer,cancel,compensate,recreate,end_investigation" doc:"answer answers external steps that wait; the form of each step checks the result. compensate cancels each task and has undone what its completed steps have done. recreate writes each task off and makes a new one of the newest version of its template, with the same context."`
	Result           json.RawMessage `json:"result,omitempty" doc:"Of complete_manually and answer: one result for all."`
	ResultExpression string          `json:"result_expression,omitempty" maxLength:"4096" doc:"Of complete_manually and answer, in place of result: an expression in CEL that gives the result of each item, see docs/how-to/operations.md."`
	Metadata         json.RawMessage `json:"metadata,omitempty" doc:"Of complete_manually and answer: an object about the result."`
}

// OperationSelection selects open investigations; what is absent selects any. It must not
// be empty.
type OperationSelection struct {
	DLQReason     string     `json:"dlq_reason,omitempty" enum:"staleness_timeout,max_retries_exceeded,dependency_cycle_detected,worker_unavailable,manual_dlq"`
	Namespace     string     `json:"namespace,omitempty" maxLength:"128"`
	Name          string     `json:"name,omitempty" maxLength:"128" doc:"Of the template."`
	CaseID        string     `json:"case_id,omitempty" format:"uuid"`
	CurrentState  string     `json:"current_state,omitempty" maxLength:"50" doc:"Of the task now."`
	MinAgeMinutes int        `json:"min_age_minutes,omitempty" minimum:"0" maximum:"5256000"`
	Text          string     `json:"text,omitempty" maxLength:"200" doc:"In namespace, template, step, error pattern or assignee, or six or more digits of an id."`
	Recovered     *bool      `json:"recovered,omitempty" doc:"Only those whose task went on by itself, or only the others."`
	Tags          []string   `json:"tags,omitempty" maxItems:"10" doc:"Only those whose task has all of these tags."`
	CorrelationID string     `json:"correlation_id,omitempty" maxLength:"128" doc:"Only those whose task has this correlation id."`
	Attributes    []string   `json:"attributes,omitempty" maxItems:"10" doc:"Only those whose task has all of these search attributes, as NAME:VALUE, such as customer:4711 or risk:>0.5."`
	WorkerVersion string     `json:"worker_version,omitempty" maxLength:"255" doc:"Only where the failed attempt was of a worker of this version."`
	FailedSince   *time.Time `json:"failed_since,omitempty" doc:"Only where the step failed at this instant or later."`
	IDs           []string   `json:"ids,omitempty" maxItems:"100000" doc:"Only these: ids of investigations or tasks."`
	IDCount       int        `json:"id_count,omitempty" readOnly:"true" doc:"How many ids were given."`
}

// OperationGuards pause an operation automatically.
type OperationGuards struct {
	Tolerate           string `json:"tolerate,omitempty" maxLength:"20" doc:"How many steps of a wave may fail before the operation pauses: a percentage such as 2%, which is the default, or a number. See docs/how-to/operations.md."`
	IgnoreNewCause     bool   `json:"ignore_new_cause,omitempty" doc:"Do not count failures with a cause that was not among the selected ones separately."`
	WorkerAtLeast      string `json:"worker_at_least,omitempty" maxLength:"100" doc:"Only workers of this version or a newer one, by semantic versioning, take the steps. Of reset_for_retry only."`
	WaveTimeoutSeconds int    `json:"wave_timeout_seconds,omitempty" minimum:"0" maximum:"86400" doc:"A wave that is not proved within this time pauses the operation; 0 is 900."`
}

// StartOperation is the body of POST /v1/operations/{operation_uuid}/start.
type StartOperation struct {
	PlanDigest string `json:"plan_digest" minLength:"1" maxLength:"200" doc:"Of the plan that was seen: another one is not started."`
	By         string `json:"by,omitempty" maxLength:"255" doc:"Who starts it."`
}

// ChangeOperation is the body of POST /v1/operations/{operation_uuid}/pause and abort.
type ChangeOperation struct {
	By string `json:"by,omitempty" maxLength:"255" doc:"The acting person."`
}

// ResumeOperation is the body of POST /v1/operations/{operation_uuid}/resume.
type ResumeOperation struct {
	By            string `json:"by,omitempty" maxLength:"255" doc:"The acting person."`
	Tolerate      string `json:"tolerate,omitempty" maxLength:"20" doc:"How many steps of a wave may fail from now on, such as 5% or 20; unchanged when absent."`
	TolerateCause bool   `json:"tolerate_cause,omitempty" doc:"Ignore failures of the causes for which the operation is paused from now on."`
}

// DryRunOperation is the body of POST /v1/operations/{operation_uuid}/dry-run.
type DryRunOperation struct {
	After int `json:"after,omitempty" minimum:"0" maximum:"100000" doc:"The ordinal after which it begins: next of the part before."`
	Limit int `json:"limit,omitempty" minimum:"0" maximum:"100000" doc:"Items at most; 0 is 10000."`
}

// Operation is one action on many steps.
type Operation struct {
	OperationUUID string             `json:"operation_uuid"`
	State         string             `json:"state" enum:"planned,running,paused,done,aborted"`
	Act           OperationAct       `json:"act"`
	Select        OperationSelection `json:"select"`
	Reason        string             `json:"reason"`
	PlannedBy     string             `json:"planned_by"`
	StartedBy     *string            `json:"started_by"`
	Namespaces    []string           `json:"namespaces" doc:"Of the items."`
	Items         int                `json:"items" doc:"How many were frozen. The counts add up to it at any time."`
	Complete      bool               `json:"complete" doc:"All that was selected is among the items; false when the limit left some out."`
	WithoutStep   int                `json:"without_step" doc:"Selected investigations whose task has no step that has failed."`
	Overlapping   []OperationOverlap `json:"overlapping" doc:"Other operations that hold steps which were selected; those were left out."`
	Counts        map[string]int64   `json:"counts" doc:"Items by state: planned, released, running, verified, failed_again, skipped, aborted."`
	Waves         []int              `json:"waves"`
	Wave          int                `json:"wave" doc:"The wave under way, from 1; the rest is the last."`
	RatePerMinute int                `json:"rate_per_minute"`
	Guards        OperationGuards    `json:"guards"`
	Tolerated     []string           `json:"tolerated_causes" doc:"Fingerprints of failures that the guards do not count, since an operator tolerated them on resume."`
	Paused        *OperationPause    `json:"paused"`
	PlanDigest    string             `json:"plan_digest" doc:"What start needs."`
	ArrivedSince  *int               `json:"arrived_since,omitempty" doc:"Investigations that the selection would select and that were opened after the plan, 1000 at most. They are not touched."`
	CreatedAt     time.Time          `json:"created_at"`
	ExpiresAt     time.Time          `json:"expires_at" doc:"When a plan that is not started is aborted."`
	StartedAt     *time.Time         `json:"started_at"`
	EndedAt       *time.Time         `json:"ended_at"`
	SettledAt     *time.Time         `json:"settled_at" doc:"When the last item came to its end. An operation that was aborted may have some on their way."`
}

// OperationOverlap is another operation that had selected the same steps before.
type OperationOverlap = tasker.OperationOverlap

// OperationPause is why, when and by whom an operation was paused.
type OperationPause struct {
	For         string    `json:"for" enum:"operator,same_cause,new_cause,wave_failed,wave_timeout,no_worker"`
	By          string    `json:"by"`
	At          time.Time `json:"at"`
	Failures    int       `json:"failures" doc:"That the guard counted."`
	FailureText string    `json:"failure_text,omitempty" doc:"Of one of them."`
	TaskUUID    *string   `json:"task_uuid,omitempty" doc:"Of that one."`
	Causes      []string  `json:"causes,omitempty" doc:"Fingerprints of the failures; resume with tolerate_cause ignores them from then on."`
}

// OperationList is a page of operations, newest first.
type OperationList struct {
	Operations []Operation `json:"operations"`
	Pagination Pagination  `json:"pagination"`
}

// OperationItem is one step of an operation.
type OperationItem struct {
	Ordinal      int        `json:"ordinal"`
	TaskUUID     string     `json:"task_uuid"`
	StepUUID     *string    `json:"step_uuid" doc:"Null for an act on whole tasks."`
	DLQEntryUUID string     `json:"dlq_entry_uuid"`
	Namespace    string     `json:"namespace"`
	State        string     `json:"state" enum:"planned,released,running,verified,failed_again,skipped,aborted"`
	Outcome      string     `json:"outcome" doc:"Why it came to its state, as a code."`
	Wave         *int       `json:"wave" doc:"From 1; null before the release."`
	ReleasedAt   *time.Time `json:"released_at"`
	FailedAt     *time.Time `json:"failed_at" doc:"When the step last failed after its release."`
	FailureText  string     `json:"failure_text" doc:"Of that failure, or why the result of the item could not be computed."`
	MadeTaskUUID *string    `json:"made_task_uuid" doc:"The new task, of recreate; the item waits for it."`
	EndedAt      *time.Time `json:"ended_at"`
}

// OperationItemList is a page of items, in their order.
type OperationItemList struct {
	Items []OperationItem `json:"items"`
	Next  *int            `json:"next" doc:"The value of after for the next page; null at the end."`
}

// OperationDryRun is what a part of an operation would do.
type OperationDryRun struct {
	LookedAt     int                `json:"looked_at"`
	WouldRelease int                `json:"would_release"`
	Busy         int                `json:"busy" doc:"Held by somebody else at that moment; they are tried again when the operation runs."`
	Refused      []OperationRefusal `json:"refused"`
	Enqueues     map[string]int     `json:"enqueues" doc:"Steps that would become ready, by name."`
	Results      []OperationResult  `json:"results,omitempty" doc:"Of complete_manually and answer with result_expression: the results of the first items."`
	CannotSee    []string           `json:"cannot_see" doc:"What no dry run can tell."`
	Next         *int               `json:"next" doc:"The value of after for the next part; null at the end."`
}

// OperationRefusal is items that would be skipped for one reason.
type OperationRefusal struct {
	Outcome string   `json:"outcome"`
	Items   int      `json:"items"`
	Sample  []string `json:"sample" doc:"Some of the tasks."`
	Reason  string   `json:"reason,omitempty" doc:"Of the first of them, where results are computed."`
}

// OperationResult is the result with which an item would be completed.
type OperationResult struct {
	TaskUUID string          `json:"task_uuid"`
	StepUUID string          `json:"step_uuid"`
	Result   json.RawMessage `json:"result,omitempty" doc:"Absent when it has more than 2048 bytes."`
	Bytes    int             `json:"bytes"`
}

// FromOperation converts an operation.
func FromOperation(o tasker.Operation) Operation {
	out := Operation{
		OperationUUID: o.UUID.String(), State: string(o.State), Act: OperationAct{Type: string(o.Act)}, Select: FromSelection(o.Selection, o.Selected),
		Reason: o.Reason, PlannedBy: o.PlannedBy, StartedBy: textOrNull(o.StartedBy), Namespaces: orEmpty(o.Namespaces), Items: o.Items, Complete: !o.Capped,
		WithoutStep: o.WithoutStep, Overlapping: append([]OperationOverlap{}, o.Overlapping...), Counts: map[string]int64{},
		Waves: append([]int{}, o.Waves...), Wave: o.Wave + 1, RatePerMinute: o.RatePerMinute,
		Guards: OperationGuards{
			IgnoreNewCause: o.Guards.IgnoreNewCause, WaveTimeoutSeconds: int(o.Guards.WaveTimeout / time.Second), WorkerAtLeast: o.Guards.WorkerAtLeast,
		},
		Tolerated:  append([]string{}, o.Tolerated...),
		PlanDigest: o.PlanDigest, CreatedAt: o.CreatedAt.UTC(), ExpiresAt: o.ExpiresAt.UTC(), StartedAt: utc(o.StartedAt), EndedAt: utc(o.EndedAt), SettledAt: utc(o.SettledAt),
	}
	if t := o.Guards.Tolerate; t != nil {
		out.Guards.Tolerate = t.String()
	}
	var args OperationAct
	if json.Unmarshal(o.Arguments, &args) == nil {
		out.Act.Result, out.Act.ResultExpression, out.Act.Metadata = args.Result, args.ResultExpression, args.Metadata
	}
	for state, n := range o.Counts {
		out.Counts[string(state)] = n
	}
	if p := o.Pause; p != nil {
		out.Paused = &OperationPause{For: string(p.For), By: p.By, At: p.At.UTC(), Failures: p.Failures, FailureText: p.FailureText, TaskUUID: idOrNull(p.TaskUUID), Causes: p.Causes}
	}
	return out
}

// FromSelection converts a selection; of ids the number.
func FromSelection(s tasker.OperationSelection, ids int) OperationSelection {
	f := s.Filter
	out := OperationSelection{
		DLQReason: string(f.Reason), Namespace: f.Namespace, Name: f.Name, CurrentState: string(f.State), MinAgeMinutes: int(f.Age / time.Minute), Text: f.Text,
		Recovered: f.Recovered, WorkerVersion: s.WorkerVersion, FailedSince: utc(s.FailedSince), IDCount: ids,
		Tags: f.Tags, CorrelationID: f.CorrelationID,
	}
	for _, a := range f.Attributes {
		out.Attributes = append(out.Attributes, a.String())
	}
	if f.Case != nil {
		out.CaseID = f.Case.String()
	}
	return out
}

// FromOperationItem converts an item.
func FromOperationItem(i tasker.OperationItem) OperationItem {
	out := OperationItem{
		Ordinal: i.Ordinal, TaskUUID: i.TaskUUID.String(), StepUUID: idOrNull(i.StepUUID), DLQEntryUUID: i.EntryUUID.String(), Namespace: i.Namespace,
		State: string(i.State), Outcome: i.Outcome, ReleasedAt: utc(i.ReleasedAt), FailedAt: utc(i.FailedAt), FailureText: i.FailureText,
		MadeTaskUUID: idOrNull(i.MadeTask), EndedAt: utc(i.EndedAt),
	}
	if i.Wave != nil {
		wave := *i.Wave + 1
		out.Wave = &wave
	}
	return out
}

// cannotSee is what no dry run can tell.
var cannotSee = []string{
	"whether the cause of the failures is gone", "what the handlers do outside of Tasker", "what happens behind the steps that become ready",
	"what others do between the dry run and the release",
}

// FromDryRun converts what a part of an operation would do.
func FromDryRun(r tasker.DryRun) OperationDryRun {
	out := OperationDryRun{
		LookedAt: r.LookedAt, WouldRelease: r.WouldRelease, Busy: r.Busy, Refused: []OperationRefusal{}, Enqueues: r.Enqueues, CannotSee: cannotSee, Next: r.Next,
	}
	for _, f := range r.Refused {
		refusal := OperationRefusal{Outcome: f.Outcome, Items: f.Items, Sample: []string{}, Reason: f.Reason}
		for _, id := range f.Sample {
			refusal.Sample = append(refusal.Sample, id.String())
		}
		out.Refused = append(out.Refused, refusal)
	}
	for _, d := range r.Results {
		out.Results = append(out.Results, OperationResult{TaskUUID: d.TaskUUID.String(), StepUUID: d.StepUUID.String(), Result: d.Result, Bytes: d.Bytes})
	}
	return out
}
