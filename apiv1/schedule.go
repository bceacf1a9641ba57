package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// ScheduleSpec is what people say of a schedule. It has one of cron, every_seconds and
// after_end_seconds.
type ScheduleSpec struct {
	Namespace          string          `json:"namespace" minLength:"1" maxLength:"128" doc:"Of the schedule and of the template. It never changes."`
	Name               string          `json:"name" minLength:"1" maxLength:"128" doc:"Unique within the namespace."`
	Template           string          `json:"template" minLength:"1" maxLength:"128" doc:"Of which a task is made at each instant."`
	Version            string          `json:"version,omitempty" maxLength:"64" doc:"Of the template; the newest at each instant when absent."`
	Context            json.RawMessage `json:"context,omitempty" doc:"Of each task."`
	NominalKey         string          `json:"nominal_key,omitempty" maxLength:"128" doc:"The key of the context that gets the instant, such as 2026-01-31T01:30:00Z."`
	Priority           int             `json:"priority,omitempty" minimum:"-1000" maximum:"1000"`
	Tags               []string        `json:"tags,omitempty" maxItems:"50"`
	Cron               string          `json:"cron,omitempty" maxLength:"256" doc:"Five fields, or six with the second first."`
	DayMatch           string          `json:"day_match,omitempty" enum:"any,all" doc:"Whether a day must be in any or in all of the two day fields; needed when cron restricts both."`
	Zone               string          `json:"zone,omitempty" maxLength:"128" doc:"The time zone of cron and except, such as Europe/Berlin; UTC when absent."`
	EverySeconds       int64           `json:"every_seconds,omitempty" minimum:"1" maximum:"31622400" doc:"A fixed rate, counted from start_at or from the creation."`
	AfterEndSeconds    int64           `json:"after_end_seconds,omitempty" minimum:"1" maximum:"31622400" doc:"A fixed delay: so long after the task before has ended."`
	Except             []string        `json:"except,omitempty" maxItems:"100" doc:"Days on which no task is made: 2026-12-25, 2026-12-24..2027-01-01, sat."`
	JitterSeconds      int64           `json:"jitter_seconds,omitempty" minimum:"0" maximum:"3600" doc:"Each instant is handled up to so much later, by a time of its own."`
	StartAt            *time.Time      `json:"start_at,omitempty" doc:"No instant is before."`
	EndAt              *time.Time      `json:"end_at,omitempty" doc:"No instant is after."`
	Overlap            string          `json:"overlap,omitempty" enum:"skip,queue,cancel,allow" doc:"What happens at an instant while a task of the schedule has not ended; skip when absent."`
	CatchUp            string          `json:"catch_up,omitempty" enum:"none,last,all" doc:"Which instants are made up for that no server handled in time; last when absent."`
	CatchUpMax         int             `json:"catch_up_max,omitempty" minimum:"1" maximum:"1000" doc:"Of catch_up all: how many, the last of them."`
	StartWithinSeconds int64           `json:"start_within_seconds,omitempty" minimum:"1" maximum:"86400" doc:"An instant that is handled later than this, after the whole jitter, is one to catch up with; 300 when absent."`
}

// CreateSchedule is the body of POST /v1/schedules.
type CreateSchedule struct {
	ScheduleSpec
	Reason string `json:"reason,omitempty" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Who creates it."`
}

// UpdateSchedule is the body of PUT /v1/schedules/{schedule_uuid}: the whole of what people say
// of it.
type UpdateSchedule struct {
	ScheduleSpec
	Revision int    `json:"revision,omitempty" doc:"That was read before; another one is a CONFLICT. Absent: any."`
	Reason   string `json:"reason,omitempty" maxLength:"2000"`
	By       string `json:"by,omitempty" maxLength:"255" doc:"Who changes it."`
}

