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

// scheduleRoutes are the pages of schedules.
func (s *server) scheduleRoutes() []route {
	list := []route{
		{method: http.MethodGet, path: "/schedules", rule: access.Rule{Needs: access.ReadTasks}, serve: s.schedules},
		{method: http.MethodGet, path: "/schedules/{schedule}", rule: access.Rule{Needs: access.ReadTasks}, serve: s.onSchedule},
	}
	list = append(list, actionRoutes(s, newSchedulePath, access.WriteSchedules, s.newScheduleForm)...)
	for _, v := range scheduleVerbs {
		list = append(list, actionRoutes(s, "/schedules/{schedule}/"+v.Word, access.OperateSchedules,
			func(req *request) (*scheduleForm, error) { return s.scheduleForm(req, v) })...)
	}
	return list
}

// A scheduleLine is a schedule as pages show it.
type scheduleLine struct{ tasker.ScheduleHealth }

// Path is its page.
func (l scheduleLine) Path() string { return schedulesPath + "/" + l.UUID.String() }

// Title names it.
func (l scheduleLine) Title() string { return l.Namespace + "/" + l.Name }

// Rule says when it makes tasks.
func (l scheduleLine) Rule() string {
	switch {
	case l.Every > 0:
		return "every " + l.Every.String()
	case l.AfterEnd > 0:
		return l.AfterEnd.String() + " after the end of the task before"
	case l.Zone != "":
		return l.Cron + " " + l.Zone
	default:
		return l.Cron + " UTC"
	}
}

// Wrong says what is wrong with its last tasks; empty when nothing is.
func (l scheduleLine) Wrong() string {
	switch {
	case l.Refused:
		return "its last task could not be made"
	case l.Failing >= tasker.ScheduleFailingMost:
		return "its last " + strconv.Itoa(l.Failing) + " tasks or more did not succeed"
	case l.Failing >= tasker.ScheduleFailingFrom:
		return "its last " + strconv.Itoa(l.Failing) + " tasks did not succeed"
	default:
		return ""
	}
}

// Chip is the class of its state.
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

// A schedulesPage lists schedules, by namespace and name.
type schedulesPage struct {
	Paused    bool   // only those that are paused
	Add       string // where one is added; empty: the caller may not
	Schedules []scheduleLine
	Pager     pager
}

func (s *server) schedules(req *request) (*view, error) {
	q := req.query()
	f := tasker.ScheduleFilter{Paused: choice(q, "state", []tasker.ScheduleState{tasker.SchedulePaused}) != "", Limit: scheduleRows}
	if text := q.Get("after"); text != "" {
		var id tasker.ID
		if id.UnmarshalText([]byte(text)) != nil {
			q.refuse("after", "the id of a schedule")
		}
		f.After = &id
	}
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.Engine.Schedules(req.Context(), f)
	if err != nil {
		return nil, err
	}
	p := schedulesPage{Paused: f.Paused}
	if !s.ReadOnly && req.sees(access.WriteSchedules) {
		p.Add = Root + newSchedulePath
	}
	for _, x := range list {
		p.Schedules = append(p.Schedules, scheduleLine{x})
	}
	if more {
		p.Pager.After = req.link("after", list[len(list)-1].UUID.String())
	}
	return &view{page: "schedules", title: navSchedules, nav: navSchedules, live: true, body: p}, nil
}

// scheduleOf is the page of the schedule that made a task; empty when none did.
func (s *server) scheduleOf(req *request, t tasker.Task) (string, error) {
	if !strings.HasPrefix(t.Initiator, "schedule:") {
		return "", nil
	}
	f, err := s.DB.FiringOfTask(req.Context(), t.UUID)
	if err != nil || f == nil {
		return "", err
	}
	return schedulesPath + "/" + f.ScheduleUUID.String(), nil
}

// A schedulePage is one schedule with what comes next and came last.
type schedulePage struct {
	scheduleLine
	Next    []time.Time
	Firings []tasker.Firing
	History []tasker.ScheduleChange
	Context document
	Verbs   []caseLink
}

// Late is how late a firing was, in words; empty when it was on time.
func (schedulePage) Late(f tasker.Firing) string {
	if late := time.Duration(f.LateMS) * time.Millisecond; late >= time.Second {
		return late.Truncate(time.Second).String()
	}
	return ""
}

