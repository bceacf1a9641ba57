package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/engine"
)

const (
	schedulesPath = Root + "/schedules"
	navSchedules  = "Schedules"

	scheduleNext = 10
)

func schedulePath(id tasker.ID) string { return schedulesPath + "/" + id.String() }

// describeFailing describes the failures of the last tasks, or returns "" if there are too few.
func describeFailing(h tasker.ScheduleHealth) string {
	switch {
	case h.Refused:
		return "last task not created"
	case h.Failing >= tasker.ScheduleFailingMost:
		return "last " + strconv.Itoa(h.Failing) + " tasks or more failed"
	case h.Failing >= tasker.ScheduleFailingFrom:
		return "last " + strconv.Itoa(h.Failing) + " tasks failed"
	default:
		return ""
	}
}

func (s *server) showSchedules(req *request) (*view, error) {
	q := req.query()
	f := tasker.ScheduleFilter{Paused: readChoice(q, "state", []tasker.ScheduleState{tasker.SchedulePaused}) != "",
		After: q.readID("after"), Limit: listRows}
	list, more := loadPage(req, s.Engine.Schedules, f)
	p := newListPage(req, list, more, "after", func(h tasker.ScheduleHealth) any { return h.UUID })
	return &view{page: "schedules", title: navSchedules, nav: navSchedules, live: true, body: p}, nil
}

// findSchedulePath returns the page of the schedule that created a task, or "" if none did.
func (s *server) findSchedulePath(req *request, t tasker.Task) string {
	if !strings.HasPrefix(t.Initiator, "schedule:") {
		return ""
	}
	f := load(req, s.DB.FiringOfTask, t.UUID)
	if f == nil {
		return ""
	}
	return schedulePath(f.ScheduleUUID)
}

type schedulePage struct {
	tasker.ScheduleDetail
	Document document // context of each task
	Verbs    []link
}

func (s *server) showSchedule(req *request) (*view, error) {
	d, err := s.Engine.Schedule(req.Context(), req.pathID("schedule"), scheduleNext)
	if err != nil {
		return nil, err
	}
	p := schedulePage{ScheduleDetail: d, Document: newDocument("Context of each task", d.Context, maxShown, "")}
	if d.DeletedAt == nil && s.canShowAction(req, access.OperateSchedules, d.Namespace) {
		p.Verbs = linkVerbs(schedulePath(d.UUID), scheduleVerbs,
			func(v verb) string { return checkScheduleVerb(v, d.Schedule) })
	}
	return &view{page: "schedule", title: "Schedule " + d.Namespace + "/" + d.Name, nav: navSchedules, live: true,
		body: p}, nil
}

const (
	wordPause   = "pause"
	wordResume  = "resume"
	wordTrigger = "trigger"
	wordFill    = "backfill"
)

var scheduleVerbs = []verb{
	{Word: wordTrigger, Name: "Trigger now…", Key: "n", Does: "create a task now", endpoint: endpoint.TriggerSchedule,
		Long: "Creates a task now, even if the schedule is paused or its previous task has not ended."},
	{Word: wordPause, Name: "Pause…", Key: "p", Does: "pause the schedule", endpoint: endpoint.PauseSchedule,
		Long: "The schedule creates no tasks until it is resumed or the pause ends. Firing times during the pause are skipped. Existing tasks continue."},
	{Word: wordFill, Name: "Backfill…", Key: "f", Does: "create the missing tasks of past firing times",
		endpoint: endpoint.BackfillSchedule,
		Long:     "Creates the missing tasks of past firing times, at most 500, all or none. It is safe to repeat. The form first shows what it would create."},
	{Word: wordResume, Name: "Resume…", Key: "r", Does: "resume the schedule", endpoint: endpoint.ResumeSchedule,
		Long: "The schedule creates tasks again from the next firing time. Firing times during the pause stay skipped."},
}

// checkScheduleVerb returns why a schedule does not accept an action, or "" if it does.
func checkScheduleVerb(v verb, s tasker.Schedule) string {
	switch {
	case s.DeletedAt != nil:
		return "The schedule was deleted."
	case v.Word == wordPause && s.PausedAt != nil:
		return "The schedule is already paused."
	case v.Word == wordResume && s.PausedAt == nil:
		return "The schedule is not paused."
	default:
		return ""
	}
}

// scheduleForm is the form for an action on a schedule.
type scheduleForm struct {
	form
	verb
	Schedule tasker.Schedule

	For string // as typed; empty pauses until resumed
	Key string // idempotency key of a trigger

	From, To string // as typed: range of a backfill
	Filled   []tasker.BackfillInstant
}

