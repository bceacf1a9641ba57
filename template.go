package tasker

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of a template. They bound the cost of one task.
const (
	MaxTemplateBytes    = 256 << 10 // size of the document
	MaxSteps            = 1000
	MaxEdges            = 10_000 // dependencies of all steps together
	MaxTriageKeys       = 10
	MaxSearchAttributes = 10
)

// Template is the graph of steps from which tasks are created. It is immutable once a task uses
// it: changes need a new version.
type Template struct {
	Namespace    string                     `json:"namespace_name"`
	Name         string                     `json:"name"`
	Version      string                     `json:"version"` // semantic version, such as 1.2.0
	Description  string                     `json:"description,omitempty"`
	InputSchema  json.RawMessage            `json:"input_schema,omitempty"` // JSON Schema of the context of a task
	Lifecycle    Lifecycle                  `json:"lifecycle,omitzero"`
	Triage       Triage                     `json:"triage,omitzero"`
	Search       map[string]SearchAttribute `json:"search,omitempty"` // search attributes by name
	Start        StartRules                 `json:"start,omitzero"`
	Due          DuePolicy                  `json:"due,omitzero"`     // of its tasks
	Order        StepOrder                  `json:"order,omitempty"`  // in which workers claim its steps
	Limits       []LimitTemplate            `json:"limits,omitempty"` // of its steps, at most [MaxTemplateLimits]
	Steps        []StepTemplate             `json:"steps"`
	Environments map[string]Override        `json:"environments,omitempty"` // by name
	// Arbitrary JSON object, without effect and not part of the checksum.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Lifecycle overrides the staleness thresholds of the server for one template, in minutes. Zero
// means the default.
type Lifecycle struct {
	MaxWaitingForDependenciesMinutes int `json:"max_waiting_for_dependencies_minutes,omitempty"`
	MaxWaitingForRetryMinutes        int `json:"max_waiting_for_retry_minutes,omitempty"`
	MaxStepsInProcessMinutes         int `json:"max_steps_in_process_minutes,omitempty"`
	MaxDurationMinutes               int `json:"max_duration_minutes,omitempty"` // of the whole task

	// Maximum time until a step is claimed, in milliseconds; a step may override it.
	WorkerQueueTTLMS int64 `json:"worker_queue_ttl_ms,omitempty"`
	// Whether an unclaimed step fails; empty means the server's setting.
	QueueTTL ExpiryRule `json:"queue_ttl,omitempty"`
}

// Triage defines which task data root cause analysis may use.
type Triage struct {
	// JSON Pointers into the context; their values are compared between failures and successes
	Keys []string `json:"keys,omitempty"`
}

// Paths returns the keys, split into unescaped segments.
func (t Triage) Paths() [][]string {
	paths := make([][]string, len(t.Keys))
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for i, key := range t.Keys {
		for step := range strings.SplitSeq(strings.TrimPrefix(key, "/"), "/") {
			paths[i] = append(paths[i], unescape.Replace(step))
		}
	}
	return paths
}

// SearchAttribute defines a value by which tasks are searched.
type SearchAttribute struct {
	Type AttributeType `json:"type"`
	From string        `json:"from"` // expression over the context and step results
}

// AttributeType is the type of a search attribute. It is the same for all templates of a namespace.
type AttributeType string

// Attribute types.
const (
	AttributeText   AttributeType = "text"
	AttributeNumber AttributeType = "number"
	AttributeTime   AttributeType = "time"
	AttributeBool   AttributeType = "bool"
)

// MaxAttributeBytes limits the text of an attribute. Longer ones are not stored.
const MaxAttributeBytes = 256

// StepType determines how a step executes.
type StepType string

// Step types.
const (
	StandardStep StepType = "standard" // a worker runs its handler
	ExternalStep StepType = "external" // waits for an external system or a person to complete it
	WaitStep     StepType = "wait"     // waits for a time
	DecisionStep StepType = "decision" // a worker runs its handler, whose result selects the dependents to run
	ChildStep    StepType = "child"    // starts a task of another template and waits for it
	MapStep      StepType = "map"      // workers run its handler once per element of a list
)

// StepTemplate defines one step.
type StepTemplate struct {
	Name         string   `json:"name"`
	Type         StepType `json:"type"`
	Description  string   `json:"description,omitempty"`
	Handler      Handler  `json:"handler,omitzero"`
	Dependencies []string `json:"dependencies,omitempty"` // names of the steps that must complete first
	When         string   `json:"when,omitempty"`         // expression; the step is skipped if it is false
	Join         Join     `json:"join,omitempty"`         // required outcome of its dependencies; empty means all
	Retry        Retry    `json:"retry"`
	// Of an attempt, or of the wait of an external step; 0 means none.
	TimeoutSeconds int `json:"timeout_seconds,omitempty"`
	// 0 means the setting of the template, or of the server
	WorkerQueueTTLMS int64     `json:"worker_queue_ttl_ms,omitempty"`
	Due              DuePolicy `json:"due,omitzero"`

	OnTimeout     TimeoutOutcome  `json:"on_timeout,omitempty"`     // of an external step; empty means fail
	TimeoutResult json.RawMessage `json:"timeout_result,omitempty"` // for OnTimeout complete

	RemindAfterSeconds []int `json:"remind_after_seconds,omitempty"` // delays of the reminders for an external step

	Assignee     string `json:"assignee,omitempty"`      // of an external step
	AssigneeFrom string `json:"assignee_from,omitempty"` // alternatively, an expression
	EscalateTo   string `json:"escalate_to,omitempty"`   // next assignee if reminders had no effect
	// Number of reminders before the escalation; 0 means all.
	EscalateAfter int             `json:"escalate_after,omitempty"`
	Form          json.RawMessage `json:"form,omitempty"` // JSON Schema of the answer and of the form in the UI

	WaitSeconds int    `json:"wait_seconds,omitempty"` // of a wait step
	WaitUntil   string `json:"wait_until,omitempty"`   // alternatively, an expression

	Child ChildTemplate `json:"template,omitzero"` // of a child step
	// Expression for the context of the child; empty means the context of the task.
	Input       string          `json:"input,omitempty"`
	OnChild     OnChild         `json:"on_child,omitzero"`      // outcome of a child step whose task does not complete
	ChildResult json.RawMessage `json:"child_result,omitempty"` // for OnChild complete

	OnFailure *OnFailure `json:"on_failure,omitempty"` // nil if the step has no compensation

	Over        string `json:"over,omitempty"`         // of a map step: expression that returns the list
	Chunk       int    `json:"chunk,omitempty"`        // elements per item, passed as a list; 0 means a single element
	MaxParallel int    `json:"max_parallel,omitempty"` // concurrent items; 0 means unlimited

	Tolerate FailureTolerance `json:"tolerate,omitzero"` // items that may fail permanently; zero means none
}

// OnFailure defines the compensation of a completed step.
type OnFailure struct {
	Compensate     string `json:"compensate"` // handler; it receives the initialization of the step
	Retry          Retry  `json:"retry"`
	TimeoutSeconds int    `json:"timeout_seconds,omitempty"` // of an attempt; 0 means none
}

// UndoPrefix starts the name of a compensation step, followed by the name of the compensated
// step. Names in templates cannot contain it.
const UndoPrefix = "undo:"

// Undo returns the compensation step of s, or false if it has none.
func (s StepTemplate) Undo() (StepTemplate, bool) {
	if s.OnFailure == nil {
		return StepTemplate{}, false
	}
	return StepTemplate{
		Name: UndoPrefix + s.Name, Type: StandardStep, Retry: s.OnFailure.Retry,
		Handler:        Handler{Callable: s.OnFailure.Compensate, Initialization: s.Handler.Initialization},
		TimeoutSeconds: s.OnFailure.TimeoutSeconds, WorkerQueueTTLMS: s.WorkerQueueTTLMS,
	}, true
}

// ChildTemplate identifies the template of a child task. It belongs to the same namespace.
type ChildTemplate struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // empty means the newest when the step starts
}

