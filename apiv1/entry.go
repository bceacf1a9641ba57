package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Entry is one investigation.
type Entry struct {
	DLQEntryUUID     string          `json:"dlq_entry_uuid"`
	TaskUUID         string          `json:"task_uuid"`
	StepUUID         *string         `json:"step_uuid"`
	OriginalState    string          `json:"original_state"`
	DLQReason        string          `json:"dlq_reason"`
	DetailCode       string          `json:"detail_code"`
	OriginalReason   *string         `json:"original_reason" doc:"The reason it was opened for, when a weightier one has replaced that since; null otherwise."`
	OriginalCode     *string         `json:"original_detail_code" doc:"The detail code it was opened for, when a weightier reason has replaced that since; null otherwise."`
	Label            string          `json:"label" doc:"The cause in a few words."`
	Severity         string          `json:"severity" enum:"critical,high,medium,low"`
	Guidance         string          `json:"guidance" doc:"What to look at first and what fixes it, as things stand now. It names the step that has failed."`
	DetectedBy       string          `json:"detected_by"`
	DLQTimestamp     time.Time       `json:"dlq_timestamp"`
	ResolutionStatus string          `json:"resolution_status"`
	ResolutionNotes  *string         `json:"resolution_notes"`
	ResolvedAt       *time.Time      `json:"resolved_at"`
	ResolvedBy       *string         `json:"resolved_by"`
	TaskSnapshot     json.RawMessage `json:"task_snapshot"`
	Metadata         json.RawMessage `json:"metadata"`
	RecoveredAt      *time.Time      `json:"recovered_at"`
	PredecessorUUID  *string         `json:"predecessor_uuid"`
	CurrentTaskState string          `json:"current_task_state" doc:"State of the task now, not when the entry was opened."`
	FailedStep       *FailedStep     `json:"failed_step" doc:"The step that has failed now; null when none has, and once the investigation has ended. step_uuid is the step it was opened for."`
	TaskDue          *Deadline       `json:"task_due" doc:"By when the task is due; null when it has no due time."`
	CreatedAt        time.Time       `json:"created_at"`
	UpdatedAt        time.Time       `json:"updated_at"`
	History          []EntryChange   `json:"history,omitempty" doc:"Only where one entry is asked for by its id: up to 500 lines."`
	HistoryHasMore   bool            `json:"history_has_more,omitempty" doc:"There is more behind these lines; ask with history_offset."`
}

// FailedStep is the step that keeps a task from going on now.
type FailedStep struct {
	StepUUID    string    `json:"step_uuid"`
	Name        string    `json:"name"`
	FailedSince time.Time `json:"failed_since"`
}

// EntryChange is one row of an entry's history, oldest first.
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
	ResolutionStatus *string         `json:"resolution_status,omitempty" enum:"manually_resolved,permanently_failed,cancelled" doc:"Ends the investigation. Needs resolution_notes."`
	ResolutionNotes  *string         `json:"resolution_notes,omitempty" maxLength:"20000"`
	ResolvedBy       *string         `json:"resolved_by,omitempty" maxLength:"255"`
	Metadata         json.RawMessage `json:"metadata,omitempty" doc:"A JSON object, merged key by key over what is there."`

	Compensate bool `json:"compensate,omitempty" doc:"With permanently_failed: what the completed steps of the task have done is undone, and its other steps are cancelled, in the same transaction."`

	UpdatedBy         string     `json:"updated_by,omitempty" maxLength:"255" doc:"Who makes this change, for the history; resolved_by when absent."`
	ExpectedUpdatedAt *time.Time `json:"expected_updated_at,omitempty" doc:"The entry's updated_at as you know it. If somebody has changed the entry since, the answer is 409."`
}

// UpdatedEntry is the answer to an update: the entry as it is now.
type UpdatedEntry struct {
	Success  bool     `json:"success"`
	Message  string   `json:"message"`
	Warnings []string `json:"warnings"`
	Entry
}

// OpenEntry is the body of POST /v1/dlq/task/{task_uuid}.
type OpenEntry struct {
	Reason    string          `json:"reason" minLength:"1" maxLength:"20000" doc:"Why a person should look at the task."`
	CreatedBy string          `json:"created_by" minLength:"1" maxLength:"255"`
	Metadata  json.RawMessage `json:"metadata,omitempty" doc:"A JSON object."`
}

