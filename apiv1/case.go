package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Case is the investigations of one cause, which are worked on as one thing.
type Case struct {
	CaseID        string     `json:"case_id"`
	State         string     `json:"state" enum:"new,ongoing,escalating,regressed,resting,resolved"`
	StateSince    time.Time  `json:"state_since"`
	DLQReason     string     `json:"dlq_reason"`
	DetailCode    string     `json:"detail_code"`
	Label         string     `json:"label" doc:"The cause in a few words."`
	Severity      string     `json:"severity" enum:"critical,high,medium,low"`
	NamespaceName string     `json:"namespace_name"`
	TaskName      string     `json:"task_name"`
	StepName      string     `json:"step_name" doc:"Empty when no step failed."`
	ErrorType     string     `json:"error_type"`
	ErrorPattern  string     `json:"error_pattern" doc:"The error without what differs from task to task; empty when no step failed."`
	Entries       int64      `json:"entries" doc:"Open investigations of the case: the sum of the next four."`
	Waiting       int64      `json:"waiting" doc:"They wait for somebody who repairs them."`
	Proving       int64      `json:"proving" doc:"A step was repaired, and has not failed since."`
	FailedAgain   int64      `json:"failed_again" doc:"After a repair."`
	Recovered     int64      `json:"recovered" doc:"Their task went on by itself."`
	Recent        int64      `json:"recent" doc:"Of the open ones, those opened in the last five minutes."`
	Harm          float64    `json:"harm" doc:"How much the case costs: the list is in this order."`
	FirstSeenAt   time.Time  `json:"first_seen_at"`
	Oldest        *time.Time `json:"oldest" doc:"When the oldest that is open was opened."`
	Newest        *time.Time `json:"newest"`
	DLQEntryUUID  string     `json:"dlq_entry_uuid" doc:"The oldest of them; empty when none is open."`
	CaseKey       string     `json:"case_key" doc:"Deprecated: which failures were the same as version 0.1 told it, of the oldest."`
	Owner         string     `json:"owner" doc:"Empty when nobody has taken it."`
	OwnedUntil    *time.Time `json:"owned_until"`
	SnoozedUntil  *time.Time `json:"snoozed_until" doc:"It rests until then, or until more than snooze_above are open."`
	SnoozeAbove   *int64     `json:"snooze_above"`
	FixedIn       string     `json:"fixed_in" doc:"The version of the worker in which the cause is repaired."`
	ResolvedAt    *time.Time `json:"resolved_at"`
	MergedInto    string     `json:"merged_into,omitempty" doc:"The case that its investigations belong to since it was merged."`
	UpdatedAt     time.Time  `json:"updated_at"`
}

// CaseList is a page of cases, those that cost most first.
type CaseList struct {
	Cases        []Case     `json:"cases"`
	HasMore      bool       `json:"has_more" doc:"There are more cases behind these; ask with offset."`
	TotalCases   int64      `json:"total_cases" doc:"Of the filter with open investigations, all pages together."`
	TotalEntries int64      `json:"total_entries" doc:"Open investigations of all these cases."`
	TotalRecent  int64      `json:"total_recent" doc:"Of them, those opened in the last five minutes."`
	Unclassified int64      `json:"unclassified" doc:"Open investigations whose case is not known yet. They follow within seconds."`
	OldestEntry  *time.Time `json:"oldest_entry" doc:"When the oldest of them was opened."`
}

// CaseDetail is a case with what is known of its investigations.
type CaseDetail struct {
	Case
	Fingerprints []tasker.CaseFingerprint  `json:"fingerprints" doc:"At most 100."`
	Samples      []tasker.CaseSample       `json:"samples" doc:"The newest open failures, at most 20."`
	Spread       []tasker.CaseDistribution `json:"spread" doc:"What differs among the newest 1,000 open investigations."`
	Ended        map[string]int64          `json:"ended" doc:"How the newest 1000 that have ended did, by resolution_status."`
	Last         []EndedEntry              `json:"last" doc:"The newest of those that have ended."`
	Elsewhere    []tasker.RelatedCase      `json:"elsewhere" doc:"Other open cases with the same error."`
	History      []CaseChange              `json:"history" doc:"Newest first, at most 200."`
}

// CaseChange is one line of the history of a case.
type CaseChange struct {
	ChangedAt time.Time       `json:"changed_at"`
	Event     string          `json:"event" enum:"opened,state_changed,owned,released,snoozed,woken,noted,fixed_in,merged,unmerged,split"`
	Actor     string          `json:"actor"`
	Notes     string          `json:"notes"`
	Metadata  json.RawMessage `json:"metadata"`
}