// OnChild defines the outcome of a child step whose task ended without a result. Empty means fail.
type OnChild struct {
	Cancelled         ChildOutcome `json:"cancelled,omitempty"`
	PermanentlyFailed ChildOutcome `json:"permanently_failed,omitempty"` // after an investigation of the child
}

// ChildOutcome is the outcome of a child step whose task did not complete.
type ChildOutcome string

// Child outcomes.
const (
	ChildFails     ChildOutcome = "fail"
	ChildSkips     ChildOutcome = "skip"
	ChildCompletes ChildOutcome = "complete" // with ChildResult of the template
)

// MaxChildDepth limits the nesting of child tasks. A task without a parent has depth 0.
const MaxChildDepth = 10

// HasHandler reports whether a worker executes the step.
func (s StepTemplate) HasHandler() bool {
	return s.Type != ExternalStep && s.Type != WaitStep && s.Type != ChildStep
}

// ForPerson reports whether s is a human step: it has an assignee or a form.
func (s StepTemplate) ForPerson() bool {
	return s.Type == ExternalStep && (s.Assignee != "" || s.AssigneeFrom != "" || len(s.Form) > 0)
}

// EscalatesAt returns the number of reminders before s escalates, or 0 if it does not.
func (s StepTemplate) EscalatesAt() int {
	switch {
	case s.EscalateTo == "":
		return 0
	case s.EscalateAfter > 0:
		return min(s.EscalateAfter, len(s.RemindAfterSeconds))
	default:
		return len(s.RemindAfterSeconds)
	}
}

