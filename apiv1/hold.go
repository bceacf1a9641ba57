package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// BeginHold is the body of POST /v1/holds. It has either case_id, or namespace and what of
// it is held.
type BeginHold struct {
	Namespace  string     `json:"namespace,omitempty" maxLength:"128" doc:"Whose steps are held."`
	Handler    string     `json:"handler,omitempty" maxLength:"128" doc:"Only steps with this handler."`
	TaskName   string     `json:"task_name,omitempty" maxLength:"128" doc:"Only steps of tasks of this template."`
	StepName   string     `json:"step_name,omitempty" maxLength:"128" doc:"Only steps with this name."`
	CaseID     string     `json:"case_id,omitempty" format:"uuid" doc:"The steps of the place of this case, in place of the fields before."`
	Until      *time.Time `json:"until,omitempty" doc:"When it ends by itself, within 24 hours."`
	ForSeconds int        `json:"for_seconds,omitempty" minimum:"60" maximum:"86400" doc:"After what time it does, in place of until. One of the two is needed."`
	Owner      string     `json:"owner,omitempty" maxLength:"255" doc:"Who looks after it; whoever begins it when absent."`
	Reason     string     `json:"reason" minLength:"1" maxLength:"2000"`
	By         string     `json:"by,omitempty" maxLength:"255" doc:"Who begins it."`
}

