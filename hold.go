package tasker

import (
	"encoding/json"
	"strings"
	"time"
)

// HoldKind says who began a [Hold].
type HoldKind string

// The kinds of holds.
const (
	ManualHold  HoldKind = "manual"  // a person
	BreakerHold HoldKind = "breaker" // Tasker, because attempts kept failing with one cause
)

// HoldKinds lists every kind of holds.
func HoldKinds() []HoldKind { return []HoldKind{ManualHold, BreakerHold} }

// HoldState is how far a [Hold] is.
type HoldState string

// The states of a hold.
const (
	HoldActive    HoldState = "active"    // steps of its scope are not handed out
	HoldReleasing HoldState = "releasing" // they are let go in waves
	HoldEnded     HoldState = "ended"
)

// HoldStates lists every state of a hold.
func HoldStates() []HoldState { return []HoldState{HoldActive, HoldReleasing, HoldEnded} }

// A HoldScope selects the steps of a hold: those of a namespace, of which each field that is
// not empty selects fewer.
type HoldScope struct {
	Namespace string
	Handler   string
	TaskName  string // of the template
	StepName  string
}

// String names the scope, such as "payments: handler charge, step refund > notify".
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

// A Hold keeps steps from being handed out: they are accepted and stay enqueued, no attempt
// is used, and neither their time in the queue nor the staleness of their tasks runs. What
// is in progress when it begins goes on.
type Hold struct {
	UUID ID
	Kind HoldKind
	HoldScope
	CaseID       *ID    // that it was begun for
	Cause        string // of a breaker: what the attempts failed with
	CauseKey     string // of that, see package fingerprint
	Reason       string
	Owner        string
	State        HoldState
	Blocks       bool  // steps of its scope are held; false while the rest is let go after the last wave
	Waves        []int // of its release: how many steps each lets go; after the last all that are left
	Wave         int   // how many of them have begun
	WaveSince    *time.Time
	WaveSteps    int
	BeganAt      time.Time
	EndsAt       time.Time // then it is released by itself
	WarnedAt     *time.Time
	NextProbeAt  *time.Time
	Probes       int
	FailedProbes int
	Released     int64 // how many steps were let go
	EndedAt      *time.Time
	UpdatedAt    time.Time
	HoldCounts
}

// HoldCounts are of the steps that a hold holds now.
type HoldCounts struct {
	Held     int64 // counted up to [MaxHeldCount]
	InFlight int64 // let go as a probe or in the last wave, of which nothing is known yet
}

// A HoldGroup is how many holds of a kind are in a state.
type HoldGroup struct {
	Kind  HoldKind
	State HoldState
	Holds int64
}

// A NewHold is a request for a hold.
type NewHold struct {
	HoldScope
	CaseID *ID           // its place takes the place of the scope, which must be empty
	Until  *time.Time    // when it is to end; or
	For    time.Duration // after what time. One of the two is needed
	Owner  string
	Reason string
	Actor  string // who asks; empty means the owner
}

// A HoldExtension is a new end of a hold.
type HoldExtension struct {
	Until *time.Time    // or
	For   time.Duration // from now. One of the two is needed
	Owner string        // who has it from now on; empty leaves it
}

// A HoldFilter selects and pages holds, the newest first.
type HoldFilter struct {
	Namespace string
	Open      bool // only those that have not ended
	Before    *ID  // the last of the page before
	Limit     int
}

// A HoldChange is one line of the history of a hold.
type HoldChange struct {
	At       time.Time
	Event    string
	Actor    string
	Reason   *string
	Metadata json.RawMessage
}

// The events of the history of a hold.
const (
	HoldBegan          = "began"
	HoldExtended       = "extended"
	HoldWarned         = "warned" // four fifths of its time are over
	HoldProbed         = "probed" // one step was let go
	HoldProbeSucceeded = "probe_succeeded"
	HoldProbeFailed    = "probe_failed"
	HoldReleaseBegan   = "release_began"
	HoldWaveBegan      = "wave_began"
	HoldWaveFailed     = "wave_failed" // and it holds again
	HoldRestReleased   = "rest_released"
	HoldHasEnded       = "ended"
)

// A HoldRelease is a step that a hold let go as a probe, or in a wave.
type HoldRelease struct {
	TaskUUID   ID
	StepUUID   ID
	Wave       int // 0: a probe
	Fence      int64
	ReleasedAt time.Time
	Outcome    ReleaseOutcome // empty while it is awaited
	Failure    *string
	JudgedAt   *time.Time
}

// ReleaseOutcome is what became of a step that a hold let go.
type ReleaseOutcome string

// The outcomes.
const (
	ReleaseSucceeded ReleaseOutcome = "succeeded"
	ReleaseFailed    ReleaseOutcome = "failed"
	ReleaseNoAnswer  ReleaseOutcome = "no_answer" // no attempt has ended in time
	ReleaseGone      ReleaseOutcome = "gone"      // it was cancelled, or somebody acted on it
)

// A HoldDetail is a hold with its history.
type HoldDetail struct {
	Hold
	History  []HoldChange  // newest first, at most [MaxHoldHistory]
	Releases []HoldRelease // newest first, at most [MaxHoldHistory]
}

// Bounds of holds.
const (
	MaxHoldTime              = 24 * time.Hour // from when it begins, or somebody extends it
	MaxOpenHolds             = 100
	MaxOpenHoldsPerNamespace = MaxOpenHolds / 2
	MaxHeldCount             = 100_000
	MaxHoldHistory           = 100
)

// DefaultHoldWaves are the waves of a release that says nothing of them.
func DefaultHoldWaves() []int { return []int{1, 10, 100} }