// LimitSeconds returns the timeout of an attempt or a wait in seconds. It returns 0 if there is
// none or an expression defines it.
func (s StepTemplate) LimitSeconds() int {
	if s.Type == WaitStep {
		return s.WaitSeconds
	}
	return s.TimeoutSeconds
}

// MaxReminders limits the reminders of one wait.
const MaxReminders = 10

// TimeoutOutcome is the outcome of an external step that is not answered in time.
type TimeoutOutcome string

// Timeout outcomes.
const (
	TimeoutFails     TimeoutOutcome = "fail"
	TimeoutCompletes TimeoutOutcome = "complete" // with TimeoutResult of the template
	TimeoutSkips     TimeoutOutcome = "skip"
)

// Join selects when a step runs, depending on the outcomes of its dependencies.
type Join string

// Joins. A dependency has succeeded if it is complete or resolved manually.
const (
	JoinAll        Join = "all"         // all succeeded; the step is skipped if one is skipped
	JoinAny        Join = "any"         // one succeeded; the step does not wait for the others
	JoinNoneFailed Join = "none_failed" // all succeeded or are skipped
)

// Handler identifies the function that executes a step, with a constant input.
type Handler struct {
	Callable       string          `json:"callable"`
	Initialization json.RawMessage `json:"initialization,omitempty"` // JSON object
}

// Backoff determines how the delay between attempts grows.
type Backoff string

// Backoff kinds. n is the number of the failed attempt.
const (
	ExponentialBackoff Backoff = "exponential" // base * 2^(n-1)
	LinearBackoff      Backoff = "linear"      // base * n
	ConstantBackoff    Backoff = "constant"    // base
)

// Retry is the retry policy of a step.
type Retry struct {
	Retryable    bool    `json:"retryable"`
	MaxAttempts  int     `json:"max_attempts"`
	Backoff      Backoff `json:"backoff"`
	BaseMS       int     `json:"backoff_base_ms"`
	MaxBackoffMS int     `json:"max_backoff_ms"`
	Jitter       bool    `json:"jitter,omitempty"` // adds up to 25 %
}

// DefaultRetry returns the default retry policy of a step.
func DefaultRetry() Retry {
	return Retry{Retryable: true, MaxAttempts: 3, Backoff: ExponentialBackoff, BaseMS: 1000, MaxBackoffMS: 30_000}
}

// DefaultUndoRetry returns the default retry policy of a compensation step. It has more attempts
// because a failed compensation leaves its effects in place.
func DefaultUndoRetry() Retry {
	r := DefaultRetry()
	r.MaxAttempts = 10
	return r
}

// Override contains the changes for one environment.
type Override struct {
	Steps []StepOverride `json:"steps"`
}

// AllSteps as the name of a [StepOverride] matches every step.
const AllSteps = "ALL"

// StepOverride changes the non-nil fields of a step.
type StepOverride struct {
	Name           string          `json:"name"`                     // step name, or [AllSteps]
	Initialization json.RawMessage `json:"initialization,omitempty"` // merged into that of the step, key by key
	TimeoutSeconds *int            `json:"timeout_seconds,omitempty"`
	Retry          *RetryOverride  `json:"retry,omitempty"`
}

// RetryOverride changes the non-nil fields of a [Retry].
type RetryOverride struct {
	Retryable    *bool    `json:"retryable,omitempty"`
	MaxAttempts  *int     `json:"max_attempts,omitempty"`
	Backoff      *Backoff `json:"backoff,omitempty"`
	BaseMS       *int     `json:"backoff_base_ms,omitempty"`
	MaxBackoffMS *int     `json:"max_backoff_ms,omitempty"`
	Jitter       *bool    `json:"jitter,omitempty"`
}

