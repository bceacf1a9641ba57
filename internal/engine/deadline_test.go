package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// dueLater has so much of the time until all due times be over, and what follows from it done.
func (h *harness) dueLater(d time.Duration) {
	h.Helper()
	h.Exec(`UPDATE tasker.deadlines SET due_at = due_at - $1::interval, warn_at = warn_at - $1::interval, set_at = set_at - $1::interval,
		look_at = CASE WHEN look_at < 'infinity' THEN look_at - $1::interval ELSE look_at END`, d)
	h.Tick()
}

// wantDue expects a due time to stand so, and people to have been told so of it.
func (h *harness) wantDue(what string, due *tasker.Deadline, id tasker.ID, state tasker.DeadlineState, told ...string) {
	h.Helper()
	require(h, due != nil, "%s: it has no due time", what)
	check(h, due.State == state, "%s: it is %s, want %s: %+v", what, due.State, state, due)
	var all []string
	for _, topic := range []string{tasker.TaskDueSoonTopic, tasker.StepDueSoonTopic, tasker.TaskOverdueTopic, tasker.StepOverdueTopic} {
		all = append(all, h.said(topic, id)...)
	}
	require(h, len(all) == len(told), "%s: people were told %q, want %q", what, all, told)
	for i, words := range told {
		check(h, strings.Contains(all[i], words), "%s: people were told %q, want %q", what, all[i], words)
	}
}

func TestDueTimesAreNotifiedOnce(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", DueAt: time.Now().Add(time.Hour)})
	free := h.Create("one")
	if due := h.Task(free).Due; due != nil {
		t.Errorf("a task without a due time is due at %v", due)
	}
	due := h.Task(task).Due
	h.wantDue("new", due, task, tasker.DeadlineAhead)
	if before := due.DueAt.Sub(due.WarnAt).Round(time.Second); before != 12*time.Minute || due.Source != tasker.DueByRequest || due.Overdue != tasker.OverdueNotify {
		t.Errorf("people are warned %s before: %+v", before, due)
	}
	h.dueLater(0)
	h.wantDue("later", h.Task(task).Due, task, tasker.DeadlineAhead)
	h.dueLater(50 * time.Minute)
	h.Tick()
	due = h.Task(task).Due
	h.wantDue("soon", due, task, tasker.DeadlineSoon, "a task of one is due in 9 minutes, at ")
	check(t, due.WarnedAt != nil && due.AnnouncedAt == nil, "it is told so: %+v", due)
	h.dueLater(3 * time.Hour)
	h.Tick()
	due = h.Task(task).Due
	h.wantDue("overdue", due, task, tasker.DeadlineOverdue, "due in 9 minutes", "a task of one is overdue for 2 hours; it was due at ")
	check(t, due.AnnouncedAt != nil, "it is told so: %+v", due)
	h.WantState(task, tasker.TaskStepsInProcess)
	h.Succeed(h.Claim()...)
	h.wantDue("ended", h.Task(task).Due, task, tasker.DeadlineMissed, "due in", "overdue for")
}

func TestMissedDueTimesAreNotifiedLate(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	create := func() tasker.ID {
		return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", DueAfter: time.Hour})
	}
	done := create()
	h.Complete("a")
	cancelled, late := create(), create()
	h.Cancel(cancelled)
	h.dueLater(50 * time.Hour)
	h.wantDue("late", h.Task(late).Due, late, tasker.DeadlineOverdue, "overdue for 2 days")
	h.wantDue("cancelled", h.Task(cancelled).Due, cancelled, tasker.DeadlineEnded)
	due := h.Task(done).Due
	check(t, due.WarnedAt == nil && due.AnnouncedAt == nil, "of a task that is complete people were told: %+v", due)
	given := create()
	h.fail(h.Claim())
	h.Abandon(given)
	h.dueLater(2 * time.Hour)
	h.wantDue("given up", h.Task(given).Due, given, tasker.DeadlineEnded)
}

// fail fails attempts for good.
func (h *harness) fail(list []tasker.Assignment) {
	h.Helper()
	for _, a := range list {
		h.Accepted(failure(a, false))
	}
}

