package apiv1

import (
	"time"

	"tasker.example/tasker"
)

// Case is the open investigations of the same failure: of one template, one reason, one
// step, and one error pattern.
type Case struct {
	CaseKey       string    `json:"case_key"`
	DLQReason     string    `json:"dlq_reason"`
	DetailCode    string    `json:"detail_code"`
	Label         string    `json:"label" doc:"The cause in a few words."`
	Severity      string    `json:"severity" enum:"critical,high,medium,low"`
	NamespaceName string    `json:"namespace_name"`
	TaskName      string    `json:"task_name"`
	StepName      string    `json:"step_name" doc:"Empty when no step failed."`
	ErrorPattern  string    `json:"error_pattern" doc:"The error of the step without ids and numbers; empty when no step failed."`
	Entries       int64     `json:"entries" doc:"Open investigations of the case."`
	Recovered     int64     `json:"recovered" doc:"Of them, those whose task went on by itself."`
	Oldest        time.Time `json:"oldest"`
	Newest        time.Time `json:"newest"`
	DLQEntryUUID  string    `json:"dlq_entry_uuid" doc:"The oldest of them."`
}

// CaseList is a page of cases, the most urgent first.
type CaseList struct {
	Cases        []Case     `json:"cases"`
	HasMore      bool       `json:"has_more" doc:"There are more cases behind these; ask with offset."`
	TotalCases   int64      `json:"total_cases" doc:"Of the filter, all pages together."`
	TotalEntries int64      `json:"total_entries" doc:"Open investigations of all these cases."`
	OldestEntry  *time.Time `json:"oldest_entry" doc:"When the oldest of them was opened."`
}

// RelatedEntries is what is known of the other investigations of the same case.
type RelatedEntries struct {
	CaseKey     string           `json:"case_key"`
	Open        int64            `json:"open" doc:"Other investigations of the case that are open; at most 1000 are counted."`
	OpenHasMore bool             `json:"open_has_more" doc:"There are more than were counted."`
	Ended       map[string]int64 `json:"ended" doc:"How the newest 1000 that have ended did, by resolution_status."`
	Last        []EndedEntry     `json:"last" doc:"The newest of those that have ended."`
}

// EndedEntry is how one investigation ended.
type EndedEntry struct {
	DLQEntryUUID     string    `json:"dlq_entry_uuid"`
	TaskUUID         string    `json:"task_uuid"`
	ResolutionStatus string    `json:"resolution_status"`
	ResolutionNotes  string    `json:"resolution_notes"`
	ResolvedAt       time.Time `json:"resolved_at"`
	ResolvedBy       string    `json:"resolved_by"`
	MinutesOpen      float64   `json:"minutes_open"`
}

// EntryCount counts the investigations that were opened and that ended in an interval.
type EntryCount struct {
	From   time.Time `json:"from"`
	Opened int64     `json:"opened"`
	Ended  int64     `json:"ended"`
}

// FromCase converts a case.
func FromCase(c tasker.Case) Case {
	cause := tasker.CauseOf(c.Reason, c.DetailCode)
	return Case{
		CaseKey: c.Key.String(), DLQReason: string(c.Reason), DetailCode: c.DetailCode, Label: cause.Label, Severity: string(cause.Severity),
		NamespaceName: c.Namespace, TaskName: c.TaskName, StepName: c.StepName, ErrorPattern: c.ErrorPattern,
		Entries: c.Entries, Recovered: c.Recovered, Oldest: c.Oldest.UTC(), Newest: c.Newest.UTC(), DLQEntryUUID: c.EntryUUID.String(),
	}
}

// FromCases converts a page of cases and the totals of all pages.
func FromCases(page []Case, more bool, t tasker.CaseTotals) CaseList {
	return CaseList{Cases: page, HasMore: more, TotalCases: t.Cases, TotalEntries: t.Entries, OldestEntry: utc(t.Oldest)}
}

// FromRelated converts what is known of related investigations.
func FromRelated(k tasker.RelatedEntries) RelatedEntries {
	out := RelatedEntries{CaseKey: k.Case.String(), Open: k.Open, OpenHasMore: k.More, Ended: map[string]int64{}, Last: []EndedEntry{}}
	for status, n := range k.Counts {
		out.Ended[string(status)] = n
	}
	for _, e := range k.Last {
		out.Last = append(out.Last, EndedEntry{
			DLQEntryUUID: e.EntryUUID.String(), TaskUUID: e.TaskUUID.String(), ResolutionStatus: string(e.Status), ResolutionNotes: e.Notes,
			ResolvedAt: e.At.UTC(), ResolvedBy: e.By, MinutesOpen: e.Open.Minutes(),
		})
	}
	return out
}

// FromEntryCount converts the counts of one interval.
func FromEntryCount(c tasker.EntryCount) EntryCount {
	return EntryCount{From: c.From.UTC(), Opened: c.Opened, Ended: c.Ended}
}
