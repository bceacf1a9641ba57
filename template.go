package tasker

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of a template. They bound what one task can cost.
const (
	MaxTemplateBytes    = 256 << 10 // size of a template document
	MaxSteps            = 1000      // steps of one template
	MaxEdges            = 10_000    // dependencies of one template, all steps together
	MaxTriageKeys       = 10        // keys of the context that its triage names
	MaxSearchAttributes = 10        // what its tasks are found by
)

// A Template is the graph of steps that a task is made from, under a namespace,
// a name and a version. It never changes once a task uses it: a change is a new
// version.
type Template struct {
	Namespace    string                     `json:"namespace_name"`
	Name         string                     `json:"name"`
	Version      string                     `json:"version"` // semantic version, such as 1.2.0
	Description  string                     `json:"description,omitempty"`
	InputSchema  json.RawMessage            `json:"input_schema,omitempty"` // JSON Schema of a task's context
	Lifecycle    Lifecycle                  `json:"lifecycle,omitzero"`
	Triage       Triage                     `json:"triage,omitzero"`
	Search       map[string]SearchAttribute `json:"search,omitempty"` // by name: what tasks are found by
	Start        StartRules                 `json:"start,omitzero"`
	Due          DuePolicy                  `json:"due,omitzero"`     // by when its tasks are due
	Order        StepOrder                  `json:"order,omitempty"`  // in which workers are given its steps
	Limits       []LimitTemplate            `json:"limits,omitempty"` // of the steps of its tasks, at most [MaxTemplateLimits]
	Steps        []StepTemplate             `json:"steps"`
	Environments map[string]Override        `json:"environments,omitempty"` // by name of the environment
	Metadata     json.RawMessage            `json:"metadata,omitempty"`     // an object of the author's; it has no effect and is not part of the checksum
}

// Lifecycle overrides the server's staleness thresholds for one template, in
// minutes. Zero means that the server's default holds.
type Lifecycle struct {
	MaxWaitingForDependenciesMinutes int `json:"max_waiting_for_dependencies_minutes,omitempty"`
	MaxWaitingForRetryMinutes        int `json:"max_waiting_for_retry_minutes,omitempty"`
	MaxStepsInProcessMinutes         int `json:"max_steps_in_process_minutes,omitempty"`
	MaxDurationMinutes               int `json:"max_duration_minutes,omitempty"` // of the whole task

	// WorkerQueueTTLMS is how long a step may wait for a worker. A step's own comes first.
	WorkerQueueTTLMS int64      `json:"worker_queue_ttl_ms,omitempty"`
	QueueTTL         ExpiryRule `json:"queue_ttl,omitempty"` // whether a step that waited for longer fails; empty means what the server says
}

// Triage is what may be told of the tasks of a template to whoever looks for the cause of failures.
type Triage struct {
	// Keys are places in the context of a task, as JSON Pointers through objects. What stands there
	// is compared between failures and successes. None is compared unless it is named.
	Keys []string `json:"keys,omitempty"`
}

// Paths returns the keys step by step.
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

// A SearchAttribute is a value by which the tasks of a template are found.
type SearchAttribute struct {
	Type AttributeType `json:"type"`
	From string        `json:"from"` // an expression over the context and the results of steps
}

// AttributeType is the type of a search attribute. A name has one type within a namespace.
type AttributeType string

// The types of attributes.
const (
	AttributeText   AttributeType = "text"
	AttributeNumber AttributeType = "number"
	AttributeTime   AttributeType = "time"
	AttributeBool   AttributeType = "bool"
)

// MaxAttributeBytes bounds the text of an attribute; a longer one is not kept.
const MaxAttributeBytes = 256

// StepType says who moves a step.
type StepType string

// The types of steps.
const (
	StandardStep StepType = "standard" // a worker executes its handler
	ExternalStep StepType = "external" // waits for a completion from outside; no worker, no queue
	WaitStep     StepType = "wait"     // waits for an instant; no worker, no queue
	DecisionStep StepType = "decision" // a worker executes its handler, whose result names the steps that go on
	ChildStep    StepType = "child"    // waits for a task of another template, which it starts; no worker, no queue
	MapStep      StepType = "map"      // workers execute its handler once for each element of a list
)