// PauseSchedule is the body of POST /v1/schedules/{schedule_uuid}/pause.
type PauseSchedule struct {
	Until  *time.Time `json:"until,omitempty" doc:"When it goes on by itself; when somebody resumes it when absent."`
	Reason string     `json:"reason" minLength:"1" maxLength:"2000"`
	By     string     `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// ChangeSchedule is the body of POST /v1/schedules/{schedule_uuid}/resume and …/trigger.
type ChangeSchedule struct {
	Reason string `json:"reason,omitempty" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// BackfillSchedule is the body of POST /v1/schedules/{schedule_uuid}/backfill.
type BackfillSchedule struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to" doc:"Both are included."`
	DryRun bool      `json:"dry_run,omitempty" doc:"Only say what would be done."`
	Reason string    `json:"reason,omitempty" maxLength:"2000"`
	By     string    `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// Schedule makes tasks of a template at the instants of a rule.
type Schedule struct {
	ScheduleUUID string `json:"schedule_uuid"`
	ScheduleSpec
	State        string     `json:"state" enum:"active,paused,waiting,over,deleted" doc:"waiting: a fixed delay waits for its task to end. over: no instant is to come."`
	NextAt       *time.Time `json:"next_at" doc:"The first instant that has no firing yet."`
	FireAt       *time.Time `json:"fire_at" doc:"When a server handles it next."`
	AwaitsTask   *string    `json:"awaits_task" doc:"The task whose end a fixed delay waits for."`
	PausedAt     *time.Time `json:"paused_at"`
	PausedUntil  *time.Time `json:"paused_until"`
	PausedBy     *string    `json:"paused_by"`
	PausedReason *string    `json:"paused_reason"`
	CreatedAt    time.Time  `json:"created_at"`
	CreatedBy    string     `json:"created_by"`
	UpdatedAt    time.Time  `json:"updated_at"`
	Revision     int        `json:"revision" doc:"Goes up with each change of what people say of it."`
}

// ListedSchedule is a schedule of a list.
type ListedSchedule struct {
	Schedule
	Failing        int  `json:"failing" doc:"So many of its last tasks in a row have failed, were cancelled or could not be made; counted to 5. From 3 on something is wrong."`
	FailingAtLeast bool `json:"failing_is_at_least" doc:"There may be more."`
	Refused        bool `json:"refused" doc:"The last task that was due could not be made."`
}

// ScheduleList is a page of schedules, by namespace and name.
type ScheduleList struct {
	Schedules  []ListedSchedule `json:"schedules"`
	Pagination SchedulePage     `json:"pagination"`
}

// SchedulePage says how a list of schedules goes on.
type SchedulePage struct {
	Limit     int     `json:"limit"`
	Count     int     `json:"count" doc:"Elements in this answer."`
	HasMore   bool    `json:"has_more" doc:"There are elements after these."`
	NextAfter *string `json:"next_after" doc:"What to ask for as after, to get them."`
}

// ScheduleDetail is a schedule with what comes next and came last.
type ScheduleDetail struct {
	Schedule
	Next    []time.Time      `json:"next" doc:"The next instants at which a task is made, as far as anybody knows."`
	Firings []Firing         `json:"firings" doc:"Newest first, at most 20."`
	History []ScheduleChange `json:"history" doc:"What people changed, newest first, at most 100."`
}

// Firing says what became of an instant of a schedule, or of instants in a row that made no task
// for the same reason.
type Firing struct {
	Kind         string     `json:"kind" enum:"clock,manual,backfill" doc:"clock: the instant came. manual: somebody asked for a task. backfill: somebody asked for the task of an instant in the past."`
	NominalAt    time.Time  `json:"nominal_at" doc:"The instant by the rule, without jitter."`
	NominalUntil time.Time  `json:"nominal_until" doc:"The last of the instants."`
	Instants     int64      `json:"instants"`
	Outcome      string     `json:"outcome" enum:"started,queued,skipped,merged,missed,refused"`
	Reason       *string    `json:"reason"`
	TaskUUID     *string    `json:"task_uuid"`
	TaskState    *string    `json:"task_state" doc:"Null when there is no task, or none any more."`
	Actor        string     `json:"actor"`
	DecidedAt    time.Time  `json:"decided_at"`
	LateSeconds  float64    `json:"late_seconds" doc:"How long after the instant, with its jitter, a server handled it."`
	EndedAt      *time.Time `json:"ended_at" doc:"When the task ended."`
}

// FiringList is a page of firings, newest first.
type FiringList struct {
	Firings    []Firing   `json:"firings"`
	Pagination FiringPage `json:"pagination"`
}

// FiringPage says how a list of firings goes on.
type FiringPage struct {
	Limit      int        `json:"limit"`
	Count      int        `json:"count" doc:"Elements in this answer."`
	HasMore    bool       `json:"has_more" doc:"There are elements after these."`
	NextBefore *time.Time `json:"next_before" doc:"What to ask for as before, with before_kind, to get them."`
	NextKind   *string    `json:"next_before_kind" enum:"clock,manual,backfill"`
}

// ScheduleChange is one line of the history of a schedule.
type ScheduleChange struct {
	At       time.Time       `json:"at"`
	Event    string          `json:"event"`
	Actor    string          `json:"actor"`
	Reason   *string         `json:"reason"`
	Metadata json.RawMessage `json:"metadata"`
}

// Backfill says what a backfill has done, or would do.
type Backfill struct {
	DryRun   bool              `json:"dry_run"`
	Tasks    int               `json:"tasks" doc:"That are made."`
	Instants []BackfillInstant `json:"instants"`
}

// BackfillInstant is what a backfill does for one instant.
type BackfillInstant struct {
	NominalAt time.Time `json:"nominal_at"`
	Starts    bool      `json:"starts" doc:"A task is made."`
	Reason    *string   `json:"reason" doc:"Why none is."`
	TaskUUID  *string   `json:"task_uuid" doc:"That was made, now or before."`
}

// Spec converts what people say of a schedule.
func (s ScheduleSpec) Spec() tasker.ScheduleSpec {
	return tasker.ScheduleSpec{
		Namespace: s.Namespace, Name: s.Name, Template: s.Template, Version: s.Version, Context: s.Context, NominalKey: s.NominalKey, Priority: s.Priority, Tags: s.Tags,
		ScheduleRule: tasker.ScheduleRule{
			Cron: s.Cron, DayMatch: s.DayMatch, Zone: s.Zone, Every: seconds(s.EverySeconds), AfterEnd: seconds(s.AfterEndSeconds), Except: s.Except,
			Jitter: seconds(s.JitterSeconds), StartAt: s.StartAt, EndAt: s.EndAt,
		},
		Overlap: tasker.Overlap(s.Overlap), CatchUp: tasker.CatchUp(s.CatchUp), CatchUpMax: s.CatchUpMax, StartWithin: seconds(s.StartWithinSeconds),
	}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// FromScheduleSpec converts what people say of a schedule. A fixed delay has neither overlap nor
// catch-up.
func FromScheduleSpec(s tasker.ScheduleSpec) ScheduleSpec {
	out := ScheduleSpec{
		Namespace: s.Namespace, Name: s.Name, Template: s.Template, Version: s.Version, Context: orObject(s.Context), NominalKey: s.NominalKey, Priority: s.Priority,
		Tags: s.Tags, Cron: s.Cron, DayMatch: s.DayMatch, Zone: s.Zone, EverySeconds: int64(s.Every / time.Second), AfterEndSeconds: int64(s.AfterEnd / time.Second),
		Except: s.Except, JitterSeconds: int64(s.Jitter / time.Second), StartAt: utc(s.StartAt), EndAt: utc(s.EndAt), CatchUpMax: s.CatchUpMax,
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
		ScheduleUUID: s.UUID.String(), ScheduleSpec: FromScheduleSpec(s.ScheduleSpec), State: string(s.State()), NextAt: utc(s.NextAt), FireAt: utc(s.FireAt),
		AwaitsTask: idOrNull(s.AwaitsTask), PausedAt: utc(s.PausedAt), PausedUntil: utc(s.PausedUntil), PausedBy: textOrNull(s.PausedBy),
		PausedReason: textOrNull(s.PausedReason), CreatedAt: s.CreatedAt.UTC(), CreatedBy: s.CreatedBy, UpdatedAt: s.UpdatedAt.UTC(), Revision: s.Revision,
	}
}

// FromScheduleHealth converts a schedule of a list.
func FromScheduleHealth(s tasker.ScheduleHealth) ListedSchedule {
	return ListedSchedule{Schedule: FromSchedule(s.Schedule), Failing: s.Failing, FailingAtLeast: s.Failing >= tasker.ScheduleFailingMost, Refused: s.Refused}
}

// FromFiring converts a firing.
func FromFiring(f tasker.Firing) Firing {
	return Firing{
		Kind: string(f.Kind), NominalAt: f.NominalAt.UTC(), NominalUntil: f.NominalUntil.UTC(), Instants: f.Instants, Outcome: string(f.Outcome),
		Reason: textOrNull(f.Reason), TaskUUID: idOrNull(f.TaskUUID), TaskState: textOrNull(string(f.TaskState)), Actor: f.Actor, DecidedAt: f.DecidedAt.UTC(),
		LateSeconds: float64(f.LateMS) / 1000, EndedAt: utc(f.EndedAt),
	}
}

// FromScheduleDetail converts a schedule with what comes next and came last.
func FromScheduleDetail(d tasker.ScheduleDetail) ScheduleDetail {
	out := ScheduleDetail{Schedule: FromSchedule(d.Schedule), Next: []time.Time{}, Firings: []Firing{}, History: []ScheduleChange{}}
	for _, at := range d.Next {
		out.Next = append(out.Next, at.UTC())
	}
	for _, f := range d.Firings {
		out.Firings = append(out.Firings, FromFiring(f))
	}
	for _, c := range d.History {
		out.History = append(out.History, ScheduleChange{At: c.At.UTC(), Event: c.Event, Actor: c.Actor, Reason: textOrNull(c.Reason), Metadata: orObject(c.Metadata)})
	}
	return out
}

// FromBackfill converts what a backfill does.
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
