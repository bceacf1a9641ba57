package apiv1

import (
	"time"

	"tasker.example/tasker"
)

// CaseList is a page of cases, highest impact first.
type CaseList struct {
	Cases        []tasker.Case `json:"cases"`
	HasMore      bool          `json:"has_more" doc:"More cases follow. Use offset to read them."`
	TotalCases   int64         `json:"total_cases" doc:"All matching cases with open investigations."`
	TotalEntries int64         `json:"total_entries" doc:"Open investigations of these cases."`
	TotalRecent  int64         `json:"total_recent" doc:"Of these, opened in the last five minutes."`
	Unclassified int64         `json:"unclassified" doc:"Open investigations without a case yet. They are classified within seconds."`
	OldestEntry  *time.Time    `json:"oldest_entry" doc:"When the oldest open investigation was opened."`
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
	Impact       tasker.CaseImpact       `json:"impact"`
}

// FromCaseChanges converts a comparison.
func FromCaseChanges(c tasker.CaseComparison) CaseChanges {
	return CaseChanges{
		CaseID: c.Case.ID.String(), FirstFailure: c.FirstFailure, LastSuccess: c.LastSuccess,
		LookedAt: c.TasksExamined,
		Failures: c.Failures, Successes: c.Successes, Since: c.Since, Differences: orEmpty(c.Differences), Began: orEmpty(c.CoincidentCases),
		Impact: c.Impact,
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

// FromCases converts a page of cases and the totals of all pages.
func FromCases(page []tasker.Case, more bool, t tasker.CaseTotals) CaseList {
	return CaseList{
		Cases: page, HasMore: more, TotalCases: t.Cases, TotalEntries: t.Entries, TotalRecent: t.Recent, Unclassified: t.Unclassified, OldestEntry: t.Oldest,
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
