package tasker

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// LimitKind is the scope of a limit.
type LimitKind string

// Limit kinds.
const (
	ServerLimit    LimitKind = "server"    // all steps
	NamespaceLimit LimitKind = "namespace" // steps of a namespace
	HandlerLimit   LimitKind = "handler"   // steps of a handler in a namespace
	NamedLimit     LimitKind = "name"      // steps to which templates assign the limit, per key
)

// LimitKinds lists all limit kinds.
func LimitKinds() []LimitKind {
	return []LimitKind{ServerLimit, NamespaceLimit, HandlerLimit, NamedLimit}
}

// Bounds of limits.
const (
	MaxLimits          = 1000      // per namespace
	MaxTemplateLimits  = 4         // per template
	MaxLimitKeyBytes   = 256       // creating a task with a longer key fails
	MaxLimitInProgress = 10_000    // per key
	MaxLimitPerSecond  = 1_000_000 // per key
)

// LimitRef identifies a limit.
type LimitRef struct {
	Kind      LimitKind `json:"kind"`
	Namespace string    `json:"namespace,omitempty"` // empty for the server limit
	Name      string    `json:"name,omitempty"`      // handler or name; empty for server and namespace limits
}

// String returns kind, namespace and name, separated by slashes.
func (r LimitRef) String() string {
	parts := []string{string(r.Kind)}
	for _, part := range []string{r.Namespace, r.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

// ParseLimitRef parses the result of [LimitRef.String]. It returns the zero value for an empty
// string and an Invalid error for any other invalid text.
func ParseLimitRef(s string) (r LimitRef, err error) {
	if s == "" {
		return r, nil
	}
	parts := strings.Split(s, "/")
	r.Kind = LimitKind(parts[0])
	if len(parts) > 1 {
		r.Namespace = parts[1]
	}
	if len(parts) > 2 {
		r.Name = strings.Join(parts[2:], "/")
	}
	return r, r.Check()
}

// Check returns an Invalid error if the reference is invalid.
func (r LimitRef) Check() error {
	switch r.Kind {
	case ServerLimit:
		if r.Namespace != "" || r.Name != "" {
			return Errorf(Invalid, "a server limit must not have a namespace or name")
		}
	case NamespaceLimit:
		if r.Namespace == "" || r.Name != "" {
			return Errorf(Invalid, "a namespace limit requires a namespace and must not have a name")
		}
	case HandlerLimit, NamedLimit:
		if r.Namespace == "" || r.Name == "" {
			return Errorf(Invalid, "a limit of kind %s requires a namespace and a name", r.Kind)
		}
	default:
		return Errorf(Invalid, "invalid limit kind %q: must be server, namespace, handler or name", r.Kind)
	}
	return nil
}

// LimitValue limits the steps in progress and the steps started per second, for each key of a
// limit.
type LimitValue struct {
	MaxInProgress int     `json:"max_in_progress,omitempty"` // 0 means unlimited
	PerSecond     float64 `json:"per_second,omitempty"`      // 0 means unlimited
	// Steps that may start at once after an idle period; 0 means one second's worth, at least 1.
	Burst int `json:"burst,omitempty"`
}

// Check returns an Invalid error if the value is invalid. It sets the default burst.
func (v *LimitValue) Check() error {
	switch {
	case v.MaxInProgress == 0 && v.PerSecond == 0:
		return Errorf(Invalid, "a limit requires max_in_progress or per_second")
	case v.MaxInProgress < 0 || v.MaxInProgress > MaxLimitInProgress:
		return Errorf(Invalid, "invalid max_in_progress %d: must be from 1 to %d; to stop all steps, "+
			"place a hold", v.MaxInProgress, MaxLimitInProgress)
	case v.PerSecond < 0 || v.PerSecond > MaxLimitPerSecond || math.IsNaN(v.PerSecond):
		return Errorf(Invalid,
			"invalid per_second %g: must be greater than 0 and at most %d", v.PerSecond, MaxLimitPerSecond)
	case v.Burst < 0 || v.Burst > MaxLimitPerSecond:
		return Errorf(Invalid, "invalid burst %d: must be from 1 to %d", v.Burst, MaxLimitPerSecond)
	case v.Burst > 0 && v.PerSecond == 0:
		return Errorf(Invalid, "invalid burst: requires per_second")
	}
	if v.PerSecond > 0 && v.Burst == 0 {
		v.Burst = max(1, int(math.Ceil(v.PerSecond)))
	}
	return nil
}

// String formats the value, such as "5 in progress, 2/s, burst 2".
func (v LimitValue) String() string {
	var parts []string
	if v.MaxInProgress > 0 {
		parts = append(parts, fmt.Sprintf("%d in progress", v.MaxInProgress))
	}
	if v.PerSecond > 0 {
		parts = append(parts, fmt.Sprintf("%g/s, burst %d", v.PerSecond, v.Burst))
	}
	return strings.Join(parts, ", ")
}

// Limit restricts how many steps run concurrently or start per second.
type Limit struct {
	LimitRef
	LimitValue
	ByTemplate bool      `json:"by_template"` // the value comes from the latest template that defines the limit
	ChangedAt  time.Time `json:"changed_at"`
	ChangedBy  string    `json:"changed_by"`

	InProgress int64 `json:"in_progress"` // occupied slots of all keys; counting stops at [MaxLimitCount] steps
	Waiting    int64 `json:"waiting"`     // waiting steps; counting stops at [MaxLimitCount]
}

// MaxLimitCount limits the counted steps of a limit.
const MaxLimitCount = 10_000

// LimitKey is the usage of one key of a limit.
type LimitKey struct {
	Key        string     `json:"key" doc:"Empty if the limit has a single key."`
	InProgress int64      `json:"in_progress"`
	Waiting    int64      `json:"waiting"`
	FreeAt     *time.Time `json:"free_at" doc:"When the rate allows the next step to start. Null: now."`

	Holders []LimitStep `json:"holders" db:"-" doc:"Steps that occupy slots, oldest claim first, at most 10."`
}

// Limits of a [LimitDetail].
const (
	MaxLimitKeys    = 100
	MaxLimitHolders = 10 // per key
)

// LimitStep is a step that occupies slots of a limit.
type LimitStep struct {
	StepRef
	Step      string    `json:"step_name"`
	ClaimedAt time.Time `json:"claimed_at"`
	Weight    int       `json:"weight" doc:"Number of slots."`
}

// LimitDetail is a limit and the keys with the most waiting steps.
type LimitDetail struct {
	Limit
	Keys []LimitKey `json:"keys"`
}

// LimitFilter selects and pages limits.
type LimitFilter struct {
	Kind      LimitKind `query:"kind" doc:"Kind of the limit."`
	Namespace string    `query:"namespace" maxLength:"128" doc:"Namespace of the limit; absent for the server."`
	Name      string    `query:"name" maxLength:"128" doc:"Handler, or the name that templates assign."`
	// Keys includes the keys and the steps that have their slots.
	Keys  bool   `query:"keys" doc:"Include the keys and the steps that have their slots; then at most 10 limits."`
	After string `query:"after" maxLength:"300" doc:"Page cursor: next_after of the previous page."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of elements."`
}

// LimitTemplate is a limit that a template assigns to its steps.
type LimitTemplate struct {
	Name          string   `json:"name"`
	Key           string   `json:"key,omitempty"`   // expression over the context; empty means one key for all tasks
	Steps         []string `json:"steps,omitempty"` // step names; empty means all steps that workers execute
	MaxInProgress int      `json:"max_in_progress,omitempty"`
	PerSecond     float64  `json:"per_second,omitempty"`
	Burst         int      `json:"burst,omitempty"`

	Weights map[string]int `json:"weights,omitempty"` // slots per step, by step name; the default is 1
}

// MaxLimitWeight limits the slots that one step may occupy.
const MaxLimitWeight = 1000

// Value returns the value that applies until an operator sets another one.
func (l LimitTemplate) Value() LimitValue {
	return LimitValue{MaxInProgress: l.MaxInProgress, PerSecond: l.PerSecond, Burst: l.Burst}
}