// ExtendHold is the body of POST /v1/holds/{hold_uuid}/extend.
type ExtendHold struct {
	Until      *time.Time `json:"until,omitempty" doc:"When it ends by itself, within 24 hours."`
	ForSeconds int        `json:"for_seconds,omitempty" minimum:"60" maximum:"86400" doc:"How long from now on, in place of until. One of the two is needed."`
	Owner      string     `json:"owner,omitempty" maxLength:"255" doc:"Who looks after it from now on; absent: as before."`
	Reason     string     `json:"reason" minLength:"1" maxLength:"2000"`
	By         string     `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// ProbeHold is the body of POST /v1/holds/{hold_uuid}/probe.
type ProbeHold struct {
	Reason string `json:"reason,omitempty" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// ReleaseHold is the body of POST /v1/holds/{hold_uuid}/release.
type ReleaseHold struct {
	Waves  *[]int `json:"waves,omitempty" maxItems:"20" doc:"How many steps each wave lets go; the rest follows after the last. 1, 10 and 100 when absent; [] is all at once."`
	Reason string `json:"reason" minLength:"1" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// Hold keeps enqueued steps of its scope from being handed out.
type Hold struct {
	HoldUUID      string     `json:"hold_uuid"`
	Kind          string     `json:"kind" enum:"manual,breaker" doc:"A breaker began by itself, because attempts kept failing with one cause."`
	State         string     `json:"state" enum:"active,releasing,ended"`
	Namespace     string     `json:"namespace"`
	Handler       string     `json:"handler" doc:"Empty: of any."`
	TaskName      string     `json:"task_name" doc:"Of the template; empty: of any."`
	StepName      string     `json:"step_name" doc:"Empty: any."`
	CaseID        *string    `json:"case_id" doc:"That it was begun for."`
	Cause         string     `json:"cause" doc:"Of a breaker: what the attempts failed with."`
	CauseKey      string     `json:"cause_key" doc:"Of a breaker: which failures were the same."`
	Reason        string     `json:"reason"`
	Owner         string     `json:"owner"`
	Blocks        bool       `json:"blocks" doc:"Steps of its scope are held. False once the last wave has succeeded, and afterwards."`
	Held          int64      `json:"held" doc:"Steps that it holds now, counted to 100000."`
	HeldIsAtLeast bool       `json:"held_is_at_least" doc:"There may be more."`
	InFlight      int64      `json:"in_flight" doc:"Steps that it let go as a probe or in a wave, and of which nothing is known yet."`
	Released      int64      `json:"released" doc:"How many steps it let go."`
	Waves         []int      `json:"waves" doc:"Of its release."`
	Wave          int        `json:"wave" doc:"How many of them have begun."`
	WaveSince     *time.Time `json:"wave_since"`
	WaveSteps     int        `json:"wave_steps" doc:"Steps of the last of them."`
	Probes        int        `json:"probes"`
	FailedProbes  int        `json:"failed_probes"`
	NextProbeAt   *time.Time `json:"next_probe_at"`
	BeganAt       time.Time  `json:"began_at"`
	EndsAt        time.Time  `json:"ends_at" doc:"Then it is released by itself."`
	WarnedAt      *time.Time `json:"warned_at" doc:"When four fifths of its time were over."`
	EndedAt       *time.Time `json:"ended_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

// HoldList is a page of holds, the newest first.
type HoldList struct {
	Holds      []Hold   `json:"holds"`
	Pagination HoldPage `json:"pagination"`
}

// HoldPage says how a list of holds goes on.
type HoldPage struct {
	Limit      int     `json:"limit"`
	Count      int     `json:"count" doc:"Elements in this answer."`
	HasMore    bool    `json:"has_more" doc:"There are elements after these."`
	NextBefore *string `json:"next_before" doc:"What to ask for as before, to get them."`
}

// HoldDetail is a hold with what happened to it.
type HoldDetail struct {
	Hold
	History  []HoldChange  `json:"history" doc:"Newest first, at most 100."`
	Releases []HoldRelease `json:"releases" doc:"Steps that it let go as a probe or in a wave, newest first, at most 100."`
}

// HoldChange is one line of the history of a hold.
type HoldChange struct {
	At       time.Time       `json:"at"`
	Event    string          `json:"event"`
	Actor    string          `json:"actor"`
	Reason   *string         `json:"reason"`
	Metadata json.RawMessage `json:"metadata"`
}

// HoldRelease is a step that a hold let go as a probe or in a wave.
type HoldRelease struct {
	TaskUUID   string     `json:"task_uuid"`
	StepUUID   string     `json:"step_uuid"`
	Wave       int        `json:"wave" doc:"From 1; 0 is a probe."`
	ReleasedAt time.Time  `json:"released_at"`
	Outcome    *string    `json:"outcome" enum:"succeeded,failed,no_answer,gone" doc:"Null while it is awaited."`
	Failure    *string    `json:"failure" doc:"With what it failed."`
	JudgedAt   *time.Time `json:"judged_at"`
}

// FromHold converts a hold.
func FromHold(h tasker.Hold) Hold {
	return Hold{
		HoldUUID: h.UUID.String(), Kind: string(h.Kind), State: string(h.State), Namespace: h.Namespace, Handler: h.Handler, TaskName: h.TaskName, StepName: h.StepName,
		CaseID: idOrNull(h.CaseID), Cause: h.Cause, CauseKey: h.CauseKey, Reason: h.Reason, Owner: h.Owner, Blocks: h.Blocks,
		Held: h.Held, HeldIsAtLeast: h.Held >= tasker.MaxHeldCount, InFlight: h.InFlight, Released: h.Released,
		Waves: append([]int{}, h.Waves...), Wave: h.Wave, WaveSince: utc(h.WaveSince), WaveSteps: h.WaveSteps,
		Probes: h.Probes, FailedProbes: h.FailedProbes, NextProbeAt: utc(h.NextProbeAt),
		BeganAt: h.BeganAt.UTC(), EndsAt: h.EndsAt.UTC(), WarnedAt: utc(h.WarnedAt), EndedAt: utc(h.EndedAt), UpdatedAt: h.UpdatedAt.UTC(),
	}
}

// FromHoldDetail converts a hold with what happened to it.
func FromHoldDetail(d tasker.HoldDetail) HoldDetail {
	out := HoldDetail{Hold: FromHold(d.Hold), History: []HoldChange{}, Releases: []HoldRelease{}}
	for _, c := range d.History {
		out.History = append(out.History, HoldChange{At: c.At.UTC(), Event: c.Event, Actor: c.Actor, Reason: c.Reason, Metadata: orObject(c.Metadata)})
	}
	for _, r := range d.Releases {
		out.Releases = append(out.Releases, HoldRelease{
			TaskUUID: r.TaskUUID.String(), StepUUID: r.StepUUID.String(), Wave: r.Wave, ReleasedAt: r.ReleasedAt.UTC(),
			Outcome: textOrNull(string(r.Outcome)), Failure: r.Failure, JudgedAt: utc(r.JudgedAt),
		})
	}
	return out
}

// SetLimit is the body of PUT /v1/limits.
type SetLimit struct {
	Kind          string  `json:"kind" enum:"server,namespace,handler,name" doc:"What is limited."`
	Namespace     string  `json:"namespace,omitempty" maxLength:"128" doc:"Whose steps are limited; absent for the server."`
	Name          string  `json:"name,omitempty" maxLength:"128" doc:"The handler, or the name that templates give; absent for the server and a namespace."`
	MaxInProgress int     `json:"max_in_progress,omitempty" minimum:"1" maximum:"10000" doc:"How many steps of one key may be in progress at a time."`
	PerSecond     float64 `json:"per_second,omitempty" minimum:"0" maximum:"1000000" doc:"How many steps of one key may begin in a second. One of the two is needed."`
	Burst         int     `json:"burst,omitempty" minimum:"1" maximum:"1000000" doc:"How many of them may begin at once after a rest; absent: as many as in a second, and one at least."`
	Reason        string  `json:"reason,omitempty" maxLength:"2000" doc:"Why, for the audit log."`
	By            string  `json:"by,omitempty" maxLength:"255" doc:"Who sets it."`
}

// Limit bounds how many steps are in progress at a time, or begin in a second.
type Limit struct {
	Kind          string    `json:"kind" enum:"server,namespace,handler,name"`
	Namespace     string    `json:"namespace" doc:"Empty for the server."`
	Name          string    `json:"name" doc:"The handler, or the name that templates give."`
	MaxInProgress *int      `json:"max_in_progress" doc:"Of each key; null: any number."`
	PerSecond     *float64  `json:"per_second" doc:"How many may begin, of each key; null: any number."`
	Burst         *int      `json:"burst" doc:"How many may begin at once after a rest."`
	ByTemplate    bool      `json:"by_template" doc:"The value is that of the template that was registered last; nobody has set another."`
	ChangedAt     time.Time `json:"changed_at"`
	ChangedBy     string    `json:"changed_by"`
	InProgress    int64     `json:"in_progress" doc:"Places that are taken, of all keys: a step in progress takes one, or as many as its template says. Counting stops at 10000 steps."`
	Waiting       int64     `json:"waiting" doc:"Steps that wait for the limit; counting stops at 10000."`

	Keys []LimitKey `json:"keys" nullable:"true" doc:"With keys=true: those for which most steps wait first, at most 100. Otherwise null."`
}

// LimitList is a page of limits, by namespace, kind and name.
type LimitList struct {
	Limits     []Limit   `json:"limits"`
	Pagination LimitPage `json:"pagination"`
}

// LimitPage says how a list of limits goes on.
type LimitPage struct {
	Limit     int     `json:"limit"`
	Count     int     `json:"count" doc:"Elements in this answer."`
	HasMore   bool    `json:"has_more" doc:"There are elements after these."`
	NextAfter *string `json:"next_after" doc:"What to ask for as after, to get them."`
}

// LimitKey is how a limit stands for one of its keys.
type LimitKey struct {
	Key        string      `json:"key" doc:"Empty where the limit has one key for all."`
	InProgress int64       `json:"in_progress"`
	Waiting    int64       `json:"waiting"`
	FreeAt     *time.Time  `json:"free_at" doc:"When the rate lets the next step begin; null: now."`
	Holders    []LimitStep `json:"holders" doc:"Steps that have a place, the oldest claim first, at most 10."`
}

// LimitStep is a step that has a place of a limit.
type LimitStep struct {
	TaskUUID  string    `json:"task_uuid"`
	StepUUID  string    `json:"step_uuid"`
	StepName  string    `json:"step_name"`
	ClaimedAt time.Time `json:"claimed_at"`
	Weight    int       `json:"weight" doc:"How many places it takes."`
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
	w.Keys = make([]LimitKey, len(d.Keys))
	for i, k := range d.Keys {
		w.Keys[i] = LimitKey{Key: k.Key, InProgress: k.InProgress, Waiting: k.Waiting, FreeAt: k.FreeAt, Holders: make([]LimitStep, len(k.Holders))}
		for j, h := range k.Holders {
			w.Keys[i].Holders[j] = LimitStep{TaskUUID: h.TaskUUID.String(), StepUUID: h.StepUUID.String(), StepName: h.Step, ClaimedAt: h.ClaimedAt.UTC(), Weight: h.Weight}
		}
	}
	return w
}
