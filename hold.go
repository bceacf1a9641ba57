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
	Namespace string
	Handler   string
	TaskName  string // of the template
	StepName  string
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
	UUID ID
	Kind HoldKind
	HoldScope
	CaseID       *ID    // case for which it was created
	Cause        string // of a breaker: the common failure
	CauseKey     string // fingerprint of Cause, see package fingerprint
	Reason       string
	Owner        string
	State        HoldState
	Blocks       bool  // false while the remaining steps are released after the last wave
	Waves        []int // steps per wave; all remaining steps follow the last wave
	Wave         int   // waves started so far
	WaveSince    *time.Time
	WaveSteps    int
	BeganAt      time.Time
	EndsAt       time.Time // when it is released automatically
	WarnedAt     *time.Time
	NextProbeAt  *time.Time
	Probes       int
	FailedProbes int
	Released     int64 // steps released so far
	EndedAt      *time.Time
	UpdatedAt    time.Time
	HoldCounts
}

// HoldCounts counts the steps of a hold.
type HoldCounts struct {
	Held     int64 // counting stops at [MaxHeldCount]
	InFlight int64 // released as a probe or in the last wave, without an outcome yet
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
	At       time.Time
	Event    string
	Actor    string
	Reason   *string
	Metadata json.RawMessage
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
	TaskUUID   ID
	StepUUID   ID
	Wave       int // 0 for a probe
	Fence      int64
	ReleasedAt time.Time
	Outcome    ReleaseOutcome // empty while pending
	Failure    *string
	JudgedAt   *time.Time
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

// HoldDetail is a hold with its history and releases, newest first and at most [MaxHoldHistory]
// each.
type HoldDetail struct {
	Hold
	History  []HoldChange
	Releases []HoldRelease
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
