package apiv1

import (
	"time"

	"tasker.example/tasker"
)

// CaseList is a page of cases, highest impact first.
type CaseList struct {
	Cases   []tasker.Case `json:"cases"`
	HasMore bool          `json:"has_more" doc:"More cases follow. Use offset to read them."`
	tasker.CaseTotals
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
