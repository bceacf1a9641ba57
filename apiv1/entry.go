package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Entry is one investigation.
type Entry struct {
	DLQEntryUUID     string             `json:"dlq_entry_uuid"`
	TaskUUID         string             `json:"task_uuid"`
	StepUUID         *string            `json:"step_uuid"`
	OriginalState    string             `json:"original_state"`
	DLQReason        string             `json:"dlq_reason"`
	DetailCode       string             `json:"detail_code"`
	OriginalReason   *string            `json:"original_reason" doc:"First reason, if a more severe one replaced it, or null."`
	OriginalCode     *string            `json:"original_detail_code" doc:"First detail code, if a more severe reason replaced it, or null."`
	Label            string             `json:"label" doc:"Short description of the cause."`
	Severity         string             `json:"severity" enum:"critical,high,medium,low"`
	Guidance         string             `json:"guidance" doc:"First checks and possible fixes in the current state. It names the failed step."`
	DetectedBy       string             `json:"detected_by"`
	DLQTimestamp     time.Time          `json:"dlq_timestamp"`
	ResolutionStatus string             `json:"resolution_status"`
	ResolutionNotes  *string            `json:"resolution_notes"`
	ResolvedAt       *time.Time         `json:"resolved_at"`
	ResolvedBy       *string            `json:"resolved_by"`
	TaskSnapshot     json.RawMessage    `json:"task_snapshot"`
	Metadata         json.RawMessage    `json:"metadata"`
	RecoveredAt      *time.Time         `json:"recovered_at"`
	PredecessorUUID  *string            `json:"predecessor_uuid"`
	CurrentTaskState string             `json:"current_task_state" doc:"Current state of the task."`
	FailedStep       *tasker.FailedStep `json:"failed_step" doc:"The currently failed step. Null if none has failed or the investigation has ended. step_uuid is the step for which it was opened."`
	TaskDue          *Deadline          `json:"task_due" doc:"Due time of the task, or null."`
	CreatedAt        time.Time          `json:"created_at"`
	UpdatedAt        time.Time          `json:"updated_at"`
	History          []EntryChange      `json:"history,omitempty" doc:"Only in responses with a single entry: up to 500 rows."`
	HistoryHasMore   bool               `json:"history_has_more,omitempty" doc:"More rows follow. Use history_offset to read them."`
}

// EntryChange is one row of the history of an investigation, oldest first.
type EntryChange struct {
	ChangedAt  time.Time       `json:"changed_at"`
	Actor      string          `json:"actor"`
	Event      string          `json:"event"`
	FromStatus *string         `json:"from_status"`
	ToStatus   string          `json:"to_status"`
	Notes      *string         `json:"notes"`
	Metadata   json.RawMessage `json:"metadata"`
}

// UpdateEntry is the body of PATCH /v1/dlq/entry/{dlq_entry_uuid}.
type UpdateEntry struct {
	ResolutionStatus *string         `json:"resolution_status,omitempty" enum:"manually_resolved,permanently_failed,cancelled" doc:"Ends the investigation. Requires resolution_notes."`
	ResolutionNotes  *string         `json:"resolution_notes,omitempty" maxLength:"20000"`
	ResolvedBy       *string         `json:"resolved_by,omitempty" maxLength:"255"`
	Metadata         json.RawMessage `json:"metadata,omitempty" doc:"JSON object, merged into the existing metadata key by key."`

	Compensate bool `json:"compensate,omitempty" doc:"With permanently_failed: also compensate the completed steps of the task and cancel the others, in the same transaction." flag:"compensate" usage:"with permanently_failed: compensate the completed steps of the task"`

	UpdatedBy         string     `json:"updated_by,omitempty" maxLength:"255" doc:"Actor for the history. Default: resolved_by."`
	ExpectedUpdatedAt *time.Time `json:"expected_updated_at,omitempty" doc:"Expected updated_at. If the entry has changed since, the response is 409." flag:"if-unchanged-since" usage:"fail if the investigation changed since this updated_at"`
}

// UpdatedEntry is the response to an update, with the current entry.
type UpdatedEntry struct {
	Success  bool     `json:"success"`
	Message  string   `json:"message"`
	Warnings []string `json:"warnings"`
	Entry
}

// OpenEntry is the body of POST /v1/dlq/task/{task_uuid}.
type OpenEntry struct {
	Reason    string          `json:"reason" minLength:"1" maxLength:"20000" doc:"Why the task needs an investigation."`
	CreatedBy string          `json:"created_by" minLength:"1" maxLength:"255" flag:"created-by"`
	Metadata  json.RawMessage `json:"metadata,omitempty" doc:"JSON object."`
}