func TestDueTimeOfARequestOverridesItsTemplate(t *testing.T) {
	h := newHarness(t)
	h.Register(tasker.Template{Name: "day", Due: tasker.DuePolicy{AfterSeconds: 86400, WarnBeforeSeconds: new(600)}, Steps: []tasker.StepTemplate{enginetest.Step("a")}})
	h.Register(tasker.Template{Name: "by", Due: tasker.DuePolicy{At: "timestamp(context.by)"}, Steps: []tasker.StepTemplate{enginetest.Step("a")}})
	at := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	for name, tt := range map[string]struct {
		of   string
		r    tasker.NewTask
		due  time.Time
		warn time.Duration
		by   tasker.DeadlineSource
	}{
		"the template says it":       {"day", tasker.NewTask{}, time.Now().Add(24 * time.Hour), 10 * time.Minute, tasker.DueByTemplate},
		"after a start that waits":   {"day", tasker.NewTask{StartAfter: time.Hour}, time.Now().Add(25 * time.Hour), 10 * time.Minute, tasker.DueByTemplate},
		"the request comes first":    {"day", tasker.NewTask{DueAt: at}, at, 10 * time.Minute, tasker.DueByRequest},
		"so long after":              {"day", tasker.NewTask{DueAfter: 30 * time.Minute}, time.Now().Add(30 * time.Minute), 10 * time.Minute, tasker.DueByRequest},
		"an expression says it":      {"by", tasker.NewTask{Context: fmt.Appendf(nil, `{"by": %q}`, at.Format(time.RFC3339))}, at, 24 * time.Minute, tasker.DueByTemplate},
		"an expression that is over": {"by", tasker.NewTask{Context: json.RawMessage(`{"by": "2024-02-29T00:00:00Z"}`)}, time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), 0, tasker.DueByTemplate},
	} {
		tt.r.Namespace, tt.r.Name = h.Space, tt.of
		due := h.Task(h.CreateWith(tt.r)).Due
		if due == nil || due.DueAt.Sub(tt.due).Abs() > time.Minute || due.DueAt.Sub(due.WarnAt).Round(time.Minute) != tt.warn || due.Source != tt.by {
			t.Errorf("%s: %+v", name, due)
		}
	}
	for words, r := range map[string]tasker.NewTask{
		"due_at: must be in the future":                                  {Name: "day", DueAt: time.Now().Add(-time.Second)},
		"due_at: must be at most 5 years ahead":                          {Name: "day", DueAt: time.Now().Add(6 * 365 * 24 * time.Hour)},
		"between the years 2000 and 2200":                                {Name: "day", DueAt: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"due_after_seconds: must be from 0 to 157680000":                 {Name: "day", DueAfter: -1},
		"due_after_seconds: conflicts with due_at: set only one of them": {Name: "day", DueAfter: time.Hour, DueAt: at},
		"due_at: must be after start_at":                                 {Name: "day", StartAt: at, DueAt: at},
		"context: due.at of the template: column 18: missing key":        {Name: "by"},
		"context: due.at of the template: column 10: ":                   {Name: "by", Context: json.RawMessage(`{"by": "tomorrow"}`)},
		"must be after the year 2000":                                    {Name: "by", Context: json.RawMessage(`{"by": "1999-01-01T00:00:00Z"}`)},
		"at most 5 years ahead":                                          {Name: "by", Context: json.RawMessage(`{"by": "2199-01-01T00:00:00Z"}`)},
	} {
		r.Namespace = h.Space
		h.WantCode(errOf(h.Engine.CreateTasks(t.Context(), []tasker.NewTask{r})), tasker.Invalid, words)
	}
}