// Except says on which days it makes no tasks.
func (p schedulePage) Except() string { return strings.Join(p.ScheduleRule.Except, ", ") }

func (s *server) onSchedule(req *request) (*view, error) {
	id, err := req.id("schedule")
	if err != nil {
		return nil, err
	}
	d, err := s.Engine.Schedule(req.Context(), id, scheduleNext)
	if err != nil {
		return nil, err
	}
	p := schedulePage{
		scheduleLine: scheduleLine{tasker.ScheduleHealth{Schedule: d.Schedule}}, Next: d.Next, Firings: d.Firings, History: d.History,
		Context: documentOf("Context of each task", d.Context, maxShown, ""),
	}
	if d.DeletedAt == nil && s.showsAction(req, access.OperateSchedules, d.Namespace) {
		for _, v := range scheduleVerbs {
			if v.refusal(d.Schedule) == "" {
				p.Verbs = append(p.Verbs, caseLink{Name: v.Name, Href: p.Path() + "/" + v.Word, Key: v.Key, Does: v.Does})
			}
		}
	}
	return &view{page: "schedule", title: "Schedule " + p.Title(), nav: navSchedules, live: true, body: p}, nil
}

// A scheduleVerb acts on a schedule, in the words of tasker-ctl.
type scheduleVerb struct {
	Word, Name, Key, Does string
	Long                  string
}

const (
	wordPause   = "pause"
	wordResume  = "resume"
	wordTrigger = "trigger"
	wordFill    = "backfill"
)

var scheduleVerbs = []scheduleVerb{
	{Word: wordTrigger, Name: "Trigger now…", Key: "n", Does: "make a task at once",
		Long: "A task is made at once, beside those of the instants, also when the schedule is paused or a task of it has not ended."},
	{Word: wordPause, Name: "Pause…", Key: "p", Does: "make no tasks until somebody resumes it",
		Long: "The schedule makes no tasks by itself until somebody resumes it, or until the time is over. The instants in between make no tasks, and one firing says so. Tasks that it has made go on."},
	{Word: wordFill, Name: "Backfill…", Key: "f", Does: "make the tasks of instants in the past that have none",
		Long: "The tasks of instants in the past that have none are made at once, at most 500, all or none. An instant that has its task gets no other, so it is safe to repeat. At first the form only says what would be done."},
	{Word: wordResume, Name: "Resume…", Key: "r", Does: "make tasks again",
		Long: "The schedule makes tasks again, from the next instant on. The instants within the pause make none."},
}

// refusal says why the verb makes no sense for a schedule; empty when it does.
func (v scheduleVerb) refusal(s tasker.Schedule) string {
	switch {
	case s.DeletedAt != nil:
		return "The schedule was deleted."
	case v.Word == wordPause && s.PausedAt != nil:
		return "The schedule is paused already."
	case v.Word == wordResume && s.PausedAt == nil:
		return "The schedule is not paused."
	default:
		return ""
	}
}

// A scheduleForm acts on a schedule.
type scheduleForm struct {
	*server
	form
	scheduleVerb
	Schedule scheduleLine

	For string // as typed: how long the pause lasts; empty: until somebody resumes it
	Key string // of a trigger, so that the same form makes one task, however often it is sent

	From, To string // as typed: the instants of a backfill
	Filled   []tasker.BackfillInstant
}

// Takes reports whether the form asks for how long.
func (p *scheduleForm) Takes() bool { return p.Word == wordPause }

// Triggers reports whether the form makes a task at once.
func (p *scheduleForm) Triggers() bool { return p.Word == wordTrigger }

// Fills reports whether the form asks for the instants of a backfill.
func (p *scheduleForm) Fills() bool { return p.Word == wordFill }

func (s *server) scheduleForm(req *request, v scheduleVerb) (*scheduleForm, error) {
	id, err := req.id("schedule")
	if err != nil {
		return nil, err
	}
	d, err := s.Engine.Schedule(req.Context(), id, 0)
	if err != nil {
		return nil, err
	}
	p := &scheduleForm{server: s, scheduleVerb: v, Schedule: scheduleLine{tasker.ScheduleHealth{Schedule: d.Schedule}}}
	name := strings.TrimSuffix(v.Name, "…")
	p.form = req.formOf(form{page: "scheduleaction", title: name + ": " + p.Schedule.Title(), nav: navSchedules, Button: name, Back: p.Schedule.Path()})
	p.Refused = v.refusal(d.Schedule)
	p.For, p.From, p.To = strings.TrimSpace(req.PostFormValue("for")), strings.TrimSpace(req.PostFormValue("from")), strings.TrimSpace(req.PostFormValue("to"))
	if p.Key = tasker.NewID().String(); req.Method == http.MethodPost {
		p.Key = clip(req.typed("key"), 40)
	}
	p.Command = p.command(req)
	return p, nil
}

