package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Case groups the investigations with the same cause.
type Case struct {
	CaseID        string     `json:"case_id"`
	State         string     `json:"state" enum:"new,ongoing,escalating,regressed,resting,resolved"`
	StateSince    time.Time  `json:"state_since"`
	DLQReason     string     `json:"dlq_reason"`
	DetailCode    string     `json:"detail_code"`
	Label         string     `json:"label" doc:"Short description of the cause."`
	Severity      string     `json:"severity" enum:"critical,high,medium,low"`
	NamespaceName string     `json:"namespace_name"`
	TaskName      string     `json:"task_name"`
	StepName      string     `json:"step_name" doc:"Empty if no step failed."`
	ErrorType     string     `json:"error_type"`
	ErrorPattern  string     `json:"error_pattern" doc:"Error text without task-specific values. Empty if no step failed."`
	Entries       int64      `json:"entries" doc:"Open investigations: the sum of the next four."`
	Waiting       int64      `json:"waiting" doc:"Waiting for a repair."`
	Proving       int64      `json:"proving" doc:"Repaired, and not failed since."`
	FailedAgain   int64      `json:"failed_again" doc:"Failed again after a repair."`
	Recovered     int64      `json:"recovered" doc:"The task continued automatically."`
	Recent        int64      `json:"recent" doc:"Open investigations opened in the last five minutes."`
	Harm          float64    `json:"harm" doc:"Estimated impact. Lists are sorted by it."`
	FirstSeenAt   time.Time  `json:"first_seen_at"`
	Oldest        *time.Time `json:"oldest" doc:"When the oldest open investigation was opened."`
	Newest        *time.Time `json:"newest"`
	DLQEntryUUID  string     `json:"dlq_entry_uuid" doc:"The oldest open investigation, or empty."`
	CaseKey       string     `json:"case_key" doc:"Deprecated: failure key of version 0.1, of the oldest investigation."`
	Owner         string     `json:"owner" doc:"Empty if it has no owner."`
	OwnedUntil    *time.Time `json:"owned_until"`
	SnoozedUntil  *time.Time `json:"snoozed_until" doc:"End of the snooze. It ends earlier if more than snooze_above investigations are open."`
	SnoozeAbove   *int64     `json:"snooze_above"`
	FixedIn       string     `json:"fixed_in" doc:"Worker version with the fix."`
	ResolvedAt    *time.Time `json:"resolved_at"`
	MergedInto    string     `json:"merged_into,omitempty" doc:"Case that owns its investigations since a merge."`
	UpdatedAt     time.Time  `json:"updated_at"`
}

// CaseList is a page of cases, highest impact first.
type CaseList struct {
	Cases        []Case     `json:"cases"`
	HasMore      bool       `json:"has_more" doc:"More cases follow. Use offset to read them."`
	TotalCases   int64      `json:"total_cases" doc:"All matching cases with open investigations."`
	TotalEntries int64      `json:"total_entries" doc:"Open investigations of these cases."`
	TotalRecent  int64      `json:"total_recent" doc:"Of these, opened in the last five minutes."`
	Unclassified int64      `json:"unclassified" doc:"Open investigations without a case yet. They are classified within seconds."`
	OldestEntry  *time.Time `json:"oldest_entry" doc:"When the oldest open investigation was opened."`
}

// CaseDetail is a case with details of its investigations.
type CaseDetail struct {
	Case
	Fingerprints []tasker.CaseFingerprint  `json:"fingerprints" doc:"At most 100."`
	Samples      []tasker.CaseSample       `json:"samples" doc:"The newest open failures, at most 20."`
	Spread       []tasker.CaseDistribution `json:"spread" doc:"Distribution of properties among the newest 1,000 open investigations."`
	Ended        map[string]int64          `json:"ended" doc:"The newest 1000 ended investigations by resolution_status."`
	Last         []EndedEntry              `json:"last" doc:"The latest ended investigations."`
	Elsewhere    []tasker.RelatedCase      `json:"elsewhere" doc:"Other open cases with the same error."`
	History      []CaseChange              `json:"history" doc:"Newest first, at most 200."`
}