// A StepTemplate is one node of the graph.
type StepTemplate struct {
	Name             string    `json:"name"`
	Type             StepType  `json:"type"`
	Description      string    `json:"description,omitempty"`
	Handler          Handler   `json:"handler,omitzero"`
	Dependencies     []string  `json:"dependencies,omitempty"` // names of the steps that come before
	When             string    `json:"when,omitempty"`         // an expression; the step is skipped when it is false
	Join             Join      `json:"join,omitempty"`         // what its dependencies must have come to; empty means all
	Retry            Retry     `json:"retry"`
	TimeoutSeconds   int       `json:"timeout_seconds,omitempty"`     // of one attempt, or of the wait of an external step; 0 means none
	WorkerQueueTTLMS int64     `json:"worker_queue_ttl_ms,omitempty"` // 0 means the template's, and then the server's
	Due              DuePolicy `json:"due,omitzero"`                  // by when it is due

	OnTimeout     TimeoutOutcome  `json:"on_timeout,omitempty"`     // of an external step; empty means that it fails
	TimeoutResult json.RawMessage `json:"timeout_result,omitempty"` // with which the timeout completes the step

	RemindAfterSeconds []int `json:"remind_after_seconds,omitempty"` // of an external step: after how long people are reminded of it

	Assignee      string          `json:"assignee,omitempty"`       // of an external step: who is to answer it
	AssigneeFrom  string          `json:"assignee_from,omitempty"`  // or an expression: who is to answer it
	EscalateTo    string          `json:"escalate_to,omitempty"`    // who is to answer it once people were reminded in vain
	EscalateAfter int             `json:"escalate_after,omitempty"` // after how many reminders; 0: after all
	Form          json.RawMessage `json:"form,omitempty"`           // JSON Schema of the answer, and of the form on the page

	WaitSeconds int    `json:"wait_seconds,omitempty"` // how long a wait step waits
	WaitUntil   string `json:"wait_until,omitempty"`   // or an expression: until when

	Child       ChildTemplate   `json:"template,omitzero"`      // of which a child step starts a task
	Input       string          `json:"input,omitempty"`        // an expression for the context of that task; empty: the context of its own
	OnChild     OnChild         `json:"on_child,omitzero"`      // what becomes of a child step whose task does not complete
	ChildResult json.RawMessage `json:"child_result,omitempty"` // with which the step is complete then, where on_child says so

	OnFailure *OnFailure `json:"on_failure,omitempty"` // nil: nothing undoes the step

	Over        string `json:"over,omitempty"`         // of a map step: an expression that gives the list
	Chunk       int    `json:"chunk,omitempty"`        // how many elements an item is given as a list; 0: one, as it is
	MaxParallel int    `json:"max_parallel,omitempty"` // how many items may be under way at once; 0: all

	Tolerate FailureTolerance `json:"tolerate,omitzero"` // how many items may fail for good; zero: none
}

// OnFailure says what undoes a step that is complete when its task is not to come to its end.
type OnFailure struct {
	Compensate     string `json:"compensate"` // the handler; it is given the initialization of the step
	Retry          Retry  `json:"retry"`
	TimeoutSeconds int    `json:"timeout_seconds,omitempty"` // of one attempt; 0 means none
}

// UndoPrefix begins the name of a step that undoes another, whose name follows. No step of a
// template has such a name.
const UndoPrefix = "undo:"

// Undo returns the step that undoes the step, false when nothing does.
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

// A ChildTemplate names the template of a child task, which is in the namespace of the
// step's own.
type ChildTemplate struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // empty means the newest when the step is due
}

// OnChild says what becomes of a child step whose task ended without a result.
type OnChild struct {
	Cancelled         ChildOutcome `json:"cancelled,omitempty"`          // empty means that the step fails
	PermanentlyFailed ChildOutcome `json:"permanently_failed,omitempty"` // likewise: an investigation of the child ended so
}

// A ChildOutcome is what becomes of a child step whose task did not complete.
type ChildOutcome string

// The outcomes.
const (
	ChildFails     ChildOutcome = "fail"
	ChildSkips     ChildOutcome = "skip"
	ChildCompletes ChildOutcome = "complete" // with a result that the template gives
)

// MaxChildDepth bounds how many tasks may be above one another: a task without a parent has
// the depth 0.
const MaxChildDepth = 10

// HasHandler reports whether a worker executes the step.
func (s StepTemplate) HasHandler() bool {
	return s.Type != ExternalStep && s.Type != WaitStep && s.Type != ChildStep
}

// ForPerson reports whether a person answers the step: it names who, or has a form.
func (s StepTemplate) ForPerson() bool {
	return s.Type == ExternalStep && (s.Assignee != "" || s.AssigneeFrom != "" || len(s.Form) > 0)
}

// EscalatesAt returns after how many reminders the step gets another assignee; 0: it does not.
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

// LimitSeconds returns after how many seconds the clock ends an attempt of the step, or its
// wait; 0 when it does not, or when an expression says so.
func (s StepTemplate) LimitSeconds() int {
	if s.Type == WaitStep {
		return s.WaitSeconds
	}
	return s.TimeoutSeconds
}

// MaxReminders is how many reminders of one wait there are.
const MaxReminders = 10

// A TimeoutOutcome says what becomes of an external step that nobody answers in time.
type TimeoutOutcome string

// The outcomes of a timeout.
const (
	TimeoutFails     TimeoutOutcome = "fail"
	TimeoutCompletes TimeoutOutcome = "complete" // with a result that the template gives
	TimeoutSkips     TimeoutOutcome = "skip"
)

// A Join says to what the dependencies of a step must have come for the step to run.
type Join string

