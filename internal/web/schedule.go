package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
)

const (
	schedulesPath = Root + "/schedules"
	navSchedules  = "Schedules"

	scheduleRows = 50
	scheduleNext = 10
)

// scheduleLine is a schedule in a list.
type scheduleLine struct{ tasker.ScheduleHealth }

func (l scheduleLine) Path() string { return schedulesPath + "/" + l.UUID.String() }

func (l scheduleLine) Title() string { return l.Namespace + "/" + l.Name }

// Rule formats the rule of the firing times.
func (l scheduleLine) Rule() string {
	switch {
	case l.Every > 0:
		return "every " + l.Every.String()
	case l.AfterEnd > 0:
		return l.AfterEnd.String() + " after the previous task ends"
	case l.Zone != "":
		return l.Cron + " " + l.Zone
	default:
		return l.Cron + " UTC"
	}
}

// Wrong describes the failures of the last tasks, or returns "" if there are too few.
func (l scheduleLine) Wrong() string {
	switch {
	case l.Refused:
		return "last task not created"
	case l.Failing >= tasker.ScheduleFailingMost:
		return "last " + strconv.Itoa(l.Failing) + " tasks or more failed"
	case l.Failing >= tasker.ScheduleFailingFrom:
		return "last " + strconv.Itoa(l.Failing) + " tasks failed"
	default:
		return ""
	}
}

// Chip returns the CSS class of the state.
func (l scheduleLine) Chip() string {
	switch l.State() {
	case tasker.ScheduleActive:
		return "good"
	case tasker.SchedulePaused:
		return "warn"
	case tasker.ScheduleWaiting, tasker.ScheduleOver, tasker.ScheduleDeleted:
	}
	return "off"
}

// schedulesPage lists schedules, by namespace and name.
type schedulesPage struct {
	Paused    bool   // only paused ones
	Add       string // link to add one; empty without permission
	Schedules []scheduleLine
	Pager     pager
}

func (s *server) showSchedules(req *request) (*view, error) {
	q := req.query()
	f := tasker.ScheduleFilter{Paused: readChoice(q, "state", []tasker.ScheduleState{tasker.SchedulePaused}) != "", After: q.readID("after"), Limit: scheduleRows}
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.Engine.Schedules(req.Context(), f)
	if err != nil {
		return nil, err
	}
	p := schedulesPage{Paused: f.Paused}
	if !s.ReadOnly && req.canSee(access.WriteSchedules) {
		p.Add = Root + newSchedulePath
	}
	for _, x := range list {
		p.Schedules = append(p.Schedules, scheduleLine{x})
	}
	if more {
		p.Pager.After = req.buildLink("after", list[len(list)-1].UUID.String())
	}
	return &view{page: "schedules", title: navSchedules, nav: navSchedules, live: true, body: p}, nil
}

// findSchedulePath returns the page of the schedule that created a task, or "" if none did.
func (s *server) findSchedulePath(req *request, t tasker.Task) (string, error) {
	if !strings.HasPrefix(t.Initiator, "schedule:") {
		return "", nil
	}
	f, err := s.DB.FiringOfTask(req.Context(), t.UUID)
	if err != nil || f == nil {
		return "", err
	}
	return schedulesPath + "/" + f.ScheduleUUID.String(), nil
}

// schedulePage shows a schedule with its next and last firings.
type schedulePage struct {
	scheduleLine
	Next    []time.Time
	Firings []tasker.Firing
	History []tasker.ScheduleChange
	Context document
	Verbs   []link
}

// Late formats the delay of a firing. It returns "" for less than a second.
func (schedulePage) Late(f tasker.Firing) string {
	if late := time.Duration(f.LateMS) * time.Millisecond; late >= time.Second {
		return late.Truncate(time.Second).String()
	}
	return ""
}

func (p schedulePage) Except() string { return strings.Join(p.ScheduleRule.Except, ", ") }

func (s *server) showSchedule(req *request) (*view, error) {
	id, err := req.parseID("schedule")
	if err != nil {
		return nil, err
	}
	d, err := s.Engine.Schedule(req.Context(), id, scheduleNext)
	if err != nil {
		return nil, err
	}
	p := schedulePage{
		scheduleLine: scheduleLine{tasker.ScheduleHealth{Schedule: d.Schedule}}, Next: d.Next, Firings: d.Firings, History: d.History,
		Context: newDocument("Context of each task", d.Context, maxShown, ""),
	}
	if d.DeletedAt == nil && s.canShowAction(req, access.OperateSchedules, d.Namespace) {
		for _, v := range scheduleVerbs {
			if checkScheduleVerb(v, d.Schedule) == "" {
				p.Verbs = append(p.Verbs, v.link(p.Path()))
			}
		}
	}
	return &view{page: "schedule", title: "Schedule " + p.Title(), nav: navSchedules, live: true, body: p}, nil
}