// InvestigationQueueEntry is one row of the investigation queue, most urgent first.
type InvestigationQueueEntry struct {
	DLQEntryUUID       string             `json:"dlq_entry_uuid"`
	TaskUUID           string             `json:"task_uuid"`
	StepUUID           *string            `json:"step_uuid"`
	OriginalState      string             `json:"original_state"`
	DLQReason          string             `json:"dlq_reason"`
	DetailCode         string             `json:"detail_code"`
	Label              string             `json:"label" doc:"Short description of the cause."`
	Severity           string             `json:"severity" enum:"critical,high,medium,low"`
	DLQTimestamp       time.Time          `json:"dlq_timestamp"`
	MinutesInDLQ       float64            `json:"minutes_in_dlq"`
	NamespaceName      string             `json:"namespace_name"`
	TaskName           string             `json:"task_name"`
	CurrentState       string             `json:"current_state" doc:"Current state of the task."`
	TimeInStateMinutes *float64           `json:"time_in_state_minutes" doc:"At the time when the entry was opened."`
	PriorityScore      float64            `json:"priority_score"`
	RecoveredAt        *time.Time         `json:"recovered_at"`
	StepName           string             `json:"step_name" doc:"Empty if no step failed."`
	ErrorPattern       string             `json:"error_pattern" doc:"Error of the step without ids and numbers."`
	ErrorMessage       string             `json:"error_message" doc:"Latest failure, truncated."`
	CaseID             string             `json:"case_id" doc:"Case of the entry. Empty until the failure is classified, within seconds."`
	Progress           string             `json:"progress" enum:"waiting,proving,failed_again,recovered" doc:"State of the repair."`
	CaseKey            string             `json:"case_key" doc:"Deprecated: failure key of version 0.1."`
	Assignee           string             `json:"assignee" doc:"Investigator from the metadata, or empty."`
	FailedStep         *tasker.FailedStep `json:"failed_step" doc:"The currently failed step, or null. step_uuid is the step for which the entry was opened."`
	TaskDue            *Deadline          `json:"task_due" doc:"Due time of the task, or null."`
}

// FromEntry converts an entry.
func FromEntry(e tasker.Entry) Entry {
	cause := tasker.CauseOf(e.Reason, e.DetailCode)
	out := Entry{
		DLQEntryUUID: e.UUID.String(), TaskUUID: e.TaskUUID.String(), StepUUID: idOrNull(e.StepUUID),
		OriginalState: string(e.OriginalState), DLQReason: string(e.Reason), DetailCode: e.DetailCode, DetectedBy: e.DetectedBy,
		Label: cause.Label, Severity: string(cause.Severity), Guidance: e.Guidance(),
		OriginalReason: textOrNull(string(e.OriginalReason)), OriginalCode: textOrNull(e.OriginalCode),
		DLQTimestamp: e.At.UTC(), ResolutionStatus: string(e.ResolutionStatus), ResolutionNotes: e.ResolutionNotes,
		ResolvedAt: toUTC(e.ResolvedAt), ResolvedBy: e.ResolvedBy, TaskSnapshot: orNull(e.Snapshot), Metadata: orNull(e.Metadata),
		RecoveredAt: toUTC(e.RecoveredAt), PredecessorUUID: idOrNull(e.PredecessorUUID), CurrentTaskState: string(e.CurrentTaskState),
		CreatedAt: e.CreatedAt.UTC(), UpdatedAt: e.UpdatedAt.UTC(), HistoryHasMore: e.MoreHistory,
		FailedStep: e.FailedStep, TaskDue: fromDeadline(e.TaskDue),
	}
	for _, c := range e.History {
		out.History = append(out.History, EntryChange{
			ChangedAt: c.At.UTC(), Actor: c.Actor, Event: c.Event, FromStatus: textOrNull(string(c.From)),
			ToStatus: string(c.To), Notes: c.Notes, Metadata: orNull(c.Metadata),
		})
	}
	return out
}

// FromInvestigationQueueEntry converts a row of the investigation queue.
func FromInvestigationQueueEntry(q tasker.InvestigationQueueEntry) InvestigationQueueEntry {
	cause := tasker.CauseOf(q.Reason, q.DetailCode)
	return InvestigationQueueEntry{
		DLQEntryUUID: q.EntryUUID.String(), TaskUUID: q.TaskUUID.String(), StepUUID: idOrNull(q.StepUUID),
		OriginalState: string(q.OriginalState), DLQReason: string(q.Reason), DetailCode: q.DetailCode,
		Label: cause.Label, Severity: string(cause.Severity),
		DLQTimestamp: q.At.UTC(), MinutesInDLQ: q.MinutesInDLQ, NamespaceName: q.Namespace, TaskName: q.TaskName,
		CurrentState: string(q.CurrentState), TimeInStateMinutes: q.TimeInStateMinutes, PriorityScore: q.PriorityScore,
		RecoveredAt: toUTC(q.RecoveredAt), FailedStep: q.FailedStep,
		StepName: q.StepName, ErrorPattern: q.ErrorPattern, CaseKey: q.CaseKey.String(), Assignee: q.Assignee,
		ErrorMessage: q.ErrorMessage, CaseID: formatID(q.CaseID), Progress: string(q.Progress),
		TaskDue: fromDeadline(q.TaskDue),
	}
}
