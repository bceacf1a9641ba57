package dlq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A harness is investigations and an engine on a database of their own.
type harness struct {
	*enginetest.Harness
	worker tasker.ID
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{Harness: enginetest.New(t)}
	h.worker = h.RegisterWorker("run")
	h.Template("single", enginetest.Once(enginetest.Step("one")))
	return h
}

// poison has no investigation opened of the tasks for which condition holds, until
// heal. What fails at one of them is set aside for a while.
func (h *harness) poison(condition string, args ...any) {
	h.Helper()
	h.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(`CREATE TRIGGER broken BEFORE INSERT ON tasker.tasks_dlq FOR EACH ROW WHEN (` + fmt.Sprintf(condition, args...) + `) EXECUTE FUNCTION public.refuse()`)
}

func (h *harness) heal() {
	h.Helper()
	h.Exec(`DROP TRIGGER broken ON tasker.tasks_dlq`)
	h.Exec(`UPDATE tasker.deferred_work SET retry_at = now()`) // what was set aside is due again
}

func (h *harness) create() tasker.ID {
	h.Helper()
	return h.Create("single")
}

func (h *harness) claim() tasker.Assignment {
	h.Helper()
	list, err := h.Engine.Claim(h.Context(), h.worker, 1, 0)
	h.Must(err)
	if len(list) != 1 {
		h.Fatalf("claimed %d steps", len(list))
	}
	return list[0]
}

func (h *harness) report(o tasker.Outcome) {
	h.Helper()
	r, err := h.Engine.Report(h.Context(), h.worker, []tasker.Outcome{o}, 0)
	h.Must(err)
	if len(r.Accepted) != 1 {
		h.Fatalf("receipt %+v", r)
	}
}

// failed returns the investigation of a task whose step has failed for good.
func (h *harness) failed() tasker.Entry {
	h.Helper()
	task := h.create()
	h.fail(h.claim(), false)
	return h.Entry(task)
}

// entry returns an investigation.
func (h *harness) entry(id tasker.ID) tasker.Entry {
	h.Helper()
	e, err := h.DB.Entry(h.Context(), id)
	h.Must(err)
	return e
}

// update changes an investigation.
func (h *harness) update(id tasker.ID, u tasker.EntryUpdate) (e tasker.Entry, warnings []string) {
	h.Helper()
	e, warnings, err := h.DLQ.Update(h.Context(), id, u)
	h.Must(err)
	return e, warnings
}

// openByHand opens an investigation by hand.
func (h *harness) openByHand(task tasker.ID) tasker.Entry {
	h.Helper()
	e, err := h.DLQ.Open(h.Context(), task, tasker.NewEntry{Actor: "ann", Reason: "odd"})
	h.Must(err)
	return e
}

// operate performs an operator's action on a step.
func (h *harness) operate(task, step tasker.ID, action tasker.StepAction) {
	h.Helper()
	r := tasker.ActionRequest{Action: action, Actor: "ann", Reason: "r", Interrupt: true}
	if action == tasker.CompleteManually {
		r.Result = json.RawMessage(`1`)
	}
	_, err := h.Engine.OperateStep(h.Context(), task, step, r)
	h.Must(err)
}

// stand makes it so that the task has stood where it is for a while.
func (h *harness) stand(task tasker.ID, d time.Duration) {
	h.Helper()
	h.Exec(`UPDATE tasker.tasks SET state_since = state_since - $2::interval, warn_at = warn_at - $2::interval,
		stale_at = stale_at - $2::interval, ends_at = ends_at - $2::interval, created_at = created_at - $2::interval WHERE task_uuid = $1`, task, d)
}

// work returns a task and its steps as they are. When the sweep is to look at it is no
// part of that.
func (h *harness) work(task tasker.ID) (text string) {
	h.Helper()
	h.Must(h.Admin().QueryRow(h.Context(), `
		SELECT concat(to_jsonb(t) - 'attend_by', (SELECT jsonb_agg(s ORDER BY s.step_uuid) FROM tasker.workflow_steps s WHERE s.task_uuid = t.task_uuid))
		FROM tasker.tasks t WHERE t.task_uuid = $1`, task).Scan(&text))
	return text
}

