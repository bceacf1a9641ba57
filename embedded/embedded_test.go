package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"tasker.example/tasker"
	"tasker.example/tasker/embedded"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const greeting = `
namespace: greetings
name: greet
version: 1.0.0
steps:
  - name: compose
    handler: {callable: compose}
    retry: {backoff_base_ms: 1}
  - name: deliver
    dependencies: [compose]
    handler: {callable: deliver}
`

type guest struct{ Who string }

// A program with the engine inside: a step fails once, is retried, and the task
// completes; then everything ends and nothing is left running.
func TestTheWholeEngineInOneProgram(t *testing.T) {
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	before := goleak.IgnoreCurrent()
	reader := sdk.NewManualReader()
	e, err := embedded.Open(t.Context(), embedded.Options{
		DatabaseURL: database.URL, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if created, err := e.RegisterTemplate(t.Context(), []byte(greeting)); err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	failed := false
	delivered := make(chan string, 1)
	w := worker.New(e.Backend(), worker.Options{Namespaces: []string{"greetings"}})
	worker.Handle(w, "compose", func(_ context.Context, s *worker.Step[guest]) (string, error) {
		if !failed {
			failed = true
			return "", errors.New("no ink")
		}
		return "Hello, " + s.Input.Who, nil
	})
	worker.Handle(w, "deliver", func(_ context.Context, s *worker.Step[guest]) (bool, error) {
		var text string
		err := s.Dependency("compose", &text)
		delivered <- text
		return true, err
	})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{e.Run, w.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	task, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "greetings", Name: "greet", Context: []byte(`{"who": "you"}`)})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-delivered:
		if text != "Hello, you" {
			t.Errorf("delivered %q", text)
		}
	case <-ctx.Done():
		t.Fatal("nothing was delivered")
	}
	got, err := e.Wait(ctx, task)
	stop()
	wg.Wait()
	if err != nil || got.State != tasker.TaskComplete {
		t.Errorf("task is %s, %v", got.State, err)
	}
	var counted metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &counted); err != nil || len(counted.ScopeMetrics) != 1 || len(counted.ScopeMetrics[0].Metrics) == 0 {
		t.Errorf("counted %+v, %v", counted, err)
	}
	e.Close()
	goleak.VerifyNone(t, before)
}

func TestAnOldSchemaIsRefusedUnlessItMayBeMigrated(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t).AdminURL
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "DROP SCHEMA tasker CASCADE"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: url}); err == nil || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("an empty database gives %v", err)
	}
	e, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: url, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
}

// An engine that shares its database with servers enqueues as they do.
func TestTheQueueIsAsItsServersHaveIt(t *testing.T) {
	for _, tt := range []struct {
		name      string
		options   embedded.Options
		waits     time.Duration
		announced int
	}{
		{"alone", embedded.Options{}, 5 * time.Minute, 0},
		{"beside servers that announce", embedded.Options{Announce: true, QueueTTL: 7 * time.Minute}, 7 * time.Minute, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			database := pgtest.New(t)
			database.CheckAtEnd(t)
			tt.options.DatabaseURL = database.URL
			e, err := embedded.Open(t.Context(), tt.options)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if _, err := e.RegisterTemplate(t.Context(), []byte(greeting)); err != nil {
				t.Fatal(err)
			}
			if _, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "greetings", Name: "greet"}); err != nil {
				t.Fatal(err)
			}
			var waits time.Duration
			var announced int
			err = database.Pool(t).QueryRow(t.Context(), `
				SELECT (SELECT max(expires_at - state_since) FROM tasker.workflow_steps WHERE state = 'enqueued'),
					(SELECT count(*) FROM tasker.dispatch_outbox)`).Scan(&waits, &announced)
			if err != nil || waits != tt.waits || announced != tt.announced {
				t.Errorf("steps wait %v, %d are announced, %v; want %v and %d", waits, announced, err, tt.waits, tt.announced)
			}
		})
	}
}

