package tasker

import (
	"encoding/json"
	"strings"
	"time"
)

// HoldKind identifies the origin of a [Hold].
type HoldKind string

// Hold kinds.
const (
	ManualHold  HoldKind = "manual"  // created by an operator
	BreakerHold HoldKind = "breaker" // created automatically when attempts keep failing with one cause
)

// HoldKinds lists all hold kinds.
func HoldKinds() []HoldKind { return []HoldKind{ManualHold, BreakerHold} }

// HoldState is the state of a [Hold].
type HoldState string

// Hold states.
const (
	HoldActive    HoldState = "active"    // steps of its scope are not assigned
	HoldReleasing HoldState = "releasing" // steps are released in waves
	HoldEnded     HoldState = "ended"
)

// HoldStates lists all hold states.
func HoldStates() []HoldState { return []HoldState{HoldActive, HoldReleasing, HoldEnded} }

// HoldScope selects the steps of a hold: all steps of a namespace, narrowed by each non-empty
// field.
type HoldScope struct {
	Namespace string `json:"namespace"`
	Handler   string `json:"handler" doc:"Empty: any."`
	TaskName  string `json:"task_name" doc:"Name of the template. Empty: any."`
	StepName  string `json:"step_name" doc:"Empty: any."`
}

// String formats the scope, such as "payments: handler charge, step refund > notify".
func (s HoldScope) String() string {
	var parts []string
	if s.Handler != "" {
		parts = append(parts, "handler "+s.Handler)
	}
	switch {
	case s.TaskName != "" && s.StepName != "":
		parts = append(parts, "step "+s.TaskName+" > "+s.StepName)
	case s.TaskName != "":
		parts = append(parts, "template "+s.TaskName)
	case s.StepName != "":
		parts = append(parts, "step "+s.StepName)
	}
	if len(parts) == 0 {
		return s.Namespace
	}
	return s.Namespace + ": " + strings.Join(parts, ", ")
}