func TestSweepFindsStaleTasks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	stale, warned, fresh := h.create(), h.create(), h.create()
	h.stand(stale, 31*time.Minute)
	h.stand(warned, 25*time.Minute)

	lines, err := h.DB.Staleness(t.Context(), tasker.StalenessFilter{Limit: 10})
	h.Must(err)
	var got []string
	for _, l := range lines {
		got = append(got, string(l.Health))
	}
	if diff := cmp.Diff([]string{"stale", "warning", "healthy"}, got); diff != "" || lines[0].TaskUUID != stale || lines[0].ThresholdMinutes != 30 {
		t.Errorf("staleness %+v %s", lines, diff)
	}
	dry, err := h.DB.SweepStale(t.Context(), true, 10, 0)
	h.Must(err)
	if len(dry) != 1 || dry[0].ActionTaken != "would_transition_to_dlq_and_error" || h.State(stale) != tasker.TaskStepsInProcess {
		t.Errorf("dry run %+v", dry)
	}
	n, err := h.DLQ.Sweep(t.Context())
	h.Must(err)
	if n != 1 || h.State(stale) != tasker.TaskError || h.State(warned) != tasker.TaskStepsInProcess || h.State(fresh) != tasker.TaskStepsInProcess {
		t.Fatalf("swept %d", n)
	}
	e := h.Entry(stale)
	if e.Reason != tasker.StalenessTimeout || e.DetailCode != "steps_in_process" || e.DetectedBy != tasker.DetectedSweep ||
		e.OriginalState != tasker.TaskStepsInProcess || e.StepUUID != nil {
		t.Errorf("entry %+v", e)
	}
	var s struct {
		Minutes   float64 `json:"time_in_state_minutes"`
		Threshold float64 `json:"threshold_minutes"`
	}
	h.Must(json.Unmarshal(e.Snapshot, &s))
	if s.Minutes < 31 || s.Minutes > 32 || s.Threshold != 30 {
		t.Errorf("snapshot %+v", s)
	}
	h.sweep(0)
}

// What is due all at once is moved by batches side by side, which do not take each
// other's tasks; each task is moved once, and all of them.
func TestSweepRunsBatchesUntilNothingIsDue(t *testing.T) {
	t.Parallel()
	for _, due := range []int{0, 1, 4, 5, 12, 31} {
		t.Run(fmt.Sprint(due), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			for range due {
				h.stand(h.create(), time.Hour)
			}
			n := 0
			for again := true; again; { // a pass that takes too long leaves what is due to the next
				began := time.Now()
				moved, err := dlq.New(h.DB, dlq.Options{BatchSize: 4}).SweepAll(t.Context())
				h.Must(err)
				n += moved
				again = moved > 0 && time.Since(began) > dlq.SweepFor
			}
			all, err := h.DB.Entries(t.Context(), tasker.EntryFilter{Limit: 100, Status: tasker.EntryPending})
			h.Must(err)
			if n != due || len(all) != due {
				t.Errorf("says %d, opened %d investigations of %d tasks", n, len(all), due)
			}
		})
	}
}

// A pass whose time is over while more is due is followed by the next one at once, and not after the interval.
func TestASweepThatRunsOutOfTimeContinuesAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for range 15 {
		h.stand(h.create(), time.Hour)
	}
	s := dlq.New(h.DB, dlq.Options{BatchSize: 2, SweepEvery: 5 * time.Minute})
	s.SetPass(-1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Loops()[0].Run(ctx) }()
	h.Eventually("all tasks have an investigation", func() bool { return h.Count(`SELECT count(*) FROM tasker.tasks_dlq`) == 15 })
	stop()
	h.Must(<-ended)
}

// What one of two batches has moved stays, when the other dies.
func TestABatchThatDiesLeavesTheOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for i := range 8 {
		h.stand(h.create(), time.Duration(9-i)*time.Hour)
	}
	h.Exec(`CREATE TABLE public.bad AS SELECT task_uuid FROM tasker.tasks ORDER BY state_since OFFSET 5 LIMIT 1`)
	h.Exec(`CREATE FUNCTION public.die() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			PERFORM pg_terminate_backend(pg_backend_pid()) FROM public.bad b WHERE b.task_uuid = NEW.task_uuid;
			RETURN NEW;
		END $$`)
	h.Exec(`CREATE TRIGGER dies BEFORE INSERT ON tasker.tasks_dlq FOR EACH ROW EXECUTE FUNCTION public.die()`)
	n, err := dlq.New(h.DB, dlq.Options{BatchSize: 4}).SweepAll(t.Context())
	if err == nil || n < 4 {
		t.Errorf("moved %d, %v; want the longest overdue 4, and the error", n, err)
	}
	h.Exec(`DROP TRIGGER dies ON tasker.tasks_dlq`)
	if n, err = dlq.New(h.DB, dlq.Options{BatchSize: 4}).SweepAll(t.Context()); err != nil || n == 0 {
		t.Errorf("then moved %d, %v", n, err)
	}
}