// A worker that asks for a longer rest than is allowed leaves its step to an operator.
func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most time.Duration
		want tasker.TaskState
	}{
		"a day by default": {0, tasker.TaskWaitingForRetry},
		"an hour":          {time.Hour, tasker.TaskError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := pgtest.New(t)
			database.CheckAtEnd(t)
			e, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: database.URL, MaxRetryAfter: tt.most})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if _, err := e.RegisterTemplate(t.Context(), []byte(greeting)); err != nil {
				t.Fatal(err)
			}
			task, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "greetings", Name: "greet"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			w := worker.New(e.Backend(), worker.Options{Namespaces: []string{"greetings"}})
			worker.Handle(w, "compose", func(context.Context, *worker.Step[guest]) (string, error) {
				stop() // the worker reports before it ends
				return "", worker.RetryAfter(2*time.Hour, errors.New("no ink"))
			})
			if err := w.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if got, err := e.Task(t.Context(), task); err != nil || got.State != tt.want {
				t.Errorf("the task is %s, %v; want %s", got.State, err, tt.want)
			}
		})
	}
}

// open opens an engine on a database of its own.
func open(t *testing.T) *embedded.Engine {
	t.Helper()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	e, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: database.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// A program finds its stuck task, repairs the step and ends the investigation, without a server.
func TestInvestigationsInOneProgram(t *testing.T) {
	t.Parallel()
	e := open(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := e.RegisterTemplate(ctx, []byte(greeting))
	must(err)
	task, err := e.CreateTask(ctx, tasker.NewTask{Namespace: "greetings", Name: "greet", Context: []byte(`{"who": "you"}`)})
	must(err)

	opened, err := e.OpenInvestigation(ctx, task, tasker.NewEntry{Actor: "ann", Reason: "the guest complains"})
	must(err)
	if _, err := e.OpenInvestigation(ctx, task, tasker.NewEntry{Actor: "ann", Reason: "again"}); tasker.CodeOf(err) != tasker.Conflict {
		t.Errorf("a second one: %v", err)
	}
	queue, more, err := e.InvestigationQueue(ctx, tasker.InvestigationFilter{})
	must(err)
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- e.Run(running) }()
	var cases []tasker.Case
	for deadline := time.Now().Add(time.Minute); len(cases) == 0 && time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		cases, _, err = e.Cases(ctx, tasker.CaseFilter{})
		must(err)
	}
	stop()
	must(<-done)
	cases, _, err = e.Cases(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Namespace: "greetings"}})
	must(err)
	if len(queue) != 1 || more || queue[0].EntryUUID != opened.UUID || len(cases) != 1 || cases[0].Entries != 1 {
		t.Errorf("queue %+v, cases %+v", queue, cases)
	}
	owned, err := e.UpdateCase(ctx, cases[0].ID, tasker.CaseUpdate{Owner: new("ann"), Actor: "ann"})
	must(err)
	detail, err := e.Case(ctx, cases[0].ID)
	must(err)
	for _, id := range []tasker.ID{cases[0].ID, cases[0].EntryUUID.ID} {
		if x, err := e.Explain(ctx, id); err != nil || x.Reason != tasker.ConditionNoWorker || x.NextActor != tasker.NextOperator || x.Message == "" {
			t.Errorf("explanation %+v, %v", x, err)
		}
	}
	if x, err := e.ExplainQueue(ctx, "greetings", "nobody"); err != nil || x.Reason != tasker.ConditionEmpty {
		t.Errorf("explanation %+v, %v", x, err)
	}
	why, err := e.WhyCase(ctx, cases[0].ID)
	must(err)
	changes, err := e.CaseChanges(ctx, cases[0].ID)
	must(err)
	if changes.FirstFailure == nil || changes.Impact.Tasks != 1 {
		t.Errorf("changes %+v", changes)
	}
	if owned.Owner != "ann" || detail.Owner != "ann" || len(detail.Fingerprints) != 1 || why.CaseID != owned.ID {
		t.Errorf("owned %+v, detail %+v, why %+v", owned, detail, why)
	}
	if _, err := e.SplitCase(ctx, owned.ID, tasker.CaseSplit{Literal: "x", Actor: "ann", Reason: "odd"}); tasker.CodeOf(err) != tasker.Conflict {
		t.Errorf("split by nothing: %v", err)
	}
	if err := e.MergeCases(ctx, owned.ID, owned.ID, "ann", "x"); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("merged into itself: %v", err)
	}
	if err := e.UnmergeCase(ctx, owned.ID, "ann", "x"); tasker.CodeOf(err) != tasker.Conflict {
		t.Errorf("unmerged: %v", err)
	}
	tasks, _, err := e.Tasks(ctx, tasker.TaskFilter{Namespace: "greetings", Limit: 5000})
	must(err)
	steps, err := e.Steps(ctx, task)
	must(err)
	for _, s := range steps {
		_, err = e.OperateStep(ctx, task, s.UUID, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "ann", Reason: "told by phone", Interrupt: true})
		must(err)
	}
	status, notes, by := tasker.EntryManuallyResolved, "told by phone", "ann"
	if _, _, err := e.UpdateInvestigation(ctx, opened.UUID, tasker.EntryUpdate{Status: &status}); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("ended without notes: %v", err)
	}
	_, _, err = e.UpdateInvestigation(ctx, opened.UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Actor: by})
	must(err)
	ended, err := e.Investigation(ctx, opened.UUID)
	must(err)
	last, err := e.InvestigationOf(ctx, task)
	must(err)
	all, err := e.Investigations(ctx, tasker.EntryFilter{Status: tasker.EntryManuallyResolved})
	must(err)
	got, err := e.Task(ctx, task)
	must(err)
	if ended.ResolutionStatus != status || len(ended.History) < 2 || last.UUID != ended.UUID || len(all) != 1 || len(tasks) != 1 || got.State != tasker.TaskComplete {
		t.Errorf("ended %+v; %d investigations, %d tasks, the task is %s", ended, len(all), len(tasks), got.State)
	}
}

