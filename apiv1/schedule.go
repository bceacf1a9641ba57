package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// ScheduleSpec is the user-defined part of a schedule. It contains exactly one of cron,
// every_seconds and after_end_seconds.
type ScheduleSpec struct {
	Namespace          string          `json:"namespace" minLength:"1" maxLength:"128" doc:"Namespace of the schedule and the template. Immutable."`
	Name               string          `json:"name" minLength:"1" maxLength:"128" doc:"Unique within the namespace." flag:"name" usage:"name of the schedule, unique within the namespace"`
	Template           string          `json:"template" minLength:"1" maxLength:"128" doc:"Name of the template." flag:"template" usage:"template of the tasks"`
	Version            string          `json:"version,omitempty" maxLength:"64" doc:"Version of the template. Default: the newest at each firing." flag:"version" usage:"version of the template (default: the newest at each firing)"`
	Context            json.RawMessage `json:"context,omitempty" doc:"Context of each task."`
	NominalKey         string          `json:"nominal_key,omitempty" maxLength:"128" doc:"Context key that receives the firing time, such as 2026-01-31T01:30:00Z." flag:"nominal-key" usage:"context key that receives the scheduled time"`
	Priority           int             `json:"priority,omitempty" minimum:"-1000" maximum:"1000" flag:"priority" usage:"priority of each task"`
	Tags               []string        `json:"tags,omitempty" maxItems:"50" flag:"tag" usage:"tag of each task; repeatable"`
	Cron               string          `json:"cron,omitempty" maxLength:"256" doc:"Five fields, or six starting with seconds." flag:"cron" usage:"cron expression with five fields, or six with seconds first, such as \"30 2 * * *\""`
	DayMatch           string          `json:"day_match,omitempty" enum:"any,all" doc:"Whether a day must match any or all of the two day fields. Required if cron restricts both." flag:"day-match" usage:"how to combine day-of-month and day-of-week: any or all"`
	Zone               string          `json:"zone,omitempty" maxLength:"128" doc:"Time zone of cron and except, such as Europe/Berlin. Default: UTC." flag:"zone" usage:"time zone of --cron and --except, such as Europe/Berlin (default UTC)"`
	EverySeconds       int64           `json:"every_seconds,omitempty" minimum:"1" maximum:"31622400" doc:"Fixed rate, from start_at or the creation." flag:"every" usage:"fixed rate, such as 15m (instead of --cron)"`
	AfterEndSeconds    int64           `json:"after_end_seconds,omitempty" minimum:"1" maximum:"31622400" doc:"Fixed delay after the end of the previous task." flag:"after-end" usage:"fixed delay after the previous task finishes (instead of --cron)"`
	Except             []string        `json:"except,omitempty" maxItems:"100" doc:"Excluded days: 2026-12-25, 2026-12-24..2027-01-01, sat." flag:"except" usage:"days to skip: 2026-12-25, 2026-12-24..2027-01-01 or sat,sun; repeatable"`
	JitterSeconds      int64           `json:"jitter_seconds,omitempty" minimum:"0" maximum:"3600" doc:"Maximum delay of a firing, different for each." flag:"jitter" usage:"delay each firing randomly by up to this duration"`
	StartAt            *time.Time      `json:"start_at,omitempty" doc:"No earlier firings." flag:"start-at" usage:"earliest firing time, such as 2026-01-31T07:30:00Z"`
	EndAt              *time.Time      `json:"end_at,omitempty" doc:"No later firings." flag:"end-at" usage:"latest firing time"`
	Overlap            string          `json:"overlap,omitempty" enum:"skip,queue,cancel,allow" doc:"Reaction to a firing while a task of the schedule is open. Default: skip." flag:"overlap" usage:"policy while the previous task is open: skip, queue, cancel or allow (default skip)"`
	CatchUp            string          `json:"catch_up,omitempty" enum:"none,last,all" doc:"Which missed firings are executed late. Default: last." flag:"catch-up" usage:"missed firings to run: none, last or all (default last)"`
	CatchUpMax         int             `json:"catch_up_max,omitempty" minimum:"1" maximum:"1000" doc:"Maximum number of missed firings with catch_up all." flag:"catch-up-max" usage:"maximum number of missed firings with --catch-up all"`
	StartWithinSeconds int64           `json:"start_within_seconds,omitempty" minimum:"1" maximum:"86400" doc:"Firings processed later than this, after the full jitter, count as missed. Default: 300." flag:"start-within" usage:"treat a firing that is later than this as missed (default 5m)"`
}

