package apiv1

import (
	"time"

	"tasker.example/tasker"
)

// Page selects a part of a list. Limit 0 means the default.
type Page struct {
	Limit  int `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
	Offset int `query:"offset" maximum:"10000000" doc:"Number of elements to skip."`
}

// HistoryPage selects a part of a history. Limit 0 means the default.
type HistoryPage struct {
	Limit  int `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"Maximum number of elements."`
	Offset int `query:"offset" maximum:"10000000" doc:"Number of elements to skip."`
}

// NamespaceQuery selects the objects of a namespace, or of all namespaces.
type NamespaceQuery struct {
	Namespace string `query:"namespace" flag:"namespace,n" maxLength:"128" doc:"Filter by namespace."`
	Page
}

// TaskQuery contains the time to wait for a task.
type TaskQuery struct {
	Wait time.Duration `query:"wait_ms" maximum:"60000" doc:"Maximum wait for the task to be settled, in milliseconds." flag:"-"`
}

// CancelTaskQuery describes the cancellation of a task.
type CancelTaskQuery struct {
	Reason      string `query:"reason" maxLength:"2000" doc:"Reason, for the history."`
	CancelledBy string `query:"cancelled_by" maxLength:"255" doc:"Actor, for the history."`
	Compensate  bool   `query:"compensate" doc:"Compensate completed steps before cancelling."`
}

// TaskSelection selects tasks without paging.
type TaskSelection struct {
	tasker.TaskFilter `without:"limit,offset,before"`
}

// RegisterTemplateQuery contains the options of a registration.
type RegisterTemplateQuery struct {
	Strict bool `query:"strict" doc:"Reject keys without effect instead of returning warnings."`
}

// ItemResultQuery pages the results of a map step.
type ItemResultQuery struct {
	From int `query:"from" maximum:"10000000" doc:"Page cursor: next of the previous page."`
}

// InboxQuery selects and pages human steps. The conditions on the assignee are alternatives.
type InboxQuery struct {
	Mine       bool      `query:"mine" doc:"Include steps assigned to the caller or to a group of the caller."`
	Assignees  []string  `query:"assignee" maxLength:"128" maxItems:"100" doc:"Include steps assigned to this person, or to group:NAME; repeatable."`
	Unassigned bool      `query:"unassigned" doc:"Include steps without an assignee."`
	Namespace  string    `query:"namespace" flag:"namespace,n" maxLength:"128" doc:"Filter by namespace."`
	Template   string    `query:"template" maxLength:"128" doc:"Filter by template."`
	DueBefore  time.Time `query:"due_before" doc:"Only steps that time out before this time."`
	Overdue    bool      `query:"overdue" doc:"Only steps whose timeout has passed."`
	After      string    `query:"after" maxLength:"100" doc:"Page cursor: next_after of the previous page."`
	Limit      int       `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
}

// EntryQuery pages the history of an investigation.
type EntryQuery struct {
	HistoryOffset int `query:"history_offset" maximum:"10000000" doc:"Number of history entries to skip." flag:"-"`
}

// RelatedQuery limits the related investigations.
type RelatedQuery struct {
	Limit int `query:"limit" minimum:"1" maximum:"100" default:"10" doc:"Maximum number of ended investigations."`
}

// EntryCountQuery describes the intervals in which investigations are counted.
type EntryCountQuery struct {
	Interval  time.Duration `query:"interval_minutes" minimum:"1" maximum:"5256" default:"60" doc:"Length of an interval."`
	Intervals int           `query:"intervals" minimum:"1" maximum:"1000" default:"24" doc:"Number of intervals, including the current one."`
}

// EntryTimesQuery describes the time range of durations.
type EntryTimesQuery struct {
	Window time.Duration `query:"minutes" minimum:"1" maximum:"5256000" default:"1440" doc:"Length of the time range, up to now."`
}

// QueueQuery selects queues.
type QueueQuery struct {
	Namespace string `query:"namespace" flag:"namespace,n" maxLength:"128" doc:"Filter by namespace."`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Maximum number of elements."`
}

// ReportFormat is the format of a report.
type ReportFormat string

// Report formats.
const (
	ReportJSON     ReportFormat = "json"
	ReportMarkdown ReportFormat = "md"
)

// ReportQuery selects the time range and the format of a report. Zero times mean no bound.
type ReportQuery struct {
	Format ReportFormat `query:"format" doc:"json, or md for Markdown."`
	From   time.Time    `query:"from" doc:"Start of the time range."`
	To     time.Time    `query:"to" doc:"End of the time range, exclusive."`
}

// TimeReportQuery selects the investigations of a report.
type TimeReportQuery struct {
	ReportQuery
	Namespace string `query:"namespace" maxLength:"128" doc:"Filter by namespace."`
}

// ScheduleQuery contains the number of firing times to return.
type ScheduleQuery struct {
	Next *int `query:"next" maximum:"100" default:"5" doc:"Number of future firing times."`
}

// ChangeQuery contains the reason and the actor of a change, for a history.
type ChangeQuery struct {
	Reason string `query:"reason" maxLength:"2000" doc:"Reason, for the history."`
	By     string `query:"by" maxLength:"255" doc:"Actor, for the history."`
}

// DeleteLimitQuery selects the limit to delete.
type DeleteLimitQuery struct {
	Kind      tasker.LimitKind `query:"kind" doc:"Kind of the limit."`
	Namespace string           `query:"namespace" maxLength:"128" doc:"Namespace of the limit; absent for the server."`
	Name      string           `query:"name" maxLength:"128" doc:"Handler, or the name that templates assign."`
	Reason    string           `query:"reason" maxLength:"2000" doc:"Reason, for the audit log."`
	By        string           `query:"by" maxLength:"255" doc:"Actor, for the audit log."`
}

// AuditQuery selects and pages the audit log.
type AuditQuery struct {
	Action string `query:"action" maxLength:"128" doc:"Filter by action, such as dlq.re_emit."`
	Before int64  `query:"before" maximum:"9007199254740992" doc:"Page cursor: audit_id of the last event. 0 starts with the newest."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Maximum number of elements."`
}

// KeyQuery selects and pages API keys.
type KeyQuery struct {
	Search  string `query:"search" maxLength:"128" doc:"Filter by name or token prefix."`
	Revoked bool   `query:"revoked" doc:"Include revoked keys."`
	Page
}

// SessionQuery selects and pages browser sessions.
type SessionQuery struct {
	Subject string `query:"subject" maxLength:"255" doc:"Filter by subject, such as user:ann."`
	Page
}

// FeedStart selects where a feed starts if it does not resume.
type FeedStart string

// Feed starts.
const (
	FeedNow       FeedStart = "now"
	FeedBeginning FeedStart = "beginning"
)

// EventQuery selects the events of a feed.
type EventQuery struct {
	Topic       string    `query:"topic" maxLength:"200" doc:"Filter by topics, comma-separated: dlq.entry.created, dlq.entry.updated, dlq.entry.recovered, dlq.entry.resolved, task.completed, task.failed, task.cancelled, step.failed."`
	From        FeedStart `query:"from" doc:"Where to start without an id to resume from: beginning, or now (default)."`
	LastEventID string    `query:"last_event_id" maxLength:"100" doc:"Resume after the event with this id, like the header Last-Event-ID."`
}

// TaskEventQuery selects the start of the stream of a task.
type TaskEventQuery struct {
	From        FeedStart `query:"from" doc:"Where to start without an id to resume from: beginning (default), or now."`
	LastEventID string    `query:"last_event_id" maxLength:"100" doc:"Resume after the event with this id, like the header Last-Event-ID."`
}