// Tasks are found by what they were created with.
func TestTasksAreFound(t *testing.T) {
	t.Parallel()
	e := open(t)
	if _, err := e.RegisterTemplate(t.Context(), []byte("namespace_name: shop\nname: ask\nversion: 1.0.0\nsteps:\n  - {name: approve, type: external}\n")); err != nil {
		t.Fatal(err)
	}
	for _, n := range []tasker.NewTask{{Tags: []string{"vip"}, CorrelationID: "c-1", Initiator: "ann"}, {Tags: []string{"vip"}}, {}} {
		n.Namespace, n.Name = "shop", "ask"
		if _, err := e.CreateTask(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		filter tasker.TaskFilter
		found  int
	}{
		{tasker.TaskFilter{}, 3}, {tasker.TaskFilter{Tags: []string{"vip"}}, 2}, {tasker.TaskFilter{Tags: []string{"vip"}, Initiator: "ann"}, 1}, {tasker.TaskFilter{CorrelationID: "c-1"}, 1},
		{tasker.TaskFilter{CreatedAfter: time.Now().Add(time.Hour)}, 0},
	} {
		list, more, err := e.Tasks(t.Context(), tt.filter)
		if err != nil || more || len(list) != tt.found {
			t.Errorf("%+v finds %d, %v, want %d", tt.filter, len(list), err, tt.found)
			continue
		}
		for _, task := range list {
			if tree, err := e.TaskTree(t.Context(), task.UUID); err != nil || len(tree.Tasks) != 1 || tree.Tasks[0].Task.UUID != task.UUID {
				t.Errorf("the tree of a task that stands alone is %+v (%v)", tree, err)
			}
		}
	}
	b, err := e.CancelTasks(t.Context(), tasker.CancelBatchRequest{Filter: tasker.TaskFilter{Tags: []string{"vip"}}, Actor: "ann", Reason: "off"})
	if list, _, failed := e.Tasks(t.Context(), tasker.TaskFilter{State: tasker.TaskCancelled}); err != nil || failed != nil || b.Cancelled != 2 || b.HasMore || len(list) != 2 {
		t.Errorf("cancelled %+v, %v; %d are cancelled, %v", b, err, len(list), failed)
	}
}

// A version that is retired gets no new tasks, until that is taken back.
func TestAVersionIsRetired(t *testing.T) {
	t.Parallel()
	e := open(t)
	if _, err := e.RegisterTemplate(t.Context(), []byte(greeting)); err != nil {
		t.Fatal(err)
	}
	v := tasker.TemplateVersion{Namespace: "greetings", Name: "greet", Version: "1.0.0"}
	if err := e.RetireTemplate(t.Context(), v, "ann", "too loud"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "greetings", Name: "greet"}); tasker.CodeOf(err) != tasker.NotFound || !strings.Contains(err.Error(), "ann: too loud") {
		t.Errorf("a task of a retired version: %v", err)
	}
	if err := e.UnretireTemplate(t.Context(), v, "ann", "it is quiet now"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "greetings", Name: "greet"}); err != nil {
		t.Error(err)
	}
}