// ForEnvironment returns t with the overrides of an environment applied in order. An unknown
// environment changes nothing.
func (t Template) ForEnvironment(env string) Template {
	over, ok := t.Environments[env]
	if !ok {
		return t
	}
	steps := make([]StepTemplate, len(t.Steps))
	copy(steps, t.Steps)
	for _, o := range over.Steps {
		for i := range steps {
			if o.Name == AllSteps || o.Name == steps[i].Name {
				steps[i] = o.apply(steps[i])
			}
		}
	}
	t.Steps = steps
	return t
}

func (o StepOverride) apply(s StepTemplate) StepTemplate {
	if len(o.Initialization) > 0 && s.HasHandler() {
		s.Handler.Initialization = mergeObjects(s.Handler.Initialization, o.Initialization)
	}
	if o.TimeoutSeconds != nil && (s.HasHandler() || s.Type == ExternalStep && o.Name != AllSteps) { // AllSteps only changes attempts
		s.TimeoutSeconds = *o.TimeoutSeconds
	}
	if r := o.Retry; r != nil && s.HasHandler() {
		set(&s.Retry.Retryable, r.Retryable)
		set(&s.Retry.MaxAttempts, r.MaxAttempts)
		set(&s.Retry.Backoff, r.Backoff)
		set(&s.Retry.BaseMS, r.BaseMS)
		set(&s.Retry.MaxBackoffMS, r.MaxBackoffMS)
		set(&s.Retry.Jitter, r.Jitter)
	}
	return s
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// mergeObjects returns base with the members of over on top. If either is not an object, it
// returns over.
func mergeObjects(base, over json.RawMessage) json.RawMessage {
	var b, o map[string]json.RawMessage
	if json.Unmarshal(base, &b) != nil || json.Unmarshal(over, &o) != nil || b == nil {
		return over
	}
	maps.Copy(b, o)
	merged, err := json.Marshal(b)
	if err != nil { // unreachable: the members are valid JSON
		return over
	}
	return merged
}

// Cycle returns the step names along one dependency cycle, starting and ending with the same name,
// or nil if there is no cycle. It ignores dependencies on unknown steps.
func (t Template) Cycle() []string {
	w := walk{steps: make(map[string][]string, len(t.Steps)), mark: map[string]int{}}
	for _, s := range t.Steps {
		w.steps[s.Name] = s.Dependencies
	}
	for _, s := range t.Steps {
		if c := w.visit(s.Name); c != nil {
			return c
		}
	}
	return nil
}

// Ancestors returns the names of all direct and indirect dependencies of a step, in no particular
// order.
func (t Template) Ancestors(step string) []string {
	parents := make(map[string][]string, len(t.Steps))
	for _, s := range t.Steps {
		parents[s.Name] = s.Dependencies
	}
	var found []string
	seen := map[string]bool{step: true}
	for next := parents[step]; len(next) > 0; {
		var more []string
		for _, name := range next {
			if !seen[name] {
				seen[name] = true
				found, more = append(found, name), append(more, parents[name]...)
			}
		}
		next = more
	}
	return found
}

// walk is a depth-first search for a cycle.
type walk struct {
	steps map[string][]string
	mark  map[string]int
	path  []string
}

const visiting, visited = 1, 2

func (w *walk) visit(name string) []string {
	dependencies, exists := w.steps[name]
	switch {
	case !exists || w.mark[name] == visited:
		return nil
	case w.mark[name] == visiting:
		i := slices.Index(w.path, name)
		return append(slices.Clone(w.path[i:]), name)
	}
	w.mark[name] = visiting
	w.path = append(w.path, name)
	for _, d := range dependencies {
		if c := w.visit(d); c != nil {
			return c
		}
	}
	w.path = w.path[:len(w.path)-1]
	w.mark[name] = visited
	return nil
}

// StoredTemplate is a template in the database.
type StoredTemplate struct {
	Template
	UUID      ID
	Source    string // document as registered
	Checksum  string // of the meaning, independent of formatting
	CreatedAt time.Time
	Retired   *Retirement // nil if tasks can be created
}

// TemplateVersion identifies one version of a template.
type TemplateVersion struct {
	Namespace string
	Name      string
	Version   string
}

// Retirement records that a template version accepts no new tasks. Existing tasks continue.
type Retirement struct {
	At     time.Time
	By     string
	Reason string
}