// CaseChange is one row of the history of a case.
type CaseChange struct {
	ChangedAt time.Time       `json:"changed_at"`
	Event     string          `json:"event" enum:"opened,state_changed,owned,released,snoozed,woken,noted,fixed_in,merged,unmerged,split"`
	Actor     string          `json:"actor"`
	Notes     string          `json:"notes"`
	Metadata  json.RawMessage `json:"metadata"`
}

// CaseWhy explains why investigations share a case.
type CaseWhy struct {
	CaseID       string                   `json:"case_id"`
	Parts        []CasePart               `json:"parts" doc:"Properties that all of them share."`
	Looked       int                      `json:"looked" doc:"Number of examined messages, newest first."`
	Rules        []string                 `json:"rules" doc:"Normalization rules that matched. See docs/concepts/fingerprints.md."`
	Masks        []tasker.CaseVariable    `json:"masks" doc:"Ignored parts of the message, in the order of the text."`
	Fingerprints []tasker.CaseFingerprint `json:"fingerprints"`
}

// CasePart is a part of the fingerprint of a case.
type CasePart struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// CaseChanges compares the failures of a case with the successes of the same step, and shows the
// impact.
type CaseChanges struct {
	CaseID       string                  `json:"case_id"`
	FirstFailure *time.Time              `json:"first_failure" doc:"Of the open investigations."`
	LastSuccess  *tasker.CaseSuccess     `json:"last_success" doc:"Of the same step before that. Null if the examined tasks had none."`
	LookedAt     int                     `json:"looked_at" doc:"Examined tasks of the template: at most 500 before the first failure and 500 since."`
	Failures     int                     `json:"failures" doc:"Compared failures, newest first, at most 1,000."`
	Successes    int                     `json:"successes" doc:"Compared successes."`
	Since        bool                    `json:"since" doc:"The successes are from after the first failure. False: from before, because there are fewer than 30 since."`
	Differences  []tasker.CaseDifference `json:"differences" doc:"Values that are far more frequent among failures than successes, most significant first, at most 5. They are evidence, not a conclusion. Empty if there is no difference or fewer than 30 attempts could be compared."`
	Began        []tasker.RelatedCase    `json:"began" doc:"Other open cases first seen within two minutes of this one."`
	Impact       CaseImpact              `json:"impact"`
}

// CaseImpact summarizes the work blocked by the newest open investigations of a case.
type CaseImpact struct {
	Tasks    int64      `json:"tasks" doc:"Examined tasks, at most 2,000."`
	Steps    int64      `json:"steps" doc:"Unfinished steps of these tasks, without the failed ones."`
	Deadline *time.Time `json:"deadline" doc:"Earliest end of max_duration_minutes of these tasks, or null."`
	DueTask  string     `json:"due_task" doc:"Task with that deadline."`
}

// FromCaseChanges converts a comparison.
func FromCaseChanges(c tasker.CaseComparison) CaseChanges {
	return CaseChanges{
		CaseID: c.Case.ID.String(), FirstFailure: toUTC(c.FirstFailure), LastSuccess: c.LastSuccess,
		LookedAt: c.TasksExamined,
		Failures: c.Failures, Successes: c.Successes, Since: c.Since, Differences: orEmpty(c.Differences), Began: orEmpty(c.CoincidentCases),
		Impact: CaseImpact{Tasks: c.Impact.Tasks, Steps: c.Impact.Steps, Deadline: toUTC(c.Impact.Deadline), DueTask: formatID(c.Impact.DueTask)},
	}
}

// UpdateCase changes a case. Absent fields are left unchanged.
type UpdateCase struct {
	Owner             *string    `json:"owner,omitempty" maxLength:"255" doc:"New owner. Empty removes the owner."`
	OwnedForMinutes   int        `json:"owned_for_minutes,omitempty" minimum:"1" maximum:"10080" doc:"With owner: duration. Default: 4 hours."`
	SnoozeUntil       *time.Time `json:"snooze_until,omitempty" doc:"Snoozes the case until then, at most 7 days."`
	SnoozeAbove       *int64     `json:"snooze_above,omitempty" minimum:"0" doc:"With snooze_until: the snooze also ends when more investigations are open."`
	Wake              bool       `json:"wake,omitempty" doc:"Ends the snooze."`
	FixedIn           *string    `json:"fixed_in,omitempty" maxLength:"255" doc:"Worker version with the fix: failures of older versions are not regressions. Empty removes it."`
	Notes             *string    `json:"notes,omitempty" maxLength:"10000"`
	Actor             string     `json:"actor,omitempty" maxLength:"255" doc:"Actor for the history."`
	ExpectedUpdatedAt *time.Time `json:"expected_updated_at,omitempty" doc:"Expected updated_at. A different value is a CONFLICT." flag:"if-unchanged-since" usage:"fail if the case changed since this updated_at"`
}