// An answer from outside comes to a step by the name of the step.
func TestAnAnswerComesByName(t *testing.T) {
	t.Parallel()
	e := open(t)
	if _, err := e.RegisterTemplate(t.Context(), []byte("namespace_name: shop\nname: ask\nversion: 1.0.0\nsteps:\n  - {name: approve, type: external}\n")); err != nil {
		t.Fatal(err)
	}
	task, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "shop", Name: "ask"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.CompleteExternalNamed(t.Context(), task, "aprove", tasker.Outcome{Success: true}, "desk"); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("a step that is not there: %v", err)
	}
	for range 2 {
		step, err := e.CompleteExternalNamed(t.Context(), task, "approve", tasker.Outcome{Success: true, Result: json.RawMessage(`true`)}, "desk")
		if err != nil || step.State != tasker.StepComplete {
			t.Errorf("the step is %s: %v", step.State, err)
		}
	}
}

// A program makes links and has a page of its own behind them.
func TestALinkInAProgram(t *testing.T) {
	t.Parallel()
	e := open(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := e.RegisterTemplate(t.Context(), []byte("namespace_name: shop\nname: ask\nversion: 1.0.0\nsteps:\n  - {name: approve, type: external}\n"))
	must(err)
	task, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "shop", Name: "ask"})
	must(err)
	_, err = e.AssignStep(t.Context(), task, "approve", tasker.AssignRequest{Assignee: "ann", Actor: "desk"})
	must(err)
	first, err := e.CreateAnswerLink(t.Context(), task, "approve", tasker.AnswerLinkRequest{Actor: "desk"})
	must(err)
	_, err = e.RevokeAnswerLink(t.Context(), first.AnswerLink, "desk")
	must(err)
	second, err := e.CreateAnswerLink(t.Context(), task, "approve", tasker.AnswerLinkRequest{Actor: "desk"})
	must(err)
	if q, err := e.AnswerQuestion(t.Context(), second.Token); err != nil || q.Step != "approve" || q.Assignee != "ann" {
		t.Errorf("%+v, %v", q, err)
	}
	if _, err := e.AnswerQuestion(t.Context(), first.Token); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("a revoked link: %v", err)
	}
	if state, answered, err := e.AnswerByLink(t.Context(), second.Token, json.RawMessage(`true`)); err != nil || !answered || state != tasker.LinkUsed {
		t.Errorf("%s, %v, %v", state, answered, err)
	}
	list, err := e.AnswerLinks(t.Context(), task, "approve")
	must(err)
	if len(list) != 2 || list[0].State != tasker.LinkUsed || list[1].State != tasker.LinkRevoked {
		t.Errorf("%+v", list)
	}
	for name, err := range map[string]error{
		"create": func() error {
			_, err := e.CreateAnswerLink(t.Context(), task, "aprove", tasker.AnswerLinkRequest{})
			return err
		}(),
		"list": func() error { _, err := e.AnswerLinks(t.Context(), task, "aprove"); return err }(),
	} {
		if tasker.CodeOf(err) != tasker.NotFound {
			t.Errorf("%s of a step that is not there: %v", name, err)
		}
	}
}

