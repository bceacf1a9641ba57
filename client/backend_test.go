package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A worker can run on a server as it does on an engine.
var _ worker.Backend = (*client.Backend)(nil)

const greetings = `
namespace_name: greetings
name: greet
version: 1.0.0
steps:
  - name: ask
    handler: {callable: ask, initialization: {politely: true}}
    retry: {max_attempts: 1}
  - name: greet
    handler: {callable: greet}
    dependencies: [ask]
  - name: answer
    type: external
    dependencies: [greet]
`

// newServer starts the API on an engine and a database of its own.
func newServer(t *testing.T) *client.Client {
	t.Helper()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	db, err := postgres.Open(t.Context(), d.URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	stopping, stop := context.WithCancel(t.Context())
	s := httptest.NewServer(api.New(stopping, api.Options{
		DB: db, Engine: engine.New(db, engine.Options{}), DLQ: dlq.New(db, dlq.Options{}), Version: "9.8.7",
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}))
	t.Cleanup(s.Close)
	t.Cleanup(stop)
	c, err := client.New(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	must(c.RegisterTemplate(t.Context(), []byte(greetings), client.YAML)).or(t)
	return c
}

// must(f()).or(t) is the value of f, or the end of the test.
type maybe[T any] struct {
	value T
	err   error
}

func must[T any](value T, err error) maybe[T] { return maybe[T]{value, err} }

func (m maybe[T]) or(t *testing.T) T {
	t.Helper()
	if m.err != nil {
		t.Fatal(m.err)
	}
	return m.value
}

func parse(t *testing.T, id string) tasker.ID {
	t.Helper()
	var out tasker.ID
	if err := out.UnmarshalText([]byte(id)); err != nil {
		t.Fatal(err)
	}
	return out
}

// claimOne claims the one step that waits.
func claimOne(t *testing.T, e *client.Backend, w tasker.ID) tasker.Assignment {
	t.Helper()
	list := must(e.Claim(t.Context(), w, 5, 10*time.Second)).or(t)
	if len(list) != 1 {
		t.Fatalf("claimed %d steps, want 1", len(list))
	}
	return list[0]
}

func register(t *testing.T, e *client.Backend) tasker.ID {
	t.Helper()
	r := must(e.RegisterWorker(t.Context(), tasker.WorkerSpec{
		Name: "w", Namespaces: []string{"greetings"}, Handlers: []string{"ask", "greet"}, MaxConcurrency: 4,
	})).or(t)
	if r.WorkerUUID == (tasker.ID{}) || r.HeartbeatInterval <= 0 || r.LeaseDuration <= r.HeartbeatInterval {
		t.Fatalf("registration %+v", r)
	}
	return r.WorkerUUID
}

func TestTaskFromSubmissionToEnd(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newServer(t)
	e := c.Backend()
	w := register(t, e)
	created := must(c.CreateTask(ctx, apiv1.CreateTask{
		Namespace: "greetings", Name: "greet", Context: json.RawMessage(`{"who": "you"}`), IdempotencyKey: "k", Tags: []string{"a"},
	})).or(t)
	again := must(c.CreateTask(ctx, apiv1.CreateTask{
		Namespace: "greetings", Name: "greet", Context: json.RawMessage(`{"who": "you"}`), IdempotencyKey: "k", Tags: []string{"a"},
	})).or(t)
	if again.TaskUUID != created.TaskUUID {
		t.Fatalf("the same key gave %s and %s", created.TaskUUID, again.TaskUUID)
	}
	task := parse(t, created.TaskUUID)

	ask := claimOne(t, e, w)
	if ask.TaskUUID != task || ask.Handler != "ask" || ask.Attempt != 1 || ask.LeaseExpiresAt.IsZero() {
		t.Fatalf("assignment %+v", ask)
	}
	if diff := cmp.Diff(`{"politely":true}`, string(ask.Initialization)); diff != "" {
		t.Errorf("initialization (-want +got):\n%s", diff)
	}
	beat := must(e.Heartbeat(ctx, w, []tasker.Lease{ask.Lease(), {TaskUUID: task, StepUUID: tasker.NewID(), Token: ask.LeaseToken}})).or(t)
	if len(beat.Extended) != 1 || beat.Extended[0].StepUUID != ask.StepUUID || len(beat.Lost) != 1 {
		t.Fatalf("beat %+v", beat)
	}
	receipt := must(e.Report(ctx, w, []tasker.Outcome{{Lease: ask.Lease(), Success: true, Result: json.RawMessage(`{"name":"Ann"}`)}}, 5)).or(t)
	if len(receipt.Accepted) != 1 || len(receipt.Next) != 1 {
		t.Fatalf("receipt %+v: want the result accepted and the next step", receipt)
	}
	greet := receipt.Next[0]
	if got := string(greet.DependencyResults["ask"]); got != `{"name":"Ann"}` {
		t.Errorf("result of ask is %s", got)
	}

	released, lost, err := e.Release(ctx, w, []tasker.Lease{greet.Lease()})
	if err != nil || len(released) != 1 || len(lost) != 0 {
		t.Fatalf("released %v, lost %v: %v", released, lost, err)
	}
	greet = claimOne(t, e, w)
	receipt = must(e.Report(ctx, w, []tasker.Outcome{
		{Lease: greet.Lease(), Success: true, Result: json.RawMessage(`"hello"`)},
		{Lease: tasker.Lease{TaskUUID: task, StepUUID: ask.StepUUID, Token: greet.LeaseToken}, Success: true},
	}, 0)).or(t)
	if len(receipt.Accepted) != 1 || len(receipt.Rejected) != 1 || receipt.Rejected[0].Code != tasker.StaleLease {
		t.Fatalf("receipt %+v: want one accepted, one stale", receipt)
	}

	steps := must(c.Steps(ctx, task)).or(t)
	answer := steps[2]
	after := must(c.CompleteStep(ctx, task, parse(t, answer.StepUUID), apiv1.Completion{Success: true, Result: json.RawMessage(`{"ok":true}`), Source: "them"})).or(t)
	if after.CurrentState != "complete" {
		t.Errorf("external step is %s", after.CurrentState)
	}
	if got := must(c.Task(ctx, task)).or(t); got.Status != "complete" || got.CompletionPercentage != 100 || len(got.Steps) != 3 {
		t.Errorf("task is %s, %v %%, %d steps", got.Status, got.CompletionPercentage, len(got.Steps))
	}
	history := must(c.TaskTransitions(ctx, task, client.Page{})).or(t)
	if n := len(history); n == 0 || history[n-1].To != "complete" {
		t.Errorf("history of the task %+v", history)
	}
	if list := must(c.StepTransitions(ctx, task, ask.StepUUID, client.Page{Limit: 1})).or(t); len(list) != 1 {
		t.Errorf("history of the step %+v", list)
	}
	if _, err := c.CancelTask(ctx, task, "too late", "me"); tasker.CodeOf(err) != tasker.Conflict {
		t.Errorf("cancel a complete task: %v, want Conflict", err)
	}
	if err := e.LeaveWorker(ctx, w); err != nil {
		t.Error(err)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newServer(t)
	e := c.Backend()
	w := register(t, e)
	must(c.CreateTask(ctx, apiv1.CreateTask{Namespace: "greetings", Name: "greet"})).or(t)
	if list := must(c.Queues(ctx, "greetings", 0)).or(t); len(list) != 1 || list[0].Queued != 1 || list[0].LiveWorkers != 1 {
		t.Errorf("queues %+v, want one with one step and one worker", list)
	}
	if beat := must(e.Heartbeat(ctx, w, nil)).or(t); beat.Drain {
		t.Error("the worker is to drain before it was told to")
	}
	for range 2 {
		if err := e.DrainWorker(ctx, w); err != nil {
			t.Fatal(err)
		}
	}
	if beat := must(e.Heartbeat(ctx, w, nil)).or(t); !beat.Drain {
		t.Error("the heartbeat does not say that the worker is to drain")
	}
	if list := must(e.Claim(ctx, w, 5, 0)).or(t); len(list) != 0 {
		t.Errorf("a draining worker got %+v", list)
	}
	if list := must(c.Queues(ctx, "", 0)).or(t); len(list) != 1 || !list[0].Unserved {
		t.Errorf("queues %+v, want one that nobody serves", list)
	}
	if got := must(c.DrainWorker(ctx, w)).or(t); got.Health != "draining" || got.DrainingSince == nil {
		t.Errorf("worker %+v", got)
	}
	if err := e.DrainWorker(ctx, tasker.NewID()); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("an unknown worker: %v, want NotFound", err)
	}
}

func TestInvestigationFromFailureToRepair(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newServer(t)
	e := c.Backend()
	w := register(t, e)
	created := must(c.CreateTasks(ctx, []apiv1.CreateTask{{Namespace: "greetings", Name: "greet"}})).or(t)
	task := parse(t, created.Tasks[0].TaskUUID)
	ask := claimOne(t, e, w)
	must(e.Report(ctx, w, []tasker.Outcome{{Lease: ask.Lease(), Failure: &tasker.Failure{Message: "gone", Type: "gateway", Retryable: false}}}, 0)).or(t)

	entry := must(c.EntryOfTask(ctx, task)).or(t)
	id := parse(t, entry.DLQEntryUUID)
	if entry.DLQReason != string(tasker.MaxRetriesExceeded) {
		t.Errorf("reason %s", entry.DLQReason)
	}
	if list := must(c.Entries(ctx, client.EntryQuery{Status: tasker.EntryPending, Reason: tasker.MaxRetriesExceeded})).or(t); len(list) != 1 {
		t.Errorf("%d entries, want 1", len(list))
	}
	if list := must(c.InvestigationQueue(ctx, client.InvestigationQuery{})).or(t); len(list) != 1 || list[0].DLQEntryUUID != entry.DLQEntryUUID {
		t.Errorf("queue %+v", list)
	}
	if list := must(c.Stats(ctx)).or(t); len(list) == 0 {
		t.Error("no statistics")
	}
	must(c.Staleness(ctx, client.StalenessQuery{Page: client.Page{Limit: 10}})).or(t)
	dead := true
	if list := must(c.Tasks(ctx, client.TaskQuery{Status: tasker.TaskError, DeadLettered: &dead})).or(t); len(list.Tasks) != 1 {
		t.Errorf("%d dead-lettered tasks, want 1", len(list.Tasks))
	}

	_, err := c.OpenEntry(ctx, task, apiv1.OpenEntry{Reason: "again", CreatedBy: "me"})
	var known *tasker.Error
	if !errors.As(err, &known) || known.Code != tasker.Conflict {
		t.Fatalf("a second entry: %v, want Conflict", err)
	}
	if details, _ := known.Details.(map[string]any); details["dlq_entry_uuid"] != entry.DLQEntryUUID {
		t.Errorf("details %v do not name the open entry", known.Details)
	}

	after := must(c.ActOnStep(ctx, task, ask.StepUUID, apiv1.StepAction{
		ActionType: string(tasker.CompleteManually), Reason: "asked by hand", CompletedBy: "me",
		CompletionData: &apiv1.CompletionData{Result: json.RawMessage(`{"name":"Bob"}`)},
	})).or(t)
	if after.CurrentState != "complete" {
		t.Errorf("step is %s after the action", after.CurrentState)
	}
	if greet := claimOne(t, e, w); string(greet.DependencyResults["ask"]) != `{"name":"Bob"}` {
		t.Errorf("the next step receives %s", greet.DependencyResults["ask"])
	}

	status, notes, by := string(tasker.EntryManuallyResolved), "done", "me"
	updated := must(c.UpdateEntry(ctx, id, apiv1.UpdateEntry{ResolutionStatus: &status, ResolutionNotes: &notes, ResolvedBy: &by})).or(t)
	if !updated.Success || updated.ResolutionStatus != status {
		t.Errorf("updated %+v", updated)
	}
	if got := must(c.Entry(ctx, id)).or(t); len(got.History) < 2 {
		t.Errorf("history of the entry %+v", got.History)
	}
	if got := must(c.CancelTask(ctx, task, "enough", "me")).or(t); got.Status != "cancelled" {
		t.Errorf("task is %s after the cancellation", got.Status)
	}
}

func TestTemplatesAndServer(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newServer(t)
	if got := must(c.RegisterTemplate(ctx, []byte(greetings), client.YAML)).or(t); got.Created {
		t.Error("the same template counts as a new one")
	}
	if list := must(c.Templates(ctx, "greetings", client.Page{Limit: 5})).or(t); len(list.Templates) != 1 {
		t.Errorf("%d templates, want 1", len(list.Templates))
	}
	if got := must(c.Template(ctx, "greetings", "greet", "1.0.0")).or(t); got.Source != greetings || got.StepCount != 3 {
		t.Errorf("template %+v", got)
	}
	_, err := c.RegisterTemplate(ctx, []byte("name: x\nstepz: []\n"), client.YAML)
	var known *tasker.Error
	if !errors.As(err, &known) || known.Code != tasker.Invalid || known.Details == nil {
		t.Errorf("a wrong template: %v, want Invalid with the faults", err)
	}
	if got := must(c.Health(ctx)).or(t); got.Version != "9.8.7" {
		t.Errorf("version %s", got.Version)
	}
	register(t, c.Backend())
	if list := must(c.Workers(ctx, client.Page{})).or(t); len(list.Workers) != 1 {
		t.Errorf("%d workers, want 1", len(list.Workers))
	}
	if _, err := c.Task(ctx, tasker.NewID()); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("an unknown task: %v, want NotFound", err)
	}
}
