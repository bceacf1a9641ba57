package dlq_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/templatefile"
)

// The lifecycle tests that the specification lists, with its template: two steps in a line, and
// thresholds of two minutes. The reference calls the SQL function on rows it made; here a worker
// executes the steps, the sweep is the service's, and what is stuck goes on.

// newLifecycle makes a harness with the template and a worker for its steps. The second step may
// wait for a system outside, because only for that does a task of ours wait for dependencies.
func newLifecycle(t *testing.T, second tasker.StepType) *documented {
	t.Helper()
	d := newDocumented(t)
	source, err := os.ReadFile("../templatefile/testdata/specification/test_template.yaml")
	d.Must(err)
	template, _, err := templatefile.Parse(source)
	d.Must(err)
	if second == tasker.ExternalStep {
		template.Steps[1].Type, template.Steps[1].Handler, template.Steps[1].TimeoutSeconds = second, tasker.Handler{}, 0
	}
	d.Engine = engine.New(d.DB, engine.Options{Environment: "test"})
	_, _, err = d.Engine.RegisterTemplate(t.Context(), template, string(source))
	d.Must(err)
	r, err := d.Engine.RegisterWorker(t.Context(), tasker.WorkerSpec{
		Name: "w", Namespaces: []string{"dlq_test"}, Handlers: []string{"dlq_step_1", "dlq_step_2"},
	})
	d.Must(err)
	d.worker = r.WorkerUUID
	return d
}

func (d *documented) begin() tasker.ID {
	d.Helper()
	c, err := d.Engine.CreateTasks(d.Context(), []tasker.NewTask{{Namespace: "dlq_test", Name: "dlq_staleness_test"}})
	d.Must(err)
	return c[0].TaskUUID
}

// next claims the one step that is to be claimed.
func (d *documented) next(name string) tasker.Assignment {
	d.Helper()
	a := d.claim()
	if a.Name != name {
		d.Fatalf("claimed %s, want %s", a.Name, name)
	}
	return a
}

func (d *documented) wantState(task tasker.ID, want tasker.TaskState) {
	d.Helper()
	if s := d.State(task); s != want {
		d.Fatalf("the task is %s, want %s", s, want)
	}
}

// swept checks what the sweep left of a task that stood still: an error, an
// investigation that is pending, counted and in the queue.
func (d *documented) swept(task tasker.ID, from tasker.TaskState) tasker.Entry {
	d.Helper()
	d.wantState(task, tasker.TaskError)
	e := d.Entry(task)
	if e.Reason != tasker.StalenessTimeout || e.DetailCode != string(from) || e.OriginalState != from ||
		e.ResolutionStatus != tasker.EntryPending || e.DetectedBy != tasker.DetectedSweep || e.RecoveredAt != nil {
		d.Errorf("entry %+v", e)
	}
	var shot struct {
		Minutes   float64 `json:"time_in_state_minutes"`
		Threshold float64 `json:"threshold_minutes"`
		Steps     []any   `json:"steps"`
	}
	d.Must(json.Unmarshal(e.Snapshot, &shot))
	d.wantStood(shot.Minutes, 3)
	if shot.Threshold != 2 || len(shot.Steps) != 2 {
		d.Errorf("the snapshot has a threshold of %v minutes and %d steps", shot.Threshold, len(shot.Steps))
	}
	d.wantStats(1, 0)
	queue := d.queue()
	if len(queue) != 1 || queue[0].EntryUUID != e.UUID || queue[0].TaskUUID != task || queue[0].CurrentState != tasker.TaskError {
		d.Fatalf("queue %+v", queue)
	}
	if q := queue[0]; q.PriorityScore < 100 || q.PriorityScore > 105 { // its reason's 100 and a point a minute
		d.Errorf("it has %v points", q.PriorityScore)
	}
	return e
}

// wantStats checks the counts of stale tasks, the only reason there is.
func (d *documented) wantStats(pending, resolved int64) {
	d.Helper()
	stats, err := d.DB.EntryStats(d.Context())
	d.Must(err)
	if len(stats) != 1 || stats[0].Reason != tasker.StalenessTimeout || stats[0].Total != pending+resolved ||
		stats[0].Pending != pending || stats[0].ManuallyResolved != resolved {
		d.Errorf("stats %+v, want %d pending and %d resolved", stats, pending, resolved)
	}
}

// wantRecovered checks that the investigation is still open and says that the
// task went on by itself.
func (d *documented) wantRecovered(entry tasker.ID) {
	d.Helper()
	e := d.entry(entry)
	if e.RecoveredAt == nil || e.ResolutionStatus != tasker.EntryPending {
		d.Errorf("recovered at %v, %s", e.RecoveredAt, e.ResolutionStatus)
	}
}

func TestDLQLifecycleWaitingForDependenciesStaleness(t *testing.T) {
	t.Parallel()
	d := newLifecycle(t, tasker.ExternalStep)
	task := d.begin()
	d.succeed(d.next("dlq_step_1"))
	d.wantState(task, waitingForDependencies)
	d.sweep(0)
	d.stand(task, 3*time.Minute)
	d.sweep(1)
	e := d.swept(task, waitingForDependencies)
	d.sweep(0)

	// What was missing comes after all.
	steps, err := d.DB.Steps(t.Context(), task)
	d.Must(err)
	for _, s := range steps {
		if s.Name != "dlq_step_2" {
			continue
		}
		_, err = d.Engine.CompleteExternal(t.Context(), task, s.UUID, tasker.Outcome{Success: true, Result: json.RawMessage(`1`)}, "bank")
		d.Must(err)
	}
	d.wantState(task, tasker.TaskComplete)
	d.wantRecovered(e.UUID)
	d.end(e.UUID, tasker.EntryManuallyResolved)
	d.wantStats(0, 1)
}