func TestADryRunOfTheWholeSweepIsOneBatch(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for range 5 {
		h.stand(h.create(), time.Hour)
	}
	n, err := dlq.New(h.DB, dlq.Options{BatchSize: 2, DryRun: true}).SweepAll(t.Context())
	if err != nil || n != 2 {
		t.Errorf("says %d, %v; want the first batch of 2", n, err)
	}
}

func TestABatchLeavesTheLongestOverdueToOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for i := range 4 {
		h.stand(h.create(), time.Duration(8-i)*time.Hour) // the first stands longest
	}
	swept, err := h.DB.SweepStale(t.Context(), false, 2, 1)
	h.Must(err)
	if len(swept) != 2 || swept[0].TimeInStateMinutes > 7.5*60 || swept[1].TimeInStateMinutes > 6.5*60 {
		t.Errorf("took %+v, want the second and the third", swept)
	}
	if _, err := h.DB.SweepStale(t.Context(), false, 2, -1); err == nil || !strings.Contains(err.Error(), "p_skip must be at least 0, not -1") {
		t.Errorf("a batch that skips -1: %v", err)
	}
}

func TestStaleTaskRecoversWhenItsWorkerReports(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.create()
	a := h.claim()
	h.stand(task, time.Hour)
	h.sweep(1)
	h.succeed(a)
	if s := h.State(task); s != tasker.TaskComplete {
		t.Fatalf("task is %s", s)
	}
	e := h.Entry(task)
	if e.RecoveredAt == nil || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("entry recovered at %v, %s", e.RecoveredAt, e.ResolutionStatus)
	}
}

// A worker whose step takes longer than the threshold, and that cannot be heard for a
// while because the servers are away, finds its task where it was when they are back.
func TestALongStepOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	long := enginetest.Step("one")
	long.TimeoutSeconds = 7200
	h.Template("long", long)
	task, a := h.Create("long"), h.claim()
	h.stand(task, time.Hour)
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now() - interval '10 minutes' WHERE task_uuid = $1`, task)
	n, err := h.DLQ.Sweep(t.Context()) // the first pass of a server that has just started
	h.Must(err)
	if n != 0 || h.State(task) != tasker.TaskStepsInProcess {
		t.Fatalf("the sweep moved %d tasks; the task is %s", n, h.State(task))
	}
	beat, err := h.Engine.Heartbeat(t.Context(), h.worker, []tasker.Lease{a.Lease()})
	h.Must(err)
	if len(beat.Lost) != 0 {
		t.Fatalf("the lease is lost: %+v", beat)
	}
	h.succeed(a)
	if s := h.State(task); s != tasker.TaskComplete {
		t.Errorf("the task is %s", s)
	}
	if _, err := h.DB.EntryOfTask(t.Context(), task); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("it has an investigation: %v", err)
	}
}

// setThresholds starts with other thresholds and applies them at once.
func (h *harness) setThresholds(th postgres.Thresholds) {
	h.Helper()
	_, err := h.DB.SetStalenessThresholds(h.Context(), th)
	h.Must(err)
	var pass postgres.ThresholdPass
	for more := true; more; {
		_, more, err = h.DB.ApplyThresholds(h.Context(), &pass, 0, 1)
		h.Must(err)
	}
}

func TestThresholds(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.create()
	h.setThresholds(postgres.Thresholds{WaitingForDependencies: 60, WaitingForRetry: 30, StepsInProcess: 5, ErrorRecovery: 60})
	h.stand(task, 6*time.Minute)
	h.sweep(1)
}

// A task at which something fails does not stop the others, nor does a whole
// batch of them hide what comes after.
func TestFailingTasksDoNotStopTheSweep(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.DLQ = dlq.New(h.DB, dlq.Options{BatchSize: 2})
	poisoned := []tasker.ID{h.create(), h.create(), h.create()}
	for _, task := range poisoned {
		h.stand(task, 2*time.Hour) // so they come first
	}
	sound := h.create()
	h.stand(sound, time.Hour)
	h.poison("NEW.task_uuid <> '%s'", sound)
	n, err := h.DLQ.Sweep(t.Context())
	h.Must(err)
	if n != 1 || h.State(sound) != tasker.TaskError {
		t.Errorf("the sweep found %d, the sound task is %s", n, h.State(sound))
	}
	for _, task := range poisoned {
		if s := h.State(task); s != tasker.TaskStepsInProcess {
			t.Errorf("a task without an investigation is %s", s)
		}
	}
	h.heal()
	h.sweep(2)
	h.sweep(1)
}

// However a task came to error: somebody will look at it.
func TestSweepFindsTasksInErrorWithoutInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, healed := h.create(), h.create()
	for _, id := range []tasker.ID{task, healed} { // by hand, in psql
		h.Exec(`INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at) VALUES ($1, 'steps_in_process', 'error', 'declare_stale', now())`, id)
		h.Exec(`UPDATE tasker.tasks SET state = 'error', state_since = now(), warn_at = NULL, stale_at = NULL WHERE task_uuid = $1`, id)
	}
	h.sweep(0)
	h.claim()
	h.report(tasker.Outcome{Lease: h.claim().Lease(), Success: true, Result: json.RawMessage(`1`)}) // the second one goes on by itself
	if s := h.State(healed); s != tasker.TaskComplete {
		t.Fatalf("the task whose worker delivered is %s", s)
	}
	h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '61 minutes', attend_by = attend_by - interval '61 minutes' WHERE state = 'error'`)
	dry := dlq.New(h.DB, dlq.Options{DryRun: true})
	if n, err := dry.Sweep(t.Context()); err != nil || n != 1 {
		t.Errorf("a dry run finds %d, %v", n, err)
	}
	h.sweep(1)
	e := h.Entry(task)
	if e.Reason != tasker.StalenessTimeout || e.DetailCode != "unrecovered_error" || e.OriginalState != tasker.TaskError || e.DetectedBy != tasker.DetectedSweep {
		t.Errorf("entry %s %s from %s by %s", e.Reason, e.DetailCode, e.OriginalState, e.DetectedBy)
	}
	h.sweep(0)
}