func TestStepIsDueFromWhenItBecomesReady(t *testing.T) {
	h := newHarness(t)
	first, second, third := enginetest.Step("a"), enginetest.Step("b", "a"), external("c", "a")
	second.Due = tasker.DuePolicy{AfterSeconds: 3600}
	third.Due = tasker.DuePolicy{At: "timestamp(results.a.by)", WarnBeforeSeconds: new(60)}
	h.Template("three", first, attempts(1, second), third)
	task := h.Create("three")
	if due := h.Step(task, "b").Due; due != nil {
		t.Errorf("it is due before it is ready: %+v", due)
	}
	h.Accepted(success(h.ClaimOne("a"), fmt.Sprintf(`{"by": %q}`, time.Now().Add(time.Minute).Format(time.RFC3339))))
	h.Tick()
	h.Tick()
	b, c := h.Step(task, "b"), h.Step(task, "c")
	h.wantDue("b", b.Due, b.UUID, tasker.DeadlineAhead)
	h.wantDue("c", c.Due, c.UUID, tasker.DeadlineSoon, "step c of a task of three is due in ")
	h.fail(h.Claim())
	h.act(task, "b", tasker.ResetForRetry, "")
	h.Tick()
	again := h.Step(task, "b")
	check(t, again.State == tasker.StepEnqueued && again.Due.DueAt.Equal(b.Due.DueAt),
		"after a reset it is %s, and due at %v instead of %v", again.State, again.Due, b.Due)
	h.Complete("b")
	h.dueLater(2 * time.Hour)
	h.wantDue("b in time", h.Step(task, "b").Due, b.UUID, tasker.DeadlineMissed) // its due time was moved before its end
	h.wantDue("c late", h.Step(task, "c").Due, c.UUID, tasker.DeadlineOverdue, "due in", "step c of a task of three is overdue for ")
	h.act(task, "c", tasker.ResolveManually, "")
	h.WantState(task, tasker.TaskComplete)
	h.WantCount(0, `SELECT count(*) FROM tasker.deadlines WHERE ended_at IS NULL OR look_at < 'infinity'`)
}

func TestInvalidDueTimeFailsItsStep(t *testing.T) {
	h := newHarness(t)
	for at, words := range map[string]string{
		"timestamp(context.none)":             "due.at: ",
		`timestamp("2199-01-01T00:00:00Z")`:   "due.at: the time must be after the year 2000 and at most 5 years ahead",
		`timestamp("1999-01-01T00:00:00.0Z")`: "due.at: the time must be after the year 2000 and at most 5 years ahead",
	} {
		s := enginetest.Step("a")
		s.Due.At = at
		h.Template(fmt.Sprint("one", len(at)), s)
		task := h.Create(fmt.Sprint("one", len(at)))
		h.Tick()
		got := h.Step(task, "a")
		if e := h.Entry(task); got.State != tasker.StepError || !strings.Contains(string(got.Error), words) || e.DetailCode != tasker.ExpressionFailed {
			t.Errorf("%s: the step is %s: %s; %s", at, got.State, got.Error, e.DetailCode)
		}
	}
}

func TestClaimsFollowDueTimesIfTheTemplateOrdersThem(t *testing.T) {
	h := newHarness(t)
	urgent := enginetest.Step("s")
	urgent.Due.AfterSeconds = 60
	h.Register(tasker.Template{Name: "due", Order: tasker.OrderDue, Steps: []tasker.StepTemplate{attempts(3, enginetest.Step("s"))}})
	h.Register(tasker.Template{Name: "own", Order: tasker.OrderDue, Steps: []tasker.StepTemplate{urgent}})
	h.Template("plain", enginetest.Step("s"))
	create := func(name string, priority int, in time.Duration) tasker.ID {
		return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: name, Priority: priority, DueAfter: in})
	}
	plain := create("plain", 0, time.Second) // its template does not ask for the order
	none := create("due", 0, 0)
	hours := create("due", 0, 2*time.Hour)
	hour := create("due", 0, time.Hour)
	minute := create("own", 0, 3*time.Hour) // its step is due in a minute
	low := create("due", -1, time.Minute)   // of a lower priority
	high := create("due", 1, 0)
	h.Tick()
	want := []tasker.ID{high, minute, hour, hours, plain, none, low}
	var got []tasker.ID
	next := func() tasker.Assignment {
		list := h.ClaimAs(h.Worker, 1)
		require(t, len(list) == 1, "claimed %d steps after %d", len(list), len(got))
		return list[0]
	}
	first := next()
	require(t, first.TaskUUID == high, "first comes %s", first.TaskUUID)
	got = append(got, first.TaskUUID)
	again := next()
	h.Release(again)
	for len(got) < len(want) {
		got = append(got, next().TaskUUID)
	}
	check(t, slices.Equal(got, want), "handed out in the order %v, want %v", got, want)
}

