package tasker

import "time"

// MaxStartDelay limits the delay from creation to start of a task, and the time from its start
// until a worker must claim a step.
const MaxStartDelay = 366 * 24 * time.Hour

// StartRules are the start options of a template. Options of a create request override them.
type StartRules struct {
	// The task expires unless a step is claimed within this time after its start.
	WithinSeconds int    `json:"within_seconds,omitempty"`
	Unique        Unique `json:"unique,omitzero"` // its key is an expression over the context

	Debounce DebounceRules `json:"debounce,omitzero"`
}

// DebounceRules configures the [Debounce] of a template.
type DebounceRules struct {
	Key            string `json:"key"` // expression over the context
	WaitSeconds    int    `json:"wait_seconds"`
	MaxWaitSeconds int    `json:"max_wait_seconds,omitempty"`
}

// Debounce merges create requests with equal keys into one task, which starts when no further
// request arrives for a while. The zero value disables merging.
type Debounce struct {
	Key     string
	Wait    time.Duration // after the last request
	MaxWait time.Duration // after the first request; 0 means ten times Wait
}

// Unique allows one open task of a template per key. The zero value allows any number.
type Unique struct {
	Key        string         `json:"key"`
	OnConflict ConflictPolicy `json:"on_conflict,omitempty"` // empty means fail
}

// MaxUniqueKey limits the characters of a unique key.
const MaxUniqueKey = 255

// ConflictPolicy selects the reaction to a create request whose unique key is in use.
type ConflictPolicy string

// Conflict policies.
const (
	ConflictFail           ConflictPolicy = "fail"            // reject the request
	ConflictUseExisting    ConflictPolicy = "use_existing"    // return the existing task
	ConflictCancelExisting ConflictPolicy = "cancel_existing" // cancel the existing task in the same transaction
)

// ConflictPolicies lists all conflict policies.
func ConflictPolicies() []ConflictPolicy {
	return []ConflictPolicy{ConflictFail, ConflictUseExisting, ConflictCancelExisting}
}

// TaskOptions are the start options of a task.
type TaskOptions struct {
	StartBy        *time.Time     `json:"start_by" db:"-" doc:"The task is cancelled with the reason expired unless a step is claimed by then. Null: no limit."`
	UniqueKey      OptionalString `json:"unique_key" db:"-" doc:"Unique among the open tasks of the template. Null if there is none or the caller lacks payloads:read."`
	DebounceKey    OptionalString `json:"debounce_key" db:"-" doc:"Requests with this key are merged into the task until it starts. Null if there is none or the caller lacks payloads:read."`
	MergedRequests int            `json:"merged_requests" db:"-" doc:"Merged requests after the first."`
}