// InvestigationQueueEntry is one line of the investigation queue, the most urgent first.
type InvestigationQueueEntry struct {
	DLQEntryUUID       string      `json:"dlq_entry_uuid"`
	TaskUUID           string      `json:"task_uuid"`
	StepUUID           *string     `json:"step_uuid"`
	OriginalState      string      `json:"original_state"`
	DLQReason          string      `json:"dlq_reason"`
	DetailCode         string      `json:"detail_code"`
	Label              string      `json:"label" doc:"The cause in a few words."`
	Severity           string      `json:"severity" enum:"critical,high,medium,low"`
	DLQTimestamp       time.Time   `json:"dlq_timestamp"`
	MinutesInDLQ       float64     `json:"minutes_in_dlq"`
	NamespaceName      string      `json:"namespace_name"`
	TaskName           string      `json:"task_name"`
	CurrentState       string      `json:"current_state" doc:"State of the task now."`
	TimeInStateMinutes *float64    `json:"time_in_state_minutes" doc:"When the entry was opened."`
	PriorityScore      float64     `json:"priority_score"`
	RecoveredAt        *time.Time  `json:"recovered_at"`
	StepName           string      `json:"step_name" doc:"Empty when no step failed."`
	ErrorPattern       string      `json:"error_pattern" doc:"The error of the step without ids and numbers."`
	ErrorMessage       string      `json:"error_message" doc:"The beginning of its newest failure."`
	CaseID             string      `json:"case_id" doc:"The case it belongs to; empty until that is known, within seconds."`
	Progress           string      `json:"progress" enum:"waiting,proving,failed_again,recovered" doc:"How far the repair is."`
	CaseKey            string      `json:"case_key" doc:"Deprecated: which failures were the same as version 0.1 told it."`
	Assignee           string      `json:"assignee" doc:"Who looks into it, from the metadata; empty when nobody does."`
	FailedStep         *FailedStep `json:"failed_step" doc:"The step that has failed now; null when none has. step_uuid is the step the entry was opened for."`
	TaskDue            *Deadline   `json:"task_due" doc:"By when the task is due; null when it has no due time."`
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
		ResolvedAt: utc(e.ResolvedAt), ResolvedBy: e.ResolvedBy, TaskSnapshot: orNull(e.Snapshot), Metadata: orNull(e.Metadata),
		RecoveredAt: utc(e.RecoveredAt), PredecessorUUID: idOrNull(e.PredecessorUUID), CurrentTaskState: string(e.CurrentTaskState),
		CreatedAt: e.CreatedAt.UTC(), UpdatedAt: e.UpdatedAt.UTC(), HistoryHasMore: e.MoreHistory,
		FailedStep: fromFailedStep(e.FailedStep), TaskDue: deadline(e.TaskDue),
	}
	for _, c := range e.History {
		out.History = append(out.History, EntryChange{
			ChangedAt: c.At.UTC(), Actor: c.Actor, Event: c.Event, FromStatus: textOrNull(string(c.From)),
			ToStatus: string(c.To), Notes: c.Notes, Metadata: orNull(c.Metadata),
		})
	}
	return out
}

// FromInvestigationQueueEntry converts a line of the investigation queue.
func FromInvestigationQueueEntry(q tasker.InvestigationQueueEntry) InvestigationQueueEntry {
	cause := tasker.CauseOf(q.Reason, q.DetailCode)
	return InvestigationQueueEntry{
		DLQEntryUUID: q.EntryUUID.String(), TaskUUID: q.TaskUUID.String(), StepUUID: idOrNull(q.StepUUID),
		OriginalState: string(q.OriginalState), DLQReason: string(q.Reason), DetailCode: q.DetailCode,
		Label: cause.Label, Severity: string(cause.Severity),
		DLQTimestamp: q.At.UTC(), MinutesInDLQ: q.MinutesInDLQ, NamespaceName: q.Namespace, TaskName: q.TaskName,
		CurrentState: string(q.CurrentState), TimeInStateMinutes: q.TimeInStateMinutes, PriorityScore: q.PriorityScore,
		RecoveredAt: utc(q.RecoveredAt), FailedStep: fromFailedStep(q.FailedStep),
		StepName: q.StepName, ErrorPattern: q.ErrorPattern, CaseKey: q.CaseKey.String(), Assignee: q.Assignee,
		ErrorMessage: q.ErrorMessage, CaseID: idText(q.CaseID), Progress: string(q.Progress), TaskDue: deadline(q.TaskDue),
	}
}

func fromFailedStep(f *tasker.FailedStep) *FailedStep {
	if f == nil {
		return nil
	}
	return &FailedStep{StepUUID: f.UUID.String(), Name: f.Name, FailedSince: f.Since.UTC()}
}