func (p *scheduleForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	if p.Reason == "" {
		return nil, tasker.Errorf(tasker.Invalid, "reason is missing")
	}
	ctx, id, c := req.Context(), p.Schedule.UUID, engine.ScheduleChange{Actor: p.Actor, Reason: p.Reason}
	v := &view{next: p.Back}
	var err error
	switch p.Word {
	case wordPause:
		v.note = "The schedule is paused."
		var until *time.Time
		if until, err = p.until(); err == nil {
			_, err = p.Engine.PauseSchedule(ctx, id, until, c)
		}
	case wordResume:
		v.note = "The schedule makes tasks again."
		_, err = p.Engine.ResumeSchedule(ctx, id, c)
	case wordFill:
		return p.fill(req, c)
	default:
		v.note = "A task was made."
		if p.Key != "" {
			c.RequestKey = requestKey(p.Key, p.Actor, p.Reason)
		}
		_, err = p.Engine.TriggerSchedule(ctx, id, c)
	}
	return v, asTyped(err)
}

// fill makes the tasks of instants in the past, or says what it would do.
func (p *scheduleForm) fill(req *request, by engine.ScheduleChange) (*view, error) {
	b := engine.Backfill{DryRun: req.PostFormValue("do") != "fill"}
	var err error
	if b.From, err = readInstant(p.From); err != nil {
		return nil, err
	}
	if b.To, err = readInstant(p.To); err != nil {
		return nil, err
	}
	if b.From.IsZero() || b.To.IsZero() {
		return nil, tasker.Errorf(tasker.Invalid, "say from which instant to which, such as 2026-01-31T12:00:00Z")
	}
	if p.Filled, err = p.Engine.BackfillSchedule(req.Context(), p.Schedule.UUID, b, by); err != nil {
		return nil, asTyped(err)
	}
	if b.DryRun {
		return p.view(p, http.StatusOK), nil
	}
	made := 0
	for _, x := range p.Filled {
		if x.Starts {
			made++
		}
	}
	return &view{next: p.Back, note: count(made, "task") + " made."}, nil
}

// until is when the pause ends; nil when somebody has to end it.
func (p *scheduleForm) until() (*time.Time, error) {
	if p.For == "" {
		return nil, nil //nolint:nilnil // a pause without an end
	}
	long, err := time.ParseDuration(p.For)
	if err != nil || long <= 0 {
		return nil, tasker.Errorf(tasker.Invalid, "invalid time %q: must be a duration such as 30m or 8h", clip(p.For, 40))
	}
	until := time.Now().Add(long).Truncate(time.Second)
	return &until, nil
}

// command returns the same from a terminal.
func (p *scheduleForm) command(req *request) command {
	actor, reason := p.placeholders()
	by := p.byInBody(actor)
	id := p.Schedule.UUID.String()
	ctl, path := []string{"schedule", p.Word, id}, "/v1/schedules/"+id+"/"+p.Word
	var body any = apiv1.ChangeSchedule{Reason: reason, By: by}
	if p.Word == wordPause {
		pause := apiv1.PauseSchedule{Reason: reason, By: by}
		if until, err := p.until(); err == nil && until != nil {
			ctl = append(ctl, "--until", until.UTC().Format(time.RFC3339))
			utc := until.UTC()
			pause.Until = &utc
		}
		body = pause
	}
	if p.Word == wordFill {
		from, _ := readInstant(p.From)
		to, _ := readInstant(p.To)
		ctl = append(ctl, "--from", from.UTC().Format(time.RFC3339), "--to", to.UTC().Format(time.RFC3339), "--dry-run")
		body = apiv1.BackfillSchedule{From: from.UTC(), To: to.UTC(), DryRun: true, Reason: reason, By: by}
	}
	ctl = append(ctl, "--reason", reason)
	return commandOf(req, append(ctl, p.by("--by", actor)...), http.MethodPost, path, body)
}