const (
	wordPause   = "pause"
	wordResume  = "resume"
	wordTrigger = "trigger"
	wordFill    = "backfill"
)

var scheduleVerbs = []verb{
	{Word: wordTrigger, Name: "Trigger now…", Key: "n", Does: "create a task now",
		Long: "Creates a task now, even if the schedule is paused or its previous task has not ended."},
	{Word: wordPause, Name: "Pause…", Key: "p", Does: "pause the schedule",
		Long: "The schedule creates no tasks until it is resumed or the pause ends. Firing times during the pause are skipped. Existing tasks continue."},
	{Word: wordFill, Name: "Backfill…", Key: "f", Does: "create the missing tasks of past firing times",
		Long: "Creates the missing tasks of past firing times, at most 500, all or none. It is safe to repeat. The form first shows what it would create."},
	{Word: wordResume, Name: "Resume…", Key: "r", Does: "resume the schedule",
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

// newScheduleVerbForm is the form for an action on a schedule.
type scheduleForm struct {
	*server
	form
	verb
	Schedule scheduleLine

	For string // as typed; empty pauses until resumed
	Key string // idempotency key of a trigger

	From, To string // as typed: range of a backfill
	Filled   []tasker.BackfillInstant
}

func (s *server) newScheduleVerbForm(req *request, v verb) (*scheduleForm, error) {
	id, err := req.parseID("schedule")
	if err != nil {
		return nil, err
	}
	d, err := s.Engine.Schedule(req.Context(), id, 0)
	if err != nil {
		return nil, err
	}
	p := &scheduleForm{server: s, verb: v, Schedule: scheduleLine{tasker.ScheduleHealth{Schedule: d.Schedule}}}
	p.form = req.newForm(form{page: "scheduleaction", title: v.button() + ": " + p.Schedule.Title(), nav: navSchedules, Button: v.button(), Back: p.Schedule.Path()})
	p.Refused = checkScheduleVerb(v, d.Schedule)
	p.For, p.From, p.To = req.trimmedField("for"), req.trimmedField("from"), req.trimmedField("to")
	if p.Key = tasker.NewID().String(); req.Method == http.MethodPost {
		p.Key = truncate(req.rawField("key"), 40)
	}
	p.Command = p.command(req)
	return p, nil
}

func (p *scheduleForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	if p.Reason == "" {
		return nil, tasker.Errorf(tasker.Invalid, "the reason is missing: it is recorded in the history")
	}
	ctx, id, c := req.Context(), p.Schedule.UUID, engine.ScheduleChange{Actor: p.Actor, Reason: p.Reason}
	v := &view{next: p.Back}
	var err error
	switch p.Word {
	case wordPause:
		v.note = "The schedule is paused."
		var until *time.Time
		if until, err = p.parseUntil(); err == nil {
			_, err = p.Engine.PauseSchedule(ctx, id, until, c)
		}
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

func (p *scheduleForm) command(req *request) command {
	actor, reason := p.placeholders()
	by := p.actorInBody(actor)
	id := p.Schedule.UUID.String()
	ctl, path := []string{"schedule", p.Word, id}, "/v1/schedules/"+id+"/"+p.Word
	var body any = apiv1.ChangeSchedule{Reason: reason, By: by}
	switch p.Word {
	case wordPause:
		pause := apiv1.PauseSchedule{Reason: reason, By: by}
		if until, err := p.parseUntil(); err == nil && until != nil {
			ctl = append(ctl, "--until", until.UTC().Format(time.RFC3339))
			pause.Until = new(until.UTC())
		}
		body = pause
	case wordFill:
		from, _ := parseTime(p.From)
		to, _ := parseTime(p.To)
		ctl = append(ctl, "--from", from.UTC().Format(time.RFC3339), "--to", to.UTC().Format(time.RFC3339), "--dry-run")
		body = apiv1.BackfillSchedule{From: from.UTC(), To: to.UTC(), DryRun: true, Reason: reason, By: by}
	}
	ctl = append(ctl, "--reason", reason)
	return newCommand(req, append(ctl, p.actorFlags("--by", actor)...), http.MethodPost, path, body)
}