// CreateSchedule is the body of POST /v1/schedules.
type CreateSchedule struct {
	ScheduleSpec
	Reason string `json:"reason,omitempty" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// UpdateSchedule is the body of PUT /v1/schedules/{schedule_uuid}: the complete new spec.
type UpdateSchedule struct {
	ScheduleSpec
	Revision int    `json:"revision,omitempty" doc:"Expected revision. A different one is a CONFLICT. Default: any."`
	Reason   string `json:"reason,omitempty" maxLength:"2000"`
	By       string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// PauseSchedule is the body of POST /v1/schedules/{schedule_uuid}/pause.
type PauseSchedule struct {
	Until  *time.Time `json:"until,omitempty" doc:"When it resumes automatically. Default: only on request." flag:"until" usage:"time at which it resumes, such as 2026-01-31T07:30:00Z (default: until resumed)"`
	Reason string     `json:"reason" minLength:"1" maxLength:"2000"`
	By     string     `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// ChangeSchedule is the body of POST /v1/schedules/{schedule_uuid}/resume and …/trigger.
type ChangeSchedule struct {
	Reason string `json:"reason,omitempty" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// BackfillSchedule is the body of POST /v1/schedules/{schedule_uuid}/backfill.
type BackfillSchedule struct {
	From   time.Time `json:"from" flag:"from" usage:"first firing time (required)" why:"it is the first firing time, such as 2026-01-31T07:30:00Z"`
	To     time.Time `json:"to" doc:"Inclusive, like from." flag:"to" usage:"last firing time (required)" why:"it is the last firing time, such as 2026-01-31T07:30:00Z"`
	DryRun bool      `json:"dry_run,omitempty" doc:"Only report the effect." flag:"dry-run" usage:"show the effect without changing anything"`
	Reason string    `json:"reason,omitempty" maxLength:"2000"`
	By     string    `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// Schedule creates tasks of a template at the firing times of a rule.
type Schedule struct {
	ScheduleUUID string `json:"schedule_uuid"`
	ScheduleSpec
	State        string     `json:"state" enum:"active,paused,waiting,over,deleted" doc:"waiting: a fixed delay waits for its task to end. over: no further firing time."`
	NextAt       *time.Time `json:"next_at" doc:"Next firing time."`
	FireAt       *time.Time `json:"fire_at" doc:"When a server processes it next."`
	AwaitsTask   *string    `json:"awaits_task" doc:"Task that a fixed delay waits for."`
	PausedAt     *time.Time `json:"paused_at"`
	PausedUntil  *time.Time `json:"paused_until"`
	PausedBy     *string    `json:"paused_by"`
	PausedReason *string    `json:"paused_reason"`
	CreatedAt    time.Time  `json:"created_at"`
	CreatedBy    string     `json:"created_by"`
	UpdatedAt    time.Time  `json:"updated_at"`
	Revision     int        `json:"revision" doc:"Incremented by each change of the spec."`
}

// ListedSchedule is a schedule in a list.
type ListedSchedule struct {
	Schedule
	Failing        int  `json:"failing" doc:"Consecutive latest tasks that failed, were cancelled or could not be created. Counting stops at 5. From 3 on, the schedule is considered failing."`
	FailingAtLeast bool `json:"failing_is_at_least" doc:"There may be more."`
	Refused        bool `json:"refused" doc:"The latest due task could not be created."`
}

// ScheduleList is a page of schedules, ordered by namespace and name.
type ScheduleList struct {
	Schedules  []ListedSchedule `json:"schedules"`
	Pagination SchedulePage     `json:"pagination"`
}

// SchedulePage is the pagination of a list of schedules.
type SchedulePage struct {
	Limit     int     `json:"limit"`
	Count     int     `json:"count" doc:"Elements in this response."`
	HasMore   bool    `json:"has_more" doc:"More elements follow."`
	NextAfter *string `json:"next_after" doc:"Value of after for the next page."`
}

// ScheduleDetail is a schedule with its next and last firings.
type ScheduleDetail struct {
	Schedule
	Next    []time.Time      `json:"next" doc:"Upcoming firing times that create a task, if known."`
	Firings []Firing         `json:"firings" doc:"Newest first, at most 20."`
	History []ScheduleChange `json:"history" doc:"Changes by operators, newest first, at most 100."`
}

// Firing records the outcome of one firing time, or of consecutive ones with the same outcome.
type Firing struct {
	Kind         string     `json:"kind" enum:"clock,manual,backfill" doc:"clock: a firing time was reached. manual: an operator triggered it. backfill: an operator requested a firing time in the past."`
	NominalAt    time.Time  `json:"nominal_at" doc:"Firing time without jitter."`
	NominalUntil time.Time  `json:"nominal_until" doc:"Last of the firing times."`
	Instants     int64      `json:"instants"`
	Outcome      string     `json:"outcome" enum:"started,queued,skipped,merged,missed,refused"`
	Reason       *string    `json:"reason"`
	TaskUUID     *string    `json:"task_uuid"`
	TaskState    *string    `json:"task_state" doc:"Null if there is no task or it is deleted."`
	Actor        string     `json:"actor"`
	DecidedAt    time.Time  `json:"decided_at"`
	LateSeconds  float64    `json:"late_seconds" doc:"Delay after the firing time including jitter."`
	EndedAt      *time.Time `json:"ended_at" doc:"End of the task."`
}

// FiringList is a page of firings, newest first.
type FiringList struct {
	Firings    []Firing   `json:"firings"`
	Pagination FiringPage `json:"pagination"`
}

// FiringPage is the pagination of a list of firings.
type FiringPage struct {
	Limit      int        `json:"limit"`
	Count      int        `json:"count" doc:"Elements in this response."`
	HasMore    bool       `json:"has_more" doc:"More elements follow."`
	NextBefore *time.Time `json:"next_before" doc:"Value of before for the next page, together with before_kind."`
	NextKind   *string    `json:"next_before_kind" enum:"clock,manual,backfill"`
}

// ScheduleChange is one row of the history of a schedule.
type ScheduleChange struct {
	At       time.Time       `json:"at"`
	Event    string          `json:"event"`
	Actor    string          `json:"actor"`
	Reason   *string         `json:"reason"`
	Metadata json.RawMessage `json:"metadata"`
}

// Backfill is the effect of a backfill.
type Backfill struct {
	DryRun   bool              `json:"dry_run"`
	Tasks    int               `json:"tasks" doc:"Created tasks."`
	Instants []BackfillInstant `json:"instants"`
}

// BackfillInstant is the effect of a backfill on one firing time.
type BackfillInstant struct {
	NominalAt time.Time `json:"nominal_at"`
	Starts    bool      `json:"starts" doc:"A task is created."`
	Reason    *string   `json:"reason" doc:"Why no task is created."`
	TaskUUID  *string   `json:"task_uuid" doc:"Task created now or earlier."`
}

// Spec converts s to the domain type.
func (s ScheduleSpec) Spec() tasker.ScheduleSpec {
	return tasker.ScheduleSpec{
		Namespace: s.Namespace, Name: s.Name, Template: s.Template, Version: s.Version, Context: s.Context, NominalKey: s.NominalKey, Priority: s.Priority, Tags: s.Tags,
		ScheduleRule: tasker.ScheduleRule{
			Cron: s.Cron, DayMatch: s.DayMatch, Zone: s.Zone, Every: toDuration(s.EverySeconds), AfterEnd: toDuration(s.AfterEndSeconds), Except: s.Except,
			Jitter: toDuration(s.JitterSeconds), StartAt: s.StartAt, EndAt: s.EndAt,
		},
		Overlap: tasker.Overlap(s.Overlap), CatchUp: tasker.CatchUp(s.CatchUp), CatchUpMax: s.CatchUpMax, StartWithin: toDuration(s.StartWithinSeconds),
	}
}

func toDuration(n int64) time.Duration { return time.Duration(n) * time.Second }

// FromScheduleSpec converts a spec. A fixed delay has neither overlap nor catch-up.
func FromScheduleSpec(s tasker.ScheduleSpec) ScheduleSpec {
	out := ScheduleSpec{
		Namespace: s.Namespace, Name: s.Name, Template: s.Template, Version: s.Version, Context: orObject(s.Context), NominalKey: s.NominalKey, Priority: s.Priority,
		Tags: s.Tags, Cron: s.Cron, DayMatch: s.DayMatch, Zone: s.Zone, EverySeconds: int64(s.Every / time.Second), AfterEndSeconds: int64(s.AfterEnd / time.Second),
		Except: s.Except, JitterSeconds: int64(s.Jitter / time.Second), StartAt: toUTC(s.StartAt), EndAt: toUTC(s.EndAt), CatchUpMax: s.CatchUpMax,
		StartWithinSeconds: int64(s.StartWithin / time.Second),
	}
	if s.AfterEnd == 0 {
		out.Overlap, out.CatchUp = string(s.Overlap), string(s.CatchUp)
	}
	return out
}

// FromSchedule converts a schedule.
func FromSchedule(s tasker.Schedule) Schedule {
	return Schedule{
		ScheduleUUID: s.UUID.String(), ScheduleSpec: FromScheduleSpec(s.ScheduleSpec), State: string(s.State()), NextAt: toUTC(s.NextAt), FireAt: toUTC(s.FireAt),
		AwaitsTask: idOrNull(s.AwaitsTask), PausedAt: toUTC(s.PausedAt), PausedUntil: toUTC(s.PausedUntil), PausedBy: textOrNull(s.PausedBy),
		PausedReason: textOrNull(s.PausedReason), CreatedAt: s.CreatedAt.UTC(), CreatedBy: s.CreatedBy, UpdatedAt: s.UpdatedAt.UTC(), Revision: s.Revision,
	}
}

// FromScheduleHealth converts a schedule and its recent failures to a row of the schedule list.
func FromScheduleHealth(s tasker.ScheduleHealth) ListedSchedule {
	return ListedSchedule{Schedule: FromSchedule(s.Schedule), Failing: s.Failing, FailingAtLeast: s.Failing >= tasker.ScheduleFailingMost, Refused: s.Refused}
}

// FromFiring converts a firing.
func FromFiring(f tasker.Firing) Firing {
	return Firing{
		Kind: string(f.Kind), NominalAt: f.NominalAt.UTC(), NominalUntil: f.NominalUntil.UTC(), Instants: f.Instants, Outcome: string(f.Outcome),
		Reason: textOrNull(f.Reason), TaskUUID: idOrNull(f.TaskUUID), TaskState: textOrNull(string(f.TaskState)), Actor: f.Actor, DecidedAt: f.DecidedAt.UTC(),
		LateSeconds: float64(f.LateMS) / 1000, EndedAt: toUTC(f.EndedAt),
	}
}

// FromScheduleDetail converts a schedule with its firings.
func FromScheduleDetail(d tasker.ScheduleDetail) ScheduleDetail {
	out := ScheduleDetail{Schedule: FromSchedule(d.Schedule), Next: convert(d.Next, time.Time.UTC), Firings: convert(d.Firings, FromFiring), History: []ScheduleChange{}}
	for _, c := range d.History {
		out.History = append(out.History, ScheduleChange{At: c.At.UTC(), Event: c.Event, Actor: c.Actor, Reason: textOrNull(c.Reason), Metadata: orObject(c.Metadata)})
	}
	return out
}

// FromBackfill converts a backfill.
func FromBackfill(dryRun bool, list []tasker.BackfillInstant) Backfill {
	out := Backfill{DryRun: dryRun, Instants: []BackfillInstant{}}
	for _, x := range list {
		if x.Starts {
			out.Tasks++
		}
		out.Instants = append(out.Instants, BackfillInstant{NominalAt: x.NominalAt.UTC(), Starts: x.Starts, Reason: textOrNull(x.Reason), TaskUUID: idOrNull(x.TaskUUID)})
	}
	return out
}