// Hold prevents steps from being claimed. They stay enqueued and use no attempt; neither their
// queue timeout nor the staleness of their tasks advances. Running attempts continue.
type Hold struct {
	UUID  ID        `json:"hold_uuid"`
	Kind  HoldKind  `json:"kind" enum:"manual,breaker" doc:"breaker: created automatically because attempts kept failing with one cause."`
	State HoldState `json:"state" enum:"active,releasing,ended"`
	HoldScope
	CaseID   *ID    `json:"case_id" doc:"Case for which it was created."`
	Cause    string `json:"cause" doc:"Of a breaker: the common failure."`
	CauseKey string `json:"cause_key" doc:"Of a breaker: fingerprint of the cause."` // see package fingerprint
	Reason   string `json:"reason"`
	Owner    string `json:"owner"`
	Blocks   bool   `json:"blocks" doc:"Steps of its scope are held. False after the last wave has succeeded."`
	HoldCounts
	Released     int64      `json:"released" doc:"Steps released so far."`
	Waves        []int      `json:"waves" doc:"Steps per wave of the release."` // all remaining steps follow the last wave
	Wave         int        `json:"wave" doc:"Waves started so far."`
	WaveSince    *time.Time `json:"wave_since"`
	WaveSteps    int        `json:"wave_steps" doc:"Steps of the latest wave."`
	Probes       int        `json:"probes"`
	FailedProbes int        `json:"failed_probes"`
	NextProbeAt  *time.Time `json:"next_probe_at"`
	BeganAt      time.Time  `json:"began_at"`
	EndsAt       time.Time  `json:"ends_at" doc:"When it is released automatically."`
	WarnedAt     *time.Time `json:"warned_at" doc:"When four fifths of its time had passed."`
	EndedAt      *time.Time `json:"ended_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
}

// HoldCounts counts the steps of a hold.
type HoldCounts struct {
	Held          int64 `json:"held" doc:"Held steps. Counting stops at 100000."`
	HeldIsAtLeast bool  `json:"held_is_at_least" db:"-" doc:"There may be more."`
	InFlight      int64 `json:"in_flight" doc:"Steps released as a probe or in a wave, without an outcome yet."`
}

// HoldGroup counts the holds of one kind and state.
type HoldGroup struct {
	Kind  HoldKind
	State HoldState
	Holds int64
}

// NewHold describes a hold to create. Either Until or For is required.
type NewHold struct {
	HoldScope
	CaseID *ID // derives the scope, which must be empty, from a case
	Until  *time.Time
	For    time.Duration
	Owner  string
	Reason string
	Actor  string // empty means the owner
}

// HoldExtension changes the end of a hold. Either Until or For is required.
type HoldExtension struct {
	Until *time.Time
	For   time.Duration // from now
	Owner string        // new owner; empty leaves it unchanged
}

// HoldFilter selects and pages holds, newest first.
type HoldFilter struct {
	Namespace string `query:"namespace" flag:"namespace,n" maxLength:"128" doc:"Filter by namespace."`
	Open      bool   `query:"open" doc:"Only open holds."`
	Before    *ID    `query:"before" doc:"Page cursor: next_before of the previous page."`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
}

// HoldChange is one row of the history of a hold.
type HoldChange struct {
	At       time.Time       `json:"at"`
	Event    string          `json:"event"`
	Actor    string          `json:"actor"`
	Reason   *string         `json:"reason"`
	Metadata json.RawMessage `json:"metadata"`
}

// Events in the history of a hold.
const (
	HoldBegan          = "began"
	HoldExtended       = "extended"
	HoldWarned         = "warned" // four fifths of its time have passed
	HoldProbed         = "probed" // one step was released
	HoldProbeSucceeded = "probe_succeeded"
	HoldProbeFailed    = "probe_failed"
	HoldReleaseBegan   = "release_began"
	HoldWaveBegan      = "wave_began"
	HoldWaveFailed     = "wave_failed" // the hold is active again
	HoldRestReleased   = "rest_released"
	HoldHasEnded       = "ended"
)

// HoldRelease is a step that a hold released as a probe or in a wave.
type HoldRelease struct {
	TaskUUID   ID             `json:"task_uuid"`
	StepUUID   ID             `json:"step_uuid"`
	Wave       int            `json:"wave" doc:"From 1. 0 for a probe."`
	Fence      int64          `json:"-"`
	ReleasedAt time.Time      `json:"released_at"`
	Outcome    ReleaseOutcome `json:"outcome" enum:"succeeded,failed,no_answer,gone" doc:"Null while pending."`
	Failure    *string        `json:"failure" doc:"Failure message."`
	JudgedAt   *time.Time     `json:"judged_at"`
}

// ReleaseOutcome is the outcome of a released step.
type ReleaseOutcome string

// Release outcomes.
const (
	ReleaseSucceeded ReleaseOutcome = "succeeded"
	ReleaseFailed    ReleaseOutcome = "failed"
	ReleaseNoAnswer  ReleaseOutcome = "no_answer" // no attempt ended in time
	ReleaseGone      ReleaseOutcome = "gone"      // cancelled, or changed by an operator
)

// MarshalJSON returns null while the outcome is pending.
func (o ReleaseOutcome) MarshalJSON() ([]byte, error) { return marshalOptional(string(o)) }

// HoldDetail is a hold with its history and releases, newest first and at most [MaxHoldHistory]
// each.
type HoldDetail struct {
	Hold
	History  []HoldChange  `json:"history" doc:"Newest first, at most 100."`
	Releases []HoldRelease `json:"releases" doc:"Steps released as a probe or in a wave, newest first, at most 100."`
}

// Limits of holds.
const (
	MaxHoldTime              = 24 * time.Hour // from its start or latest extension
	MaxOpenHolds             = 100
	MaxOpenHoldsPerNamespace = MaxOpenHolds / 2
	MaxHeldCount             = 100_000
	MaxHoldHistory           = 100
)

// DefaultHoldWaves returns the default waves of a release.
func DefaultHoldWaves() []int { return []int{1, 10, 100} }