// CaseWhy says why the investigations of a case are one.
type CaseWhy struct {
	CaseID       string                   `json:"case_id"`
	Parts        []CasePart               `json:"parts" doc:"What all of them have in common."`
	Looked       int                      `json:"looked" doc:"How many messages were looked at, the newest."`
	Rules        []string                 `json:"rules" doc:"The rules that decided; docs/concepts/fingerprints.md lists them."`
	Masks        []tasker.CaseVariable    `json:"masks" doc:"What does not count in the message, in the order of the text."`
	Fingerprints []tasker.CaseFingerprint `json:"fingerprints"`
}

// CasePart is a part of the fingerprint of a case.
type CasePart struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// CaseChanges is what differs between the failures of a case and the successes of the same
// step, who is hit, and until when.
type CaseChanges struct {
	CaseID       string                  `json:"case_id"`
	FirstFailure *time.Time              `json:"first_failure" doc:"Of those that are open."`
	LastSuccess  *tasker.CaseSuccess     `json:"last_success" doc:"Of the same step before that; null when none of the tasks that were looked at had one."`
	LookedAt     int                     `json:"looked_at" doc:"Tasks of the template that were looked at: at most 500 before the first that failed, and as many since."`
	Failures     int                     `json:"failures" doc:"How many were compared, the newest, at most 1,000."`
	Successes    int                     `json:"successes" doc:"How many they were compared with."`
	Since        bool                    `json:"since" doc:"These successes are of after the first failure; otherwise of before, because there are fewer than 30 since."`
	Differences  []tasker.CaseDifference `json:"differences" doc:"What failures have far more often than successes, the most telling first; at most 5. It is evidence, and no verdict. Empty: no difference was found, or fewer than 30 could be compared."`
	Began        []tasker.RelatedCase    `json:"began" doc:"Other open cases that were first seen within two minutes of this one."`
	Impact       CaseImpact              `json:"impact"`
}

// CaseImpact is who waits for a case, among its newest open investigations.
type CaseImpact struct {
	Tasks    int64      `json:"tasks" doc:"How many were looked at, at most 2,000."`
	Steps    int64      `json:"steps" doc:"Steps of these tasks that wait, besides those that failed."`
	Deadline *time.Time `json:"deadline" doc:"The earliest of these tasks by max_duration_minutes; null when none has one."`
	DueTask  string     `json:"due_task" doc:"The task of that deadline."`
}

// FromCaseChanges converts what differs between failures and successes.
func FromCaseChanges(c tasker.CaseComparison) CaseChanges {
	return CaseChanges{
		CaseID: c.Case.ID.String(), FirstFailure: utc(c.FirstFailure), LastSuccess: c.LastSuccess, LookedAt: c.TasksExamined,
		Failures: c.Failures, Successes: c.Successes, Since: c.Since, Differences: orEmpty(c.Differences), Began: orEmpty(c.CoincidentCases),
		Impact: CaseImpact{Tasks: c.Impact.Tasks, Steps: c.Impact.Steps, Deadline: utc(c.Impact.Deadline), DueTask: idText(c.Impact.DueTask)},
	}
}

// UpdateCase changes a case. What is left out stays as it is.
type UpdateCase struct {
	Owner             *string    `json:"owner,omitempty" maxLength:"255" doc:"Who looks after it; empty: nobody any more."`
	OwnedForMinutes   int        `json:"owned_for_minutes,omitempty" minimum:"1" maximum:"10080" doc:"With owner: how long; 4 hours if left out."`
	SnoozeUntil       *time.Time `json:"snooze_until,omitempty" doc:"It rests until then, at most 7 days."`
	SnoozeAbove       *int64     `json:"snooze_above,omitempty" minimum:"0" doc:"With snooze_until: or until more investigations are open."`
	Wake              bool       `json:"wake,omitempty" doc:"It rests no longer."`
	FixedIn           *string    `json:"fixed_in,omitempty" maxLength:"255" doc:"The version of the worker in which the cause is repaired: failures of older ones are no regression. Empty: none."`
	Notes             *string    `json:"notes,omitempty" maxLength:"10000"`
	Actor             string     `json:"actor,omitempty" maxLength:"255" doc:"Who says so, for the history."`
	ExpectedUpdatedAt *time.Time `json:"expected_updated_at,omitempty" doc:"Change it only if it was last updated just then; otherwise the answer is a CONFLICT."`
}

// MergeCase has the investigations of a case belong to another one.
type MergeCase struct {
	Into   string `json:"into" format:"uuid" doc:"The case that they belong to from now on."`
	Reason string `json:"reason" minLength:"1" maxLength:"2000"`
	Actor  string `json:"actor,omitempty" maxLength:"255"`
}

// UnmergeCase takes a merge back.
type UnmergeCase struct {
	Reason string `json:"reason" minLength:"1" maxLength:"2000"`
	Actor  string `json:"actor,omitempty" maxLength:"255"`
}