// Schedules are used by a program as by the API.
func TestSchedulesInAProgram(t *testing.T) {
	t.Parallel()
	e := open(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := e.RegisterTemplate(t.Context(), []byte("namespace_name: shop\nname: ask\nversion: 1.0.0\nsteps:\n  - {name: approve, type: external}\n"))
	must(err)
	spec := tasker.ScheduleSpec{Namespace: "shop", Name: "nightly", Template: "ask", ScheduleRule: tasker.ScheduleRule{Every: time.Hour}}
	s, err := e.CreateSchedule(t.Context(), spec, "ann", "new")
	must(err)
	if _, err := e.CreateSchedule(t.Context(), spec, "ann", "again"); tasker.CodeOf(err) != tasker.Conflict {
		t.Errorf("a second one of the name: %v", err)
	}
	_, err = e.PauseSchedule(t.Context(), s.UUID, nil, "ann", "closed")
	must(err)
	if list, more, err := e.Schedules(t.Context(), tasker.ScheduleFilter{Paused: true}); err != nil || more || len(list) != 1 {
		t.Errorf("%+v, %v, %v", list, more, err)
	}
	_, err = e.ResumeSchedule(t.Context(), s.UUID, "ann", "open")
	must(err)
	trigger := embedded.ScheduleTrigger{RequestKey: "k-1", Actor: "ann", Reason: "now"}
	f, err := e.TriggerSchedule(t.Context(), s.UUID, trigger)
	must(err)
	if again, err := e.TriggerSchedule(t.Context(), s.UUID, trigger); err != nil || *again.TaskUUID != *f.TaskUUID {
		t.Errorf("the same request again: %+v, %v", again, err)
	}
	if _, err := e.TriggerSchedule(t.Context(), s.UUID, embedded.ScheduleTrigger{RequestKey: "k-1", Actor: "bo"}); tasker.CodeOf(err) != tasker.Conflict {
		t.Errorf("another request with the key: %v", err)
	}
	spec.Every = 2 * time.Hour
	changed, err := e.UpdateSchedule(t.Context(), s.UUID, embedded.ScheduleUpdate{Spec: spec, Revision: 1, Actor: "ann"})
	must(err)
	if changed.Revision != 2 {
		t.Errorf("%+v", changed)
	}
	list, err := e.BackfillSchedule(t.Context(), s.UUID, embedded.Backfill{From: time.Now().Add(-5 * time.Hour), To: time.Now(), DryRun: true, Actor: "ann"})
	must(err)
	d, err := e.Schedule(t.Context(), s.UUID, 3)
	must(err)
	firings, _, err := e.Firings(t.Context(), tasker.FiringFilter{Schedule: s.UUID, Outcome: tasker.FiringStarted})
	must(err)
	if len(d.Next) != 3 || len(d.History) == 0 || len(firings) != 1 || *firings[0].TaskUUID != *f.TaskUUID {
		t.Errorf("%+v, %+v, %+v", d, firings, list)
	}
	must(e.DeleteSchedule(t.Context(), s.UUID, "ann", "over"))
	if _, err := e.TriggerSchedule(t.Context(), s.UUID, embedded.ScheduleTrigger{Actor: "ann", Reason: "late"}); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("a schedule that was deleted: %v", err)
	}
}

