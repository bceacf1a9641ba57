package tasker

import "time"

// MaxStartDelay bounds how long after its creation a task may be asked to start, and how long after
// its start it may be asked to wait for a worker.
const MaxStartDelay = 366 * 24 * time.Hour

// StartRules say how the tasks of a template start, where their requests say nothing else.
type StartRules struct {
	WithinSeconds int    `json:"within_seconds,omitempty"` // a task ends as expired unless a step of it is claimed so long after its start
	Unique        Unique `json:"unique,omitzero"`          // its key is an expression over the context

	Debounce DebounceRules `json:"debounce,omitzero"`
}

// DebounceRules merge the requests for tasks of a template.
type DebounceRules struct {
	Key            string `json:"key"` // an expression over the context
	WaitSeconds    int    `json:"wait_seconds"`
	MaxWaitSeconds int    `json:"max_wait_seconds,omitempty"`
}

// A Debounce merges the requests with a key into one task of a template, which starts when none has come
// for a while. The zero value merges none.
type Debounce struct {
	Key     string
	Wait    time.Duration // after the last request
	MaxWait time.Duration // after the first one, at most; 0 means ten times Wait
}

// A Unique has one task of a template be open at a time for a key. The zero value has any number.
type Unique struct {
	Key        string         `json:"key"`
	OnConflict ConflictPolicy `json:"on_conflict,omitempty"` // empty means fail
}

// MaxUniqueKey bounds the characters of a unique key.
const MaxUniqueKey = 255

// A ConflictPolicy says what becomes of a request whose unique key an open task has.
type ConflictPolicy string

// The policies.
const (
	ConflictFail           ConflictPolicy = "fail"            // it is refused
	ConflictUseExisting    ConflictPolicy = "use_existing"    // it is answered with that task
	ConflictCancelExisting ConflictPolicy = "cancel_existing" // that task is cancelled, in the same transaction
)

// ConflictPolicies lists the policies.
func ConflictPolicies() []ConflictPolicy {
	return []ConflictPolicy{ConflictFail, ConflictUseExisting, ConflictCancelExisting}
}

// TaskOptions are what a task was created with that bounds its start and its end.
type TaskOptions struct {
	StartBy *time.Time `json:"start_by,omitempty"` // it ends as expired unless a step of it is claimed by then

	UniqueKey string `json:"unique_key,omitempty"` // no other open task of the template has it

	DebounceKey    string `json:"debounce_key,omitempty"`    // requests with it are merged into the task until it starts
	MergedRequests int    `json:"merged_requests,omitempty"` // so far, after the first
}