// The joins. A dependency has succeeded when it is complete or resolved by hand.
const (
	JoinAll        Join = "all"         // all have succeeded; if one is skipped, so is the step
	JoinAny        Join = "any"         // one has succeeded; the step does not wait for the others
	JoinNoneFailed Join = "none_failed" // all have succeeded or are skipped
)

// A Handler names the function that executes a step and what it is given each
// time: the same data for every task of the template.
type Handler struct {
	Callable       string          `json:"callable"`
	Initialization json.RawMessage `json:"initialization,omitempty"` // a JSON object
}

// Backoff is how the rest between two attempts grows.
type Backoff string

// The kinds of backoff. n is the number of the attempt that failed.
const (
	ExponentialBackoff Backoff = "exponential" // base * 2^(n-1)
	LinearBackoff      Backoff = "linear"      // base * n
	ConstantBackoff    Backoff = "constant"    // base
)

// Retry is a step's policy for failures.
type Retry struct {
	Retryable    bool    `json:"retryable"`
	MaxAttempts  int     `json:"max_attempts"`
	Backoff      Backoff `json:"backoff"`
	BaseMS       int     `json:"backoff_base_ms"`
	MaxBackoffMS int     `json:"max_backoff_ms"`
	Jitter       bool    `json:"jitter,omitempty"` // up to a quarter more; off by default
}

// DefaultRetry is the policy of a step whose template names none.
func DefaultRetry() Retry {
	return Retry{Retryable: true, MaxAttempts: 3, Backoff: ExponentialBackoff, BaseMS: 1000, MaxBackoffMS: 30_000}
}

// DefaultUndoRetry is the policy of what undoes a step, if its template names none. It is tried
// more often than a step: when it fails, what was done stays done.
func DefaultUndoRetry() Retry {
	r := DefaultRetry()
	r.MaxAttempts = 10
	return r
}

// An Override is what one environment changes about the steps of a template.
type Override struct {
	Steps []StepOverride `json:"steps"`
}

// AllSteps as the name of a [StepOverride] means every step.
const AllSteps = "ALL"

// A StepOverride changes the fields it names and leaves the others.
type StepOverride struct {
	Name           string          `json:"name"`                     // a step, or ALL
	Initialization json.RawMessage `json:"initialization,omitempty"` // merged key by key over the step's own
	TimeoutSeconds *int            `json:"timeout_seconds,omitempty"`
	Retry          *RetryOverride  `json:"retry,omitempty"`
}

// A RetryOverride changes the fields of a [Retry] that are not nil.
type RetryOverride struct {
	Retryable    *bool    `json:"retryable,omitempty"`
	MaxAttempts  *int     `json:"max_attempts,omitempty"`
	Backoff      *Backoff `json:"backoff,omitempty"`
	BaseMS       *int     `json:"backoff_base_ms,omitempty"`
	MaxBackoffMS *int     `json:"max_backoff_ms,omitempty"`
	Jitter       *bool    `json:"jitter,omitempty"`
}

// ForEnvironment returns the template as environment env has it: its overrides
// applied in order, a later one over an earlier one. An environment that the
// template does not name changes nothing.
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
	if len(o.Initialization) > 0 && s.HasHandler() { // the others have no handler to give it to
		s.Handler.Initialization = mergeObjects(s.Handler.Initialization, o.Initialization)
	}
	if o.TimeoutSeconds != nil && (s.HasHandler() || s.Type == ExternalStep && o.Name != AllSteps) { // ALL means attempts
		s.TimeoutSeconds = *o.TimeoutSeconds
	}
	if r := o.Retry; r != nil && s.HasHandler() { // the others are not tried again
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

// mergeObjects returns base with the members of over on top. A document that is
// not an object cannot be merged, so over replaces it.
func mergeObjects(base, over json.RawMessage) json.RawMessage {
	var b, o map[string]json.RawMessage
	if json.Unmarshal(base, &b) != nil || json.Unmarshal(over, &o) != nil || b == nil {
		return over
	}
	maps.Copy(b, o)
	merged, err := json.Marshal(b)
	if err != nil { // unreachable: the members were JSON a moment ago
		return over
	}
	return merged
}

// Cycle returns the names along one cycle of dependencies, first and last the
// same, or nil when the graph has none. Dependencies on steps that do not exist
// are passed over.
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

// Ancestors returns the names of the steps that come before a step, near and far, in no
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

// A walk goes through a graph depth first.
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

// A StoredTemplate is a template as the database keeps it.
type StoredTemplate struct {
	Template
	UUID      ID
	Source    string // the document as it was registered
	Checksum  string // of the template's meaning: two spellings of the same have the same
	CreatedAt time.Time
	Retired   *Retirement // nil: tasks are made of it
}

// A TemplateVersion names one version of a template.
type TemplateVersion struct {
	Namespace string
	Name      string
	Version   string
}

// A Retirement says that no new tasks are made of a version of a template. Tasks that use it
// go on.
type Retirement struct {
	At     time.Time
	By     string
	Reason string
}