func TestCompensation(t *testing.T) {
	t.Parallel()
	e := open(t)
	const doc = "namespace_name: shop\nname: ask\nversion: 1.0.0\nsteps:\n  - {name: approve, type: external, on_failure: {compensate: withdraw}}\n  - {name: more, type: external, dependencies: [approve]}\n"
	if _, err := e.RegisterTemplate(t.Context(), []byte(doc)); err != nil {
		t.Fatal(err)
	}
	task, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "shop", Name: "ask"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.CompleteExternalNamed(t.Context(), task, "approve", tasker.Outcome{Success: true}, "desk"); err != nil {
		t.Fatal(err)
	}
	if err := e.CompensateTask(t.Context(), task, "ann", "late"); err != nil {
		t.Fatal(err)
	}
	got, err := e.Task(t.Context(), task)
	if err != nil || got.Phase != tasker.Compensating {
		t.Errorf("the task is in phase %q: %v", got.Phase, err)
	}
	other, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "shop", Name: "ask"})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := e.OpenInvestigation(t.Context(), other, tasker.NewEntry{Actor: "ann", Reason: "odd"})
	if err != nil {
		t.Fatal(err)
	}
	status, notes := tasker.EntryPermanentlyFailed, "no way"
	if _, _, err := e.UpdateInvestigation(t.Context(), opened.UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, Actor: "ann", Compensate: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Task(t.Context(), other); err != nil || got.Outcome != tasker.NothingToCompensate {
		t.Errorf("the outcome is %q: %v", got.Outcome, err)
	}
	steps, err := e.Steps(t.Context(), task)
	if err != nil || len(steps) != 3 || steps[2].UndoOf() != "approve" {
		t.Errorf("its steps are %+v: %v", steps, err)
	}
}

// A program with the engine inside sweeps as a server does, and retries, starts and expires.
func TestTheEngineRunsItsLoops(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	e, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: database.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.RegisterTemplate(t.Context(), []byte(greeting)); err != nil {
		t.Fatal(err)
	}
	for _, request := range []tasker.NewTask{{Namespace: "greetings", Name: "greet"}, {Namespace: "greetings", Name: "greet", StartAt: time.Now().Add(time.Second)}} {
		if _, err := e.CreateTask(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	pool := database.Pool(t)
	if _, err := pool.Exec(t.Context(), `
		UPDATE tasker.tasks SET state_since = state_since - interval '1 hour', warn_at = warn_at - interval '1 hour',
			stale_at = stale_at - interval '1 hour', created_at = created_at - interval '1 hour'
		WHERE stale_at IS NOT NULL`); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { //nolint:forbidigo // polls
		var swept, started int
		if err := pool.QueryRow(t.Context(), `
			SELECT (SELECT count(*) FROM tasker.tasks_dlq), (SELECT count(*) FROM tasker.workflow_steps WHERE state = 'enqueued')`).Scan(&swept, &started); err != nil {
			t.Fatal(err)
		}
		if swept == 1 && started == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d tasks were found stale, and %d have started", swept, started)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An open task is brought to another version, and all of a version are.
func TestATaskIsBroughtToAnotherVersion(t *testing.T) {
	t.Parallel()
	e := open(t)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		doc := "namespace_name: shop\nname: ask\nversion: " + version + "\nsteps:\n  - {name: approve, type: external}\n"
		if version == "1.1.0" {
			doc += "  - {name: tell, type: external, dependencies: [approve]}\n"
		}
		if _, err := e.RegisterTemplate(t.Context(), []byte(doc)); err != nil {
			t.Fatal(err)
		}
	}
	var tasks []tasker.ID
	for range 2 {
		id, err := e.CreateTask(t.Context(), tasker.NewTask{Namespace: "shop", Name: "ask", Version: "1.0.0"})
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, id)
	}
	r := tasker.VersionRequest{To: "1.1.0", Actor: "ann", Reason: "tell people"}
	if c, err := e.ChangeVersion(t.Context(), tasks[0], r); err != nil || !c.Changed || len(c.Added) != 1 {
		t.Errorf("changed %+v, %v", c, err)
	}
	v := tasker.TemplateVersion{Namespace: "shop", Name: "ask", Version: "1.0.0"}
	batch, err := e.ChangeVersions(t.Context(), tasker.VersionBatchRequest{Template: v, To: "1.1.0", Actor: "ann", Reason: "tell people"})
	if err != nil || batch.Changed != 1 || batch.Refused != 0 {
		t.Errorf("changed %+v, %v", batch, err)
	}
	if steps, err := e.Steps(t.Context(), tasks[1]); err != nil || len(steps) != 2 {
		t.Errorf("the steps are %+v, %v", steps, err)
	}
}