func TestDLQLifecycleStepsInProcessStaleness(t *testing.T) {
	t.Parallel()
	d := newLifecycle(t, tasker.StandardStep)
	task := d.begin()
	held := d.next("dlq_step_1")
	d.wantState(task, stepsInProcess)
	d.sweep(0)
	d.stand(task, 3*time.Minute)
	d.sweep(1)
	e := d.swept(task, stepsInProcess)
	d.sweep(0)

	// The worker was only slow.
	d.succeed(held)
	d.wantState(task, stepsInProcess)
	d.succeed(d.next("dlq_step_2"))
	d.wantState(task, tasker.TaskComplete)
	d.wantRecovered(e.UUID)
	d.end(e.UUID, tasker.EntryManuallyResolved)
	d.wantStats(0, 1)
}

func TestDLQLifecycleProactiveMonitoring(t *testing.T) {
	t.Parallel()
	d := newLifecycle(t, tasker.StandardStep)
	var tasks []tasker.ID // one after the other becomes older
	for _, stood := range []time.Duration{10 * time.Second, 97 * time.Second, 3 * time.Minute} {
		task := d.begin()
		d.fail(d.worker)
		d.wantState(task, waitingForRetry)
		d.stand(task, stood)
		tasks = append(tasks, task)
	}
	type line struct {
		Task   tasker.ID
		Health tasker.Health
	}
	monitor := func() (got []line) {
		t.Helper()
		lines, err := d.DB.Staleness(t.Context(), tasker.StalenessFilter{Limit: 100})
		d.Must(err)
		for _, l := range lines {
			got = append(got, line{l.TaskUUID, l.Health})
			if l.ThresholdMinutes != 2 || (l.TimeInStateMinutes/l.ThresholdMinutes > 1) != (l.Health == tasker.Stale) {
				t.Errorf("%s at %v of %v minutes", l.Health, l.TimeInStateMinutes, l.ThresholdMinutes)
			}
		}
		return got
	}
	if diff := cmp.Diff([]line{{tasks[2], tasker.Stale}, {tasks[1], tasker.Warning}, {tasks[0], tasker.Healthy}}, monitor()); diff != "" {
		t.Error(diff)
	}
	d.sweep(1)
	d.swept(tasks[2], waitingForRetry)
	if diff := cmp.Diff([]line{{tasks[1], tasker.Warning}, {tasks[0], tasker.Healthy}}, monitor()); diff != "" {
		t.Errorf("after the sweep: %s", diff)
	}

	// One and the same task goes through all three.
	d.stand(tasks[0], 88*time.Second)
	if diff := cmp.Diff([]line{{tasks[0], tasker.Warning}, {tasks[1], tasker.Warning}}, monitor()); diff != "" {
		t.Errorf("88 seconds later: %s", diff)
	}
	d.stand(tasks[0], time.Minute)
	if diff := cmp.Diff([]line{{tasks[0], tasker.Stale}, {tasks[1], tasker.Warning}}, monitor()); diff != "" {
		t.Errorf("another minute later: %s", diff)
	}
}

func TestDLQInvestigationWorkflow(t *testing.T) {
	t.Parallel()
	d := newLifecycle(t, tasker.StandardStep)
	task := d.begin()
	held := d.next("dlq_step_1") // by a worker that hangs
	d.stand(task, 3*time.Minute)
	d.sweep(1)
	e := d.swept(task, stepsInProcess)

	// The investigator takes the step away from it, and the task goes on.
	d.update(e.UUID, tasker.EntryUpdate{Notes: new("the worker hangs"), Actor: "ann"})
	d.operate(task, held.StepUUID, tasker.CompleteManually)
	d.succeed(d.next("dlq_step_2"))
	d.wantState(task, tasker.TaskComplete)
	got, warnings := d.update(e.UUID, tasker.EntryUpdate{
		Status: new(tasker.EntryManuallyResolved), Notes: new("restarted the worker"), ResolvedBy: new("ann"),
	})
	if got.ResolutionStatus != tasker.EntryManuallyResolved || *got.ResolutionNotes != "restarted the worker" || *got.ResolvedBy != "ann" ||
		got.ResolvedAt == nil || got.CurrentTaskState != tasker.TaskComplete {
		t.Errorf("entry %+v", got)
	}
	if len(warnings) != 0 {
		t.Errorf("warnings %v", warnings)
	}
	var events []string
	for _, c := range got.History {
		events = append(events, c.Event+" by "+c.Actor)
	}
	// An operator's repair is no recovery: the task did not go on by itself.
	if diff := cmp.Diff([]string{"created by tasker", "updated by ann", "step_completed by ann", "resolved by ann"}, events); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(string(e.Snapshot), string(got.Snapshot)); diff != "" {
		t.Errorf("the evidence has changed: %s", diff)
	}
	if queue := d.queue(); len(queue) != 0 {
		t.Errorf("queue %+v", queue)
	}
	d.wantStats(0, 1)
	d.sweep(0)
}