// A task that failed has its investigation at once; the sweep leaves it alone,
// also when that has ended.
func TestSweepSkipsTasksWithACancelledInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.failed()
	h.update(e.UUID, tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("known"), ResolvedBy: new("ann")})
	h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '2 hours', attend_by = attend_by - interval '2 hours'`)
	h.sweep(0)
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.failed()
	before := h.work(e.TaskUUID)
	got, warn := h.update(e.UUID, tasker.EntryUpdate{
		Notes: new("looking"), Metadata: json.RawMessage(`{"ticket": "OPS-1", "a": 1}`), Actor: "ann",
	})
	if got.ResolutionStatus != tasker.EntryPending || *got.ResolutionNotes != "looking" || got.ResolvedAt != nil || len(warn) != 0 {
		t.Errorf("after a note: %+v %v", got, warn)
	}
	end := tasker.EntryUpdate{
		Status: new(tasker.EntryManuallyResolved), Notes: new("fixed"), ResolvedBy: new("bob"), Metadata: json.RawMessage(`{"a": 2}`), Actor: "key-7",
	}
	for range 2 { // the very same again is fine
		got, warn = h.update(e.UUID, end)
	}
	if got.ResolutionStatus != tasker.EntryManuallyResolved || *got.ResolvedBy != "bob" || got.ResolvedAt == nil {
		t.Errorf("after its end: %+v", got)
	}
	if want := `{"a": 2, "ticket": "OPS-1"}`; string(got.Metadata) != want {
		t.Errorf("the metadata is %s, want %s", got.Metadata, want)
	}
	if len(warn) != 1 || !strings.Contains(warn[0], "still in error") {
		t.Errorf("warnings %v", warn)
	}
	var changes []string
	for _, c := range got.History {
		changes = append(changes, fmt.Sprintf("%s by %s from %q to %q", c.Event, c.Actor, c.From, c.To))
	}
	if diff := cmp.Diff(before, h.work(e.TaskUUID)); diff != "" {
		t.Errorf("the task or its step was changed: %s", diff)
	}
	want := []string{
		`created by tasker from "" to "pending"`, `updated by ann from "pending" to "pending"`, `resolved by key-7 from "pending" to "manually_resolved"`,
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Error(diff)
	}
	if first, last := got.History[0].At, got.History[2].At; !first.Equal(e.At) || !last.Equal(*got.ResolvedAt) {
		t.Errorf("opened at %s and resolved at %s, the history says %s and %s", e.At, got.ResolvedAt, first, last)
	}
	end.Status = new(tasker.EntryCancelled)
	_, _, err := h.DLQ.Update(t.Context(), e.UUID, end)
	h.WantCode(err, tasker.Conflict, "ended as manually_resolved")
	_, _, err = h.DLQ.Update(t.Context(), e.UUID, tasker.EntryUpdate{Status: new(tasker.EntryPending)})
	h.WantCode(err, tasker.Conflict, "cannot be reopened")
	after, err := h.DB.Entry(t.Context(), e.UUID)
	h.Must(err)
	if diff := cmp.Diff(string(e.Snapshot), string(after.Snapshot)); diff != "" {
		t.Errorf("the evidence has changed: %s", diff)
	}
}

func TestAnUpdateOfWhatSomebodyElseHasChangedIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.failed()
	read := e.UpdatedAt
	after, _ := h.update(e.UUID, tasker.EntryUpdate{Notes: new("mine"), Actor: "ann", IfUnchangedSince: &read})
	_, _, err := h.DLQ.Update(t.Context(), e.UUID, tasker.EntryUpdate{Notes: new("mine, too"), Actor: "bob", IfUnchangedSince: &read})
	h.WantCode(err, tasker.Conflict, "after you read it", "read it again")
	end := tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("done"), ResolvedBy: new("bob"), IfUnchangedSince: &after.UpdatedAt}
	for range 2 { // sent again, it is still fine
		h.update(e.UUID, end)
	}
}

func TestUpdatesThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.failed()
	for _, tt := range []struct {
		name string
		u    tasker.EntryUpdate
		says string
	}{
		{"nothing", tasker.EntryUpdate{Actor: "ann"}, "nothing to change"},
		{"a status that there is not", tasker.EntryUpdate{Status: new(tasker.ResolutionStatus("done"))}, "resolution_status: must be"},
		{"an end without notes", tasker.EntryUpdate{Status: new(tasker.EntryCancelled), ResolvedBy: new("ann")}, "resolution_notes: is missing"},
		{"an end by nobody", tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("n")}, "resolved_by: is missing"},
		{"empty notes", tasker.EntryUpdate{Notes: new(" ")}, "resolution_notes: is empty"},
		{"long notes", tasker.EntryUpdate{Notes: new(strings.Repeat("n", 20_001))}, "the limit is 20000"},
		{"a NUL", tasker.EntryUpdate{Notes: new("a\x00")}, "NUL"},
		{"metadata that is a list", tasker.EntryUpdate{Metadata: json.RawMessage(`[]`)}, "metadata: must be a JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := h.DLQ.Update(t.Context(), e.UUID, tt.u)
			h.WantCode(err, tasker.Invalid, tt.says)
		})
	}
	_, _, err := h.DLQ.Update(t.Context(), tasker.NewID(), tasker.EntryUpdate{Notes: new("n")})
	h.WantCode(err, tasker.NotFound, "not found")
	after, err := h.DB.Entry(t.Context(), e.UUID)
	h.Must(err)
	if after.UpdatedAt != e.UpdatedAt || len(after.History) != 1 {
		t.Error("the entry has changed")
	}
}

func TestConcurrentResolutionsHaveOneWinner(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.failed()
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		status := tasker.ResolutionStatuses()[1+i%3]
		wg.Go(func() {
			_, _, errs[i] = h.DLQ.Update(t.Context(), e.UUID, tasker.EntryUpdate{Status: &status, Notes: new(strings.Repeat("n", i+1)), ResolvedBy: new("ann")})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if tasker.CodeOf(err) != tasker.Conflict {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d ended it", won)
	}
}

func TestOpenByHand(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.create()
	before := h.work(task)
	e, err := h.DLQ.Open(t.Context(), task, tasker.NewEntry{Actor: "ann", Reason: "looks odd", Metadata: json.RawMessage(`{"a": 1}`)})
	h.Must(err)
	if e.Reason != tasker.ManualDLQ || e.DetectedBy != tasker.DetectedOperator || e.OriginalState != tasker.TaskStepsInProcess || e.History[0].Actor != "ann" {
		t.Errorf("entry %+v", e)
	}
	if diff := cmp.Diff(before, h.work(task)); diff != "" {
		t.Errorf("the task or its step was changed: %s", diff)
	}
	_, err = h.DLQ.Open(t.Context(), task, tasker.NewEntry{Actor: "bob", Reason: "me too"})
	h.WantCode(err, tasker.Conflict, e.UUID.String())
	_, err = h.DLQ.Open(t.Context(), task, tasker.NewEntry{Actor: "", Reason: ""})
	h.WantCode(err, tasker.Invalid, "reason: is empty")
	_, err = h.DLQ.Open(t.Context(), tasker.NewID(), tasker.NewEntry{Actor: "ann", Reason: "r"})
	h.WantCode(err, tasker.NotFound)
}

func TestWrittenOffTasksAreNotRepairedButRecreated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.failed()
	h.update(e.UUID, tasker.EntryUpdate{
		Status: new(tasker.EntryPermanentlyFailed), Notes: new("the card is gone"), ResolvedBy: new("ann"),
	})
	_, err := h.Engine.OperateStep(t.Context(), e.TaskUUID, *e.StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "r"})
	h.WantCode(err, tasker.Conflict, "written off", "recreated_from")
	c, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "shop", Name: "single", RecreatedFrom: e.TaskUUID}})
	h.Must(err)
	again, err := h.DB.Task(t.Context(), c[0].TaskUUID)
	h.Must(err)
	if again.RecreatedFrom == nil || *again.RecreatedFrom != e.TaskUUID {
		t.Errorf("recreated from %v", again.RecreatedFrom)
	}
}

func TestASecondFailureIsANewInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	first := h.failed()
	h.update(first.UUID, tasker.EntryUpdate{Status: new(tasker.EntryManuallyResolved), Notes: new("n"), ResolvedBy: new("ann")})
	h.operate(first.TaskUUID, *first.StepUUID, tasker.ResetForRetry)
	h.fail(h.claim(), false)
	second := h.Entry(first.TaskUUID)
	if second.UUID == first.UUID || second.PredecessorUUID == nil || *second.PredecessorUUID != first.UUID {
		t.Errorf("second %s names %v", second.UUID, second.PredecessorUUID)
	}
}

// Another step fails while somebody works on the first. Its evidence goes into the open
// investigation, and when that ends a new one is opened: nothing is forgotten.
func TestAStepThatFailsDuringAnInvestigationIsNotForgotten(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("chain", oneAttempt("charge"), oneAttempt("ship", "charge"))
	task := h.Create("chain")
	h.report(tasker.Outcome{Lease: h.claim().Lease(), Failure: &tasker.Failure{Message: "no money"}})
	first := h.Entry(task)
	h.operate(task, *first.StepUUID, tasker.CompleteManually)
	ship := h.claim()
	h.report(tasker.Outcome{Lease: ship.Lease(), Failure: &tasker.Failure{Message: "no carrier"}})

	first, err := h.DB.Entry(t.Context(), first.UUID)
	h.Must(err)
	note := first.History[len(first.History)-1]
	if note.Event != "step_failed" || !strings.Contains(*note.Notes, "no carrier") || !strings.Contains(string(note.Metadata), ship.StepUUID.String()) {
		t.Errorf("the history of the open investigation ends with %+v", note)
	}
	_, warn := h.update(first.UUID, tasker.EntryUpdate{Status: new(tasker.EntryManuallyResolved), Notes: new("paid"), ResolvedBy: new("ann")})
	second := h.Entry(task)
	if second.UUID == first.UUID || *second.StepUUID != ship.StepUUID || second.DetailCode != tasker.PermanentFailure || *second.PredecessorUUID != first.UUID {
		t.Errorf("the next investigation is %+v", second)
	}
	if len(warn) != 1 || !strings.Contains(warn[0], second.UUID.String()) {
		t.Errorf("warnings %v", warn)
	}
	// Once the step is repaired, nothing follows.
	h.operate(task, ship.StepUUID, tasker.ResolveManually)
	_, _, err = h.DLQ.Update(t.Context(), second.UUID, tasker.EntryUpdate{Status: new(tasker.EntryPermanentlyFailed), Notes: new("x"), ResolvedBy: new("ann")})
	h.WantCode(err, tasker.Conflict, "cannot be written off")
	_, warn = h.update(second.UUID, tasker.EntryUpdate{Status: new(tasker.EntryManuallyResolved), Notes: new("done"), ResolvedBy: new("ann")})
	all, err := h.DB.Entries(t.Context(), tasker.EntryFilter{Limit: 10, Status: tasker.EntryPending})
	h.Must(err)
	if len(all) != 0 || len(warn) != 0 {
		t.Errorf("%d investigations are open, warnings %v", len(all), warn)
	}
}