// MergeCase merges a case into another one.
type MergeCase struct {
	Into   string `json:"into" format:"uuid" doc:"Case to merge into." flag:"into" usage:"target case (required)"`
	Reason string `json:"reason" minLength:"1" maxLength:"2000" flag:"reason,r"`
	Actor  string `json:"actor,omitempty" maxLength:"255"`
}

// UnmergeCase reverts a merge.
type UnmergeCase struct {
	Reason string `json:"reason" minLength:"1" maxLength:"2000" flag:"reason,r"`
	Actor  string `json:"actor,omitempty" maxLength:"255"`
}

// SplitCase moves failures out of a case.
type SplitCase struct {
	Field   string `json:"field,omitempty" enum:"error_message,error_type,worker_version,task_version" doc:"error_message contains the literal, the other fields equal it. Default: error_message."`
	Literal string `json:"literal" minLength:"1" maxLength:"200" flag:"literal" usage:"exact text (required)" why:"it is the text that distinguishes the failures"`
	Reason  string `json:"reason" minLength:"1" maxLength:"2000" flag:"reason,r"`
	Actor   string `json:"actor,omitempty" maxLength:"255"`
}

// CaseSplit is the result of a split.
type CaseSplit struct {
	CaseID  string `json:"case_id"`
	Entries int64  `json:"entries" doc:"Open investigations that will leave the case within seconds."`
}

// RelatedEntries counts the other investigations of the same case.
type RelatedEntries struct {
	CaseID      string           `json:"case_id" doc:"Empty until the failure is classified, within seconds."`
	CaseKey     string           `json:"case_key" doc:"Deprecated: failure key of version 0.1."`
	Open        int64            `json:"open" doc:"Other open investigations of the case. Counting stops at 1000."`
	OpenHasMore bool             `json:"open_has_more" doc:"There may be more."`
	Ended       map[string]int64 `json:"ended" doc:"The newest 1000 ended investigations by resolution_status."`
	Last        []EndedEntry     `json:"last" doc:"The latest ended investigations."`
}

// EndedEntry is the outcome of an ended investigation.
type EndedEntry struct {
	DLQEntryUUID     string    `json:"dlq_entry_uuid"`
	TaskUUID         string    `json:"task_uuid"`
	ResolutionStatus string    `json:"resolution_status"`
	ResolutionNotes  string    `json:"resolution_notes"`
	ResolvedAt       time.Time `json:"resolved_at"`
	ResolvedBy       string    `json:"resolved_by"`
	MinutesOpen      float64   `json:"minutes_open"`
}

// EntryTimes contains the durations of the investigations that ended after since.
type EntryTimes struct {
	Since   time.Time   `json:"since"`
	Entries int64       `json:"entries" doc:"Examined investigations, newest first, at most 10,000."`
	Phases  []PhaseTime `json:"phases"`
}

// PhaseTime contains the median and the 95th percentile of the duration of a phase. Each case
// counts once, with the median of its investigations.
type PhaseTime struct {
	Phase      string  `json:"phase" enum:"acknowledge,own,repair,prove,resolve" doc:"acknowledge: until the first operator action on it or its case. own: until the case had an owner. repair: until the last repair. prove: from the repair to the end, if the repair was verified. resolve: until it ended."`
	Cases      int64   `json:"cases" doc:"Cases that completed the phase."`
	P50Seconds float64 `json:"p50_seconds"`
	P95Seconds float64 `json:"p95_seconds"`
}

// FromEntryTimes converts resolution times.
func FromEntryTimes(t tasker.ResolutionTimes) EntryTimes {
	out := EntryTimes{Since: t.Since.UTC(), Entries: t.Entries}
	for _, p := range t.Times {
		out.Phases = append(out.Phases, PhaseTime{Phase: string(p.Phase), Cases: p.Cases, P50Seconds: p.P50.Seconds(), P95Seconds: p.P95.Seconds()})
	}
	return out
}