// SplitCase takes failures out of a case.
type SplitCase struct {
	Field   string `json:"field,omitempty" enum:"error_message,error_type,worker_version,task_version" doc:"error_message contains the literal, the others are equal to it; error_message if left out."`
	Literal string `json:"literal" minLength:"1" maxLength:"200"`
	Reason  string `json:"reason" minLength:"1" maxLength:"2000"`
	Actor   string `json:"actor,omitempty" maxLength:"255"`
}

// CaseSplit says what a split is about.
type CaseSplit struct {
	CaseID  string `json:"case_id"`
	Entries int64  `json:"entries" doc:"Open investigations that leave the case within seconds."`
}

// RelatedEntries is what is known of the other investigations of the same case.
type RelatedEntries struct {
	CaseID      string           `json:"case_id" doc:"Empty until the case is known, within seconds."`
	CaseKey     string           `json:"case_key" doc:"Deprecated: which failures were the same as version 0.1 told it."`
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

// EntryTimes is how long the investigations that ended since an instant took.
type EntryTimes struct {
	Since   time.Time   `json:"since"`
	Entries int64       `json:"entries" doc:"Investigations that were looked at, the newest, at most 10,000."`
	Phases  []PhaseTime `json:"phases"`
}

// PhaseTime is how long a phase took. Each case counts once, with the median of its investigations.
type PhaseTime struct {
	Phase      string  `json:"phase" enum:"acknowledge,own,repair,prove,resolve" doc:"acknowledge: until a person did anything about it or its case. own: until somebody had the case. repair: until the last repair. prove: from there until it ended, where the repair was proved. resolve: until it ended."`
	Cases      int64   `json:"cases" doc:"That have come through it."`
	P50Seconds float64 `json:"p50_seconds"`
	P95Seconds float64 `json:"p95_seconds"`
}

// FromEntryTimes converts how long investigations took.
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
		FirstSeenAt: c.FirstSeen.UTC(), Oldest: utc(c.Oldest), Newest: utc(c.Newest), DLQEntryUUID: idText(c.EntryUUID), CaseKey: idText(c.CaseKey),
		Owner: c.Owner, OwnedUntil: utc(c.OwnedUntil), SnoozedUntil: utc(c.SnoozedUntil), SnoozeAbove: c.SnoozeThreshold, FixedIn: c.FixedIn,
		ResolvedAt: utc(c.ResolvedAt), MergedInto: idText(c.MergedInto), UpdatedAt: c.UpdatedAt.UTC(),
	}
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func idText(id *tasker.ID) string {
	if id == nil {
		return ""
	}
	return id.String()
}

// FromCases converts a page of cases and the totals of all pages.
func FromCases(page []Case, more bool, t tasker.CaseTotals) CaseList {
	return CaseList{
		Cases: page, HasMore: more, TotalCases: t.Cases, TotalEntries: t.Entries, TotalRecent: t.Recent, Unclassified: t.Unclassified, OldestEntry: utc(t.Oldest),
	}
}

// FromCaseDetail converts a case with what is known of it.
func FromCaseDetail(d tasker.CaseDetail) CaseDetail {
	out := CaseDetail{
		Case: FromCase(d.Case), Fingerprints: orEmpty(d.Fingerprints), Samples: orEmpty(d.Samples), Spread: orEmpty(d.Spread),
		Ended: map[string]int64{}, Last: endedEntries(d.LastResolved), Elsewhere: orEmpty(d.RelatedCases), History: []CaseChange{},
	}
	for status, n := range d.Ended {
		out.Ended[string(status)] = n
	}
	for _, h := range d.History {
		out.History = append(out.History, CaseChange{ChangedAt: h.At.UTC(), Event: h.Event, Actor: h.Actor, Notes: textOf(h.Notes), Metadata: h.Metadata})
	}
	return out
}

// FromCaseWhy converts why the investigations of a case are one.
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

// FromRelated converts what is known of related investigations.
func FromRelated(k tasker.RelatedEntries) RelatedEntries {
	out := RelatedEntries{CaseID: idText(k.Case), CaseKey: k.CaseKey.String(), Open: k.Open, OpenHasMore: k.More, Ended: map[string]int64{}, Last: endedEntries(k.Last)}
	for status, n := range k.Counts {
		out.Ended[string(status)] = n
	}
	return out
}

func endedEntries(list []tasker.EndedEntry) []EndedEntry {
	out := []EndedEntry{}
	for _, e := range list {
		out = append(out, EndedEntry{
			DLQEntryUUID: e.EntryUUID.String(), TaskUUID: e.TaskUUID.String(), ResolutionStatus: string(e.Status), ResolutionNotes: e.Notes,
			ResolvedAt: e.At.UTC(), ResolvedBy: e.By, MinutesOpen: e.Open.Minutes(),
		})
	}
	return out
}
