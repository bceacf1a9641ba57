package tasker

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// A LimitKind says what a limit is of.
type LimitKind string

// The kinds of limits.
const (
	ServerLimit    LimitKind = "server"    // of all steps
	NamespaceLimit LimitKind = "namespace" // of the steps of a namespace
	HandlerLimit   LimitKind = "handler"   // of the steps of a handler of a namespace
	NamedLimit     LimitKind = "name"      // of the steps to which templates give it, for each key by itself
)

// LimitKinds lists every kind.
func LimitKinds() []LimitKind {
	return []LimitKind{ServerLimit, NamespaceLimit, HandlerLimit, NamedLimit}
}

// Bounds of limits.
const (
	MaxLimits          = 1000      // of one namespace
	MaxTemplateLimits  = 4         // of one template
	MaxLimitKeyBytes   = 256       // of a key; a longer one is refused when the task is created
	MaxLimitInProgress = 10_000    // of one key
	MaxLimitPerSecond  = 1_000_000 // of one key
)

// A LimitRef names a limit.
type LimitRef struct {
	Kind      LimitKind `json:"kind"`
	Namespace string    `json:"namespace,omitempty"` // empty for the server
	Name      string    `json:"name,omitempty"`      // the handler, or the name; empty for the server and a namespace
}

// String returns kind, namespace and name with slashes between them.
func (r LimitRef) String() string {
	parts := []string{string(r.Kind)}
	for _, part := range []string{r.Namespace, r.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

// ParseLimitRef reads what [LimitRef.String] writes; nothing of an empty text. The error is Invalid.
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

// Check reports why a name is none of a limit. The error is Invalid.
func (r LimitRef) Check() error {
	switch r.Kind {
	case ServerLimit:
		if r.Namespace != "" || r.Name != "" {
			return Errorf(Invalid, "a limit of the server has neither namespace nor name")
		}
	case NamespaceLimit:
		if r.Namespace == "" || r.Name != "" {
			return Errorf(Invalid, "a limit of a namespace has a namespace and no name")
		}
	case HandlerLimit, NamedLimit:
		if r.Namespace == "" || r.Name == "" {
			return Errorf(Invalid, "a limit of kind %s has a namespace and a name", r.Kind)
		}
	default:
		return Errorf(Invalid, "invalid kind of limit %q: must be server, namespace, handler or name", r.Kind)
	}
	return nil
}

// A LimitValue is how many steps a limit lets be in progress, and begin, for each of its keys.
type LimitValue struct {
	MaxInProgress int     `json:"max_in_progress,omitempty"` // 0: any number
	PerSecond     float64 `json:"per_second,omitempty"`      // 0: any number
	Burst         int     `json:"burst,omitempty"`           // how many may begin at once after a rest; 0: as many as in a second, and one at least
}

// Check reports what is wrong with a value, and sets the burst where there is none. The error is
// Invalid.
func (v *LimitValue) Check() error {
	switch {
	case v.MaxInProgress == 0 && v.PerSecond == 0:
		return Errorf(Invalid, "a limit has max_in_progress or per_second")
	case v.MaxInProgress < 0 || v.MaxInProgress > MaxLimitInProgress:
		return Errorf(Invalid, "invalid max_in_progress %d: must be 1 to %d (hold the steps if none may begin)", v.MaxInProgress, MaxLimitInProgress)
	case v.PerSecond < 0 || v.PerSecond > MaxLimitPerSecond || math.IsNaN(v.PerSecond):
		return Errorf(Invalid, "invalid per_second %g: must be above 0, and %d at most", v.PerSecond, MaxLimitPerSecond)
	case v.Burst < 0 || v.Burst > MaxLimitPerSecond:
		return Errorf(Invalid, "invalid burst %d: must be 1 to %d", v.Burst, MaxLimitPerSecond)
	case v.Burst > 0 && v.PerSecond == 0:
		return Errorf(Invalid, "a limit has a burst only with per_second")
	}
	if v.PerSecond > 0 && v.Burst == 0 {
		v.Burst = max(1, int(math.Ceil(v.PerSecond)))
	}
	return nil
}

// String says what the value lets be in progress and begin.
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

// A Limit bounds how many steps are in progress at a time, or begin in a second.
type Limit struct {
	LimitRef
	LimitValue
	ByTemplate bool      `json:"by_template"` // the value is that of the newest template that gives the limit
	ChangedAt  time.Time `json:"changed_at"`
	ChangedBy  string    `json:"changed_by"`

	InProgress int64 `json:"in_progress"` // places that steps in progress take, of all keys; counting stops at [MaxLimitCount] steps
	Waiting    int64 `json:"waiting"`     // steps that wait for the limit; likewise
}

// MaxLimitCount is where counting the steps of a limit stops.
const MaxLimitCount = 10_000

// A LimitKey is how a limit stands for one of its keys.
type LimitKey struct {
	Key        string      `json:"key"`
	InProgress int64       `json:"in_progress"`
	Waiting    int64       `json:"waiting"`
	FreeAt     *time.Time  `json:"free_at,omitempty"` // when the rate lets the next step begin; nil: now
	Holders    []LimitStep `json:"holders,omitempty"` // steps in progress, the oldest claim first; at most [MaxLimitHolders]
}

// Bounds of what is shown of one limit.
const (
	MaxLimitKeys    = 100
	MaxLimitHolders = 10 // of each key
)

// A LimitStep is a step that has a place of a limit.
type LimitStep struct {
	StepRef
	Step      string    `json:"step"`
	ClaimedAt time.Time `json:"claimed_at"`
	Weight    int       `json:"weight"` // how many places it takes
}

// A LimitDetail is a limit with the keys for which most steps wait.
type LimitDetail struct {
	Limit
	Keys []LimitKey `json:"keys"`
}

// A LimitFilter selects limits.
type LimitFilter struct {
	Namespace string // empty: all that the caller may see
	Kind      LimitKind
	Name      string
	After     string // the String of the last limit of the page before
	Limit     int
}

// A LimitTemplate is a limit that a template gives to its steps.
type LimitTemplate struct {
	Name          string   `json:"name"`
	Key           string   `json:"key,omitempty"`   // an expression over the context; empty: one key for all tasks
	Steps         []string `json:"steps,omitempty"` // names of the steps; empty: all that workers execute
	MaxInProgress int      `json:"max_in_progress,omitempty"`
	PerSecond     float64  `json:"per_second,omitempty"`
	Burst         int      `json:"burst,omitempty"`

	Weights map[string]int `json:"weights,omitempty"` // how many places each of these steps takes; others take one
}

// MaxLimitWeight is how many places of a limit a step takes at most.
const MaxLimitWeight = 1000

// Value returns what the template lets be in progress and begin, until somebody sets another value.
func (l LimitTemplate) Value() LimitValue {
	return LimitValue{MaxInProgress: l.MaxInProgress, PerSecond: l.PerSecond, Burst: l.Burst}
}