// FromCase converts a case.
func FromCase(c tasker.Case) Case {
	cause := tasker.CauseOf(c.Reason, c.DetailCode)
	return Case{
		CaseID: c.ID.String(), State: string(c.State), StateSince: c.StateSince.UTC(),
		DLQReason: string(c.Reason), DetailCode: c.DetailCode, Label: cause.Label, Severity: string(cause.Severity),
		NamespaceName: c.Namespace, TaskName: c.TaskName, StepName: c.StepName, ErrorType: c.ErrorType, ErrorPattern: c.ErrorPattern,
		Entries: c.Entries, Waiting: c.Waiting, Proving: c.Proving, FailedAgain: c.FailedAgain, Recovered: c.Recovered, Recent: c.Recent, Harm: c.Harm,
		FirstSeenAt: c.FirstSeen.UTC(), Oldest: toUTC(c.Oldest), Newest: toUTC(c.Newest), DLQEntryUUID: formatID(c.EntryUUID), CaseKey: formatID(c.CaseKey),
		Owner: c.Owner, OwnedUntil: toUTC(c.OwnedUntil), SnoozedUntil: toUTC(c.SnoozedUntil), SnoozeAbove: c.SnoozeThreshold, FixedIn: c.FixedIn,
		ResolvedAt: toUTC(c.ResolvedAt), MergedInto: formatID(c.MergedInto), UpdatedAt: c.UpdatedAt.UTC(),
	}
}

func textOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func formatID(id *tasker.ID) string {
	if id == nil {
		return ""
	}
	return id.String()
}

// FromCases converts a page of cases and the totals of all pages.
func FromCases(page []Case, more bool, t tasker.CaseTotals) CaseList {
	return CaseList{
		Cases: page, HasMore: more, TotalCases: t.Cases, TotalEntries: t.Entries, TotalRecent: t.Recent, Unclassified: t.Unclassified, OldestEntry: toUTC(t.Oldest),
	}
}

// FromCaseDetail converts a case with its details.
func FromCaseDetail(d tasker.CaseDetail) CaseDetail {
	return CaseDetail{
		Case: FromCase(d.Case), Fingerprints: orEmpty(d.Fingerprints), Samples: orEmpty(d.Samples), Spread: orEmpty(d.Spread),
		Ended: toTextKeys(d.Ended), Last: convert(d.LastResolved, fromEndedEntry), Elsewhere: orEmpty(d.RelatedCases),
		History: convert(d.History, func(h tasker.CaseChange) CaseChange {
			return CaseChange{ChangedAt: h.At.UTC(), Event: h.Event, Actor: h.Actor, Notes: textOrEmpty(h.Notes), Metadata: h.Metadata}
		}),
	}
}

// FromCaseWhy converts the explanation of a case.
func FromCaseWhy(w tasker.CaseGrouping) CaseWhy {
	c := w.Case
	return CaseWhy{
		CaseID: c.ID.String(), Looked: w.MessagesExamined, Rules: orEmpty(w.Rules), Masks: orEmpty(w.Masks), Fingerprints: orEmpty(w.Fingerprints),
		Parts: []CasePart{
			{"namespace", c.Namespace}, {"template", c.TaskName}, {"step", c.StepName}, {"reason", string(c.Reason)}, {"detail_code", c.DetailCode},
			{"error_type", c.ErrorType}, {"error_pattern", c.ErrorPattern},
		},
	}
}

// FromRelated converts the related investigations.
func FromRelated(k tasker.RelatedEntries) RelatedEntries {
	return RelatedEntries{
		CaseID: formatID(k.Case), CaseKey: k.CaseKey.String(), Open: k.Open, OpenHasMore: k.More, Ended: toTextKeys(k.Counts),
		Last: convert(k.Last, fromEndedEntry),
	}
}

func fromEndedEntry(e tasker.EndedEntry) EndedEntry {
	return EndedEntry{
		DLQEntryUUID: e.EntryUUID.String(), TaskUUID: e.TaskUUID.String(), ResolutionStatus: string(e.Status), ResolutionNotes: e.Notes,
		ResolvedAt: e.At.UTC(), ResolvedBy: e.By, MinutesOpen: e.Open.Minutes(),
	}
}