func (s *server) newScheduleVerbForm(req *request, v verb) *scheduleForm {
	d, err := s.Engine.Schedule(req.Context(), req.pathID("schedule"), 0)
	req.fail(err)
	p := &scheduleForm{verb: v, Schedule: d.Schedule}
	p.form = req.newForm(form{
		page: "scheduleaction", title: v.button() + ": " + d.Namespace + "/" + d.Name, nav: navSchedules,
		Button: v.button(),
		Back:   schedulePath(d.UUID), maxReason: maxReason,
	})
	p.Refused = checkScheduleVerb(v, d.Schedule)
	p.For, p.From, p.To = req.trimmedField("for"), req.trimmedField("from"), req.trimmedField("to")
	if p.Key = tasker.NewID().String(); req.Method == http.MethodPost {
		p.Key = truncate(req.rawField("key"), 40)
	}
	p.Command = p.command()
	return p
}

func (p *scheduleForm) do(req *request) (*view, error) {
	ctx, id, c := req.Context(), p.Schedule.UUID, engine.ScheduleChange{Actor: p.Actor, Reason: p.Reason}
	v := &view{next: p.Back}
	var err error
	switch p.Word {
	case wordPause:
		v.note = "The schedule is paused."
		until, invalid := p.parseUntil()
		if invalid != nil {
			return nil, invalid
		}
		_, err = p.Engine.PauseSchedule(ctx, id, until, c)
	case wordResume:
		v.note = "The schedule is active."
		_, err = p.Engine.ResumeSchedule(ctx, id, c)
	case wordFill:
		return p.fill(req, c)
	default:
		v.note = "A task was created."
		if p.Key != "" {
			c.RequestKey = newRequestKey(p.Key, p.Actor, p.Reason)
		}
		_, err = p.Engine.TriggerSchedule(ctx, id, c)
	}
	return v, asInputError(err)
}

// fill creates the missing tasks of past firing times, or shows them in a dry run.
func (p *scheduleForm) fill(req *request, by engine.ScheduleChange) (*view, error) {
	b := engine.Backfill{DryRun: req.PostFormValue("do") != "fill"}
	var err error
	if b.From, err = parseTime(p.From); err != nil {
		return nil, err
	}
	if b.To, err = parseTime(p.To); err != nil {
		return nil, err
	}
	if b.From.IsZero() || b.To.IsZero() {
		return nil, tasker.Errorf(tasker.Invalid, "the times are missing: enter both, such as 2026-01-31T12:00:00Z")
	}
	if p.Filled, err = p.Engine.BackfillSchedule(req.Context(), p.Schedule.UUID, b, by); err != nil {
		return nil, asInputError(err)
	}
	if b.DryRun {
		return p.view(p, http.StatusOK), nil
	}
	created := 0
	for _, x := range p.Filled {
		if x.Starts {
			created++
		}
	}
	return &view{next: p.Back, note: formatCount(created, "task") + " created."}, nil
}

// parseUntil returns the end of the pause, or nil for a pause without end.
func (p *scheduleForm) parseUntil() (*time.Time, error) {
	if p.For == "" {
		return nil, nil //nolint:nilnil // a pause without end
	}
	d, err := parseDuration(p.For)
	if err != nil {
		return nil, err
	}
	return new(time.Now().Add(d).Truncate(time.Second)), nil
}

func (p *scheduleForm) command() command {
	c := p.newCall(p.endpoint, "schedule "+p.Word, p.Schedule.UUID.String())
	switch p.Word {
	case wordPause:
		if until, err := p.parseUntil(); err == nil && until != nil {
			c.flag("--until", until.UTC().Format(time.RFC3339))
			c.member("until", until.UTC())
		}
	case wordFill:
		from, _ := parseTime(p.From)
		to, _ := parseTime(p.To)
		c.set("--from", "from", from.UTC().Format(time.RFC3339))
		c.set("--to", "to", to.UTC().Format(time.RFC3339))
		c.set("--dry-run", "dry_run", true)
	}
	c.setReason()
	c.setActor("--by", "by")
	return c.format()
}

// formatDelay formats the delay of a firing. It returns "" for less than a second.
func formatDelay(ms int64) string {
	if late := time.Duration(ms) * time.Millisecond; late >= time.Second {
		return late.Truncate(time.Second).String()
	}
	return ""
}