func TestQueueIsOrderedWhileATemplateNeedsIt(t *testing.T) {
	h := newHarness(t)
	h.Register(tasker.Template{Name: "a", Order: tasker.OrderDue, Steps: []tasker.StepTemplate{enginetest.Step("s")}})
	h.Register(tasker.Template{Name: "b", Order: tasker.OrderDue, Steps: []tasker.StepTemplate{enginetest.Step("s")}})
	version := func(name string) tasker.TemplateVersion {
		return tasker.TemplateVersion{Namespace: h.Space, Name: name, Version: "1.0.0"}
	}
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "a"})
	for _, tt := range []struct {
		what string
		act  func()
		want int
	}{
		{"both are registered", func() {}, 1},
		{"one is retired", func() { h.retire(version("b"), true) }, 1},
		{"both are retired, and one has an open task", func() { h.retire(version("a"), true) }, 1},
		{"the task has ended", func() { h.Cancel(task) }, 0},
		{"one is back", func() { h.retire(version("b"), false) }, 1},
	} {
		tt.act()
		h.Must(h.DB.ForgetDueQueues(t.Context()))
		h.WantCount(tt.want, `SELECT count(*) FROM tasker.due_queues`)
	}
}

func TestOperatorCanChangeDueTimes(t *testing.T) {
	h := newHarness(t)
	h.Register(tasker.Template{Name: "due", Order: tasker.OrderDue, Due: tasker.DuePolicy{AfterSeconds: 60, WarnBeforeSeconds: new(10), Overdue: tasker.OverdueInvestigate}, Steps: []tasker.StepTemplate{enginetest.Step("s"), enginetest.Step("t", "s")}})
	task := h.Create("due")
	other := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "due", DueAfter: time.Hour})
	h.dueLater(2 * time.Minute)
	h.wantDue("before", h.Task(task).Due, task, tasker.DeadlineOverdue, "overdue for")
	at := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Microsecond)
	due, err := h.Engine.ChangeDue(t.Context(), task, tasker.DueUpdate{DueAt: &at, Actor: "ann", Reason: "agreed with the customer"})
	h.Must(err)
	h.wantDue("changed", due, task, tasker.DeadlineAhead, "overdue for")
	if !due.DueAt.Equal(at) || due.SetBy != "ann" || due.Source != tasker.DueByOperator || due.Overdue != tasker.OverdueInvestigate || due.DueAt.Sub(due.WarnAt) != 10*time.Second || due.AnnouncedAt != nil {
		t.Errorf("it is %+v", due)
	}
	list := h.ClaimAs(h.Worker, 1)
	check(t, len(list) == 1 && list[0].TaskUUID == other, "handed out first: %+v", list)
	h.WantCount(1, `SELECT count(*) FROM tasker.task_history WHERE task_uuid = $1 AND event = 'change_due' AND actor = 'ann' AND reason = 'agreed with the customer' AND detail ->> 'due_at' IS NOT NULL AND detail -> 'was' ->> 'due_at' IS NOT NULL`, task)
	h.WantCount(1, `SELECT count(*) FROM tasker.audit_events WHERE action = 'task.due_changed' AND actor = 'ann' AND subject = $1`, task.String())
	h.dueLater(4 * time.Hour)
	h.wantDue("overdue again", h.Task(task).Due, task, tasker.DeadlineOverdue, "overdue for", "overdue for")
	h.Must(errOf(h.Engine.ChangeDue(t.Context(), task, tasker.DueUpdate{Actor: "ann"})))
	if due := h.Task(task).Due; due != nil {
		t.Errorf("it is still due: %+v", due)
	}
	later := h.Step(task, "t")
	due, err = h.Engine.ChangeDue(t.Context(), task, tasker.DueUpdate{StepUUID: later.UUID, DueAt: &at, Actor: "bob"})
	h.Must(err)
	h.wantDue("of a step", due, later.UUID, tasker.DeadlineAhead)
	free := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "due"})
	h.Cancel(free)
	past, far := time.Now().Add(-time.Second), time.Now().Add(6*365*24*time.Hour)
	for words, c := range map[string]tasker.DueUpdate{
		"due_at: must be in the future":         {DueAt: &past, Actor: "ann"},
		"due_at: must be at most 5 years ahead": {DueAt: &far, Actor: "ann"},
		"by: is missing":                        {DueAt: &at},
		"due_at: must be between":               {DueAt: new(time.Time{}), Actor: "ann"},
	} {
		h.WantCode(errOf(h.Engine.ChangeDue(t.Context(), task, c)), tasker.Invalid, words)
	}
	_, err = h.Engine.ChangeDue(t.Context(), free, tasker.DueUpdate{DueAt: &at, Actor: "ann"})
	h.WantCode(err, tasker.Conflict, "is cancelled and no longer has a due time")
	_, err = h.Engine.ChangeDue(t.Context(), tasker.NewID(), tasker.DueUpdate{DueAt: &at, Actor: "ann"})
	h.WantCode(err, tasker.NotFound, "not found")
	_, err = h.Engine.ChangeDue(t.Context(), task, tasker.DueUpdate{StepUUID: tasker.NewID(), DueAt: &at, Actor: "ann"})
	h.WantCode(err, tasker.NotFound, "has no step")
}

