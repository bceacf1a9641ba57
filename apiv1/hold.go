package apiv1

import (
	"time"

	"tasker.example/tasker"
)

// BeginHold is the body of POST /v1/holds. It contains either case_id, or namespace and further
// scope fields.
type BeginHold struct {
	Namespace  string     `json:"namespace,omitempty" maxLength:"128" doc:"Namespace of the steps." flag:"namespace,n" usage:"hold steps of this namespace"`
	Handler    string     `json:"handler,omitempty" maxLength:"128" doc:"Only steps with this handler." flag:"handler" usage:"hold only steps with this handler"`
	TaskName   string     `json:"task_name,omitempty" maxLength:"128" doc:"Only steps of tasks of this template." flag:"name" usage:"hold only steps of this template"`
	StepName   string     `json:"step_name,omitempty" maxLength:"128" doc:"Only steps with this name." flag:"step" usage:"hold only steps with this name"`
	CaseID     string     `json:"case_id,omitempty" format:"uuid" doc:"Hold the steps of this case. Alternative to the scope fields." flag:"case" usage:"hold the steps in the scope of this case"`
	Until      *time.Time `json:"until,omitempty" doc:"Automatic end, within 24 hours." flag:"until" usage:"end of the hold, such as 2026-01-31T07:30:00Z (instead of --for)"`
	ForSeconds int        `json:"for_seconds,omitempty" minimum:"60" maximum:"86400" doc:"Duration. Either until or for_seconds is required." flag:"for" usage:"duration of the hold, such as 30m or 4h, at most 24h"`
	Owner      string     `json:"owner,omitempty" maxLength:"255" doc:"Owner. Default: the actor." flag:"owner" usage:"owner of the hold (default: the actor)"`
	Reason     string     `json:"reason" minLength:"1" maxLength:"2000"`
	By         string     `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// ExtendHold is the body of POST /v1/holds/{hold_uuid}/extend.
type ExtendHold struct {
	Until      *time.Time `json:"until,omitempty" doc:"Automatic end, within 24 hours." flag:"until" usage:"end of the hold, such as 2026-01-31T07:30:00Z (instead of --for)"`
	ForSeconds int        `json:"for_seconds,omitempty" minimum:"60" maximum:"86400" doc:"Duration from now. Either until or for_seconds is required." flag:"for" usage:"duration of the hold, such as 30m or 4h, at most 24h"`
	Owner      string     `json:"owner,omitempty" maxLength:"255" doc:"New owner. Default: unchanged." flag:"owner" usage:"new owner of the hold"`
	Reason     string     `json:"reason" minLength:"1" maxLength:"2000"`
	By         string     `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// ProbeHold is the body of POST /v1/holds/{hold_uuid}/probe.
type ProbeHold struct {
	Reason string `json:"reason,omitempty" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// ReleaseHold is the body of POST /v1/holds/{hold_uuid}/release.
type ReleaseHold struct {
	Waves  *[]int `json:"waves,omitempty" maxItems:"20" doc:"Steps per wave. The rest follows the last wave. Default: 1, 10 and 100. [] releases all at once." flag:"waves" usage:"wave sizes, then the rest; \"all\" releases everything at once"`
	Reason string `json:"reason" minLength:"1" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// HoldList is a page of holds, newest first.
type HoldList struct {
	Holds      []tasker.Hold `json:"holds"`
	Pagination HoldPage      `json:"pagination"`
}

// HoldPage is the pagination of a list of holds.
type HoldPage struct {
	Limit      int     `json:"limit"`
	Count      int     `json:"count" doc:"Elements in this response."`
	HasMore    bool    `json:"has_more" doc:"More elements follow."`
	NextBefore *string `json:"next_before" doc:"Value of before for the next page."`
}

// SetLimit is the body of PUT /v1/limits.
type SetLimit struct {
	Kind          string  `json:"kind" enum:"server,namespace,handler,name" doc:"Scope of the limit."`
	Namespace     string  `json:"namespace,omitempty" maxLength:"128" doc:"Namespace of the steps. Absent for the server limit." flag:"namespace" usage:"namespace of the limit; not for server"`
	Name          string  `json:"name,omitempty" maxLength:"128" doc:"Handler, or name used by templates. Absent for server and namespace limits." flag:"name" usage:"handler, or the name that templates assign"`
	MaxInProgress int     `json:"max_in_progress,omitempty" minimum:"1" maximum:"10000" doc:"Maximum concurrent steps per key." flag:"max" usage:"maximum number of running steps per key, from 1 to 10000"`
	PerSecond     float64 `json:"per_second,omitempty" minimum:"0" maximum:"1000000" doc:"Maximum steps per key that start per second. At least one of the two limits is required." flag:"rate" usage:"maximum number of steps started per second and key"`
	Burst         int     `json:"burst,omitempty" minimum:"1" maximum:"1000000" doc:"Steps that may start at once after an idle period. Default: one second's worth, at least 1." flag:"burst" usage:"burst size for --rate"`
	Reason        string  `json:"reason,omitempty" maxLength:"2000" doc:"Reason for the audit log."`
	By            string  `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// Limit restricts how many steps run concurrently or start per second.
type Limit struct {
	Kind          string    `json:"kind" enum:"server,namespace,handler,name"`
	Namespace     string    `json:"namespace" doc:"Empty for the server limit."`
	Name          string    `json:"name" doc:"Handler, or name used by templates."`
	MaxInProgress *int      `json:"max_in_progress" doc:"Per key. Null: unlimited."`
	PerSecond     *float64  `json:"per_second" doc:"Steps that may start, per key. Null: unlimited."`
	Burst         *int      `json:"burst" doc:"Steps that may start at once after an idle period."`
	ByTemplate    bool      `json:"by_template" doc:"The value comes from the latest registered template; no operator has set another."`
	ChangedAt     time.Time `json:"changed_at"`
	ChangedBy     string    `json:"changed_by"`
	InProgress    int64     `json:"in_progress" doc:"Occupied slots of all keys. A step in progress occupies one, or its weight. Counting stops at 10000 steps."`
	Waiting       int64     `json:"waiting" doc:"Steps that wait for the limit. Counting stops at 10000."`

	Keys []tasker.LimitKey `json:"keys" nullable:"true" doc:"With keys=true: keys with the most waiting steps, at most 100. Otherwise null."`
}

// LimitList is a page of limits, ordered by namespace, kind and name.
type LimitList struct {
	Limits     []Limit   `json:"limits"`
	Pagination LimitPage `json:"pagination"`
}

// LimitPage is the pagination of a list of limits.
type LimitPage struct {
	Limit     int     `json:"limit"`
	Count     int     `json:"count" doc:"Elements in this response."`
	HasMore   bool    `json:"has_more" doc:"More elements follow."`
	NextAfter *string `json:"next_after" doc:"Value of after for the next page."`
}

// FromLimit converts a limit.
func FromLimit(l tasker.Limit) Limit {
	w := Limit{
		Kind: string(l.Kind), Namespace: l.Namespace, Name: l.Name, ByTemplate: l.ByTemplate, ChangedAt: l.ChangedAt.UTC(), ChangedBy: l.ChangedBy,
		InProgress: l.InProgress, Waiting: l.Waiting,
	}
	if l.MaxInProgress > 0 {
		w.MaxInProgress = &l.MaxInProgress
	}
	if l.PerSecond > 0 {
		w.PerSecond, w.Burst = &l.PerSecond, &l.Burst
	}
	return w
}

// FromLimitDetail converts a limit with its keys.
func FromLimitDetail(d tasker.LimitDetail) Limit {
	w := FromLimit(d.Limit)
	w.Keys = d.Keys
	return w
}