func TestTasksAreListedByDueTime(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	create := func(in time.Duration) tasker.ID {
		return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", DueAfter: in})
	}
	two, one, three := create(2*time.Hour), create(time.Hour), create(3*time.Hour)
	ended := create(time.Minute)
	h.Cancel(ended)
	create(0)
	h.dueLater(90 * time.Minute)
	for name, tt := range map[string]struct {
		f    tasker.TaskFilter
		want []tasker.ID
	}{
		"overdue":           {tasker.TaskFilter{Overdue: true}, []tasker.ID{one}},
		"before an instant": {tasker.TaskFilter{DueBefore: time.Now().Add(2 * time.Hour), Namespace: h.Space}, []tasker.ID{one, two, three}},
		"the next page":     {tasker.TaskFilter{DueBefore: time.Now().Add(time.Hour), Offset: 1, Name: "one"}, []tasker.ID{two}},
		"none":              {tasker.TaskFilter{Overdue: true, State: tasker.TaskError}, nil},
		"both":              {tasker.TaskFilter{Overdue: true, DueBefore: time.Now().Add(-time.Hour)}, nil},
	} {
		tt.f.Limit = 10
		list, _, err := h.DB.Tasks(t.Context(), tt.f)
		h.Must(err)
		var got []tasker.ID
		for _, task := range list {
			got = append(got, task.UUID)
		}
		check(t, slices.Equal(got, tt.want), "%s: %v, want %v", name, got, tt.want)
	}
	_, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Overdue: true, Before: one, Limit: 10})
	h.WantCode(err, tasker.Invalid, "use offset")
	if n, err := h.DB.CountOverdue(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("%d tasks are overdue: %v", n, err)
	}
}

func TestMergedRequestsTakeTheLastDueTime(t *testing.T) {
	h := newHarness(t)
	h.Register(tasker.Template{Name: "by", Due: tasker.DuePolicy{At: "timestamp(context.by)"}, Steps: []tasker.StepTemplate{enginetest.Step("a")}})
	var task tasker.ID
	for _, in := range []time.Duration{time.Hour, 3 * time.Hour} {
		at := time.Now().Add(in).UTC().Truncate(time.Second)
		task = h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "by", Debounce: tasker.Debounce{Key: "k", Wait: time.Minute}, Context: fmt.Appendf(nil, `{"by": %q}`, at.Format(time.RFC3339))})
		due := h.Task(task).Due
		check(t, due != nil && due.DueAt.Equal(at), "it is due at %+v, want %s", due, at)
	}
}
