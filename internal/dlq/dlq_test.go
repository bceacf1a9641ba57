package dlq_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A house is investigations and an engine on a database of their own.
type house struct {
	*testing.T
	db     *postgres.DB
	engine *engine.Engine
	dlq    *dlq.Service
	worker tasker.ID
}

func newHouse(t *testing.T) *house {
	t.Helper()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	db, err := postgres.Open(t.Context(), d.URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	h := &house{T: t, db: db, engine: engine.New(db, engine.Options{}), dlq: dlq.New(db, dlq.Options{})}
	r, err := h.engine.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{"shop"}, Handlers: []string{"run"}})
	h.must(err)
	h.worker = r.WorkerUUID
	retry := tasker.DefaultRetry()
	retry.MaxAttempts = 1
	_, _, err = h.engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: "shop", Name: "single", Version: "1.0.0",
		Steps: []tasker.StepTemplate{{Name: "one", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Retry: retry}},
	}, "")
	h.must(err)
	return h
}

// admin is the database for what the test itself prepares and examines.
func (h *house) admin() *pgxpool.Pool {
	h.Helper()
	return pgtest.Admin(h, h.db.Pool().Config().ConnString())
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *house) wantCode(err error, code tasker.Code, words ...string) {
	h.Helper()
	if tasker.CodeOf(err) != code {
		h.Fatalf("got %v (%s), want code %s", err, tasker.CodeOf(err), code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			h.Errorf("error %q does not say %q", err, w)
		}
	}
}

func (h *house) exec(sql string, args ...any) {
	h.Helper()
	_, err := h.admin().Exec(h.Context(), sql, args...)
	h.must(err)
}

// poison has no investigation opened of the tasks for which condition holds, until
// heal. What fails at one of them is set aside for a while.
func (h *house) poison(condition string, args ...any) {
	h.Helper()
	h.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.exec(`CREATE TRIGGER broken BEFORE INSERT ON tasker.tasks_dlq FOR EACH ROW WHEN (` + fmt.Sprintf(condition, args...) + `) EXECUTE FUNCTION public.refuse()`)
}

func (h *house) heal() {
	h.Helper()
	h.exec(`DROP TRIGGER broken ON tasker.tasks_dlq`)
	h.exec(`UPDATE tasker.deferred_work SET retry_at = now()`) // what was set aside is due again
}

func (h *house) create() tasker.ID {
	h.Helper()
	c, err := h.engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: "shop", Name: "single"}})
	h.must(err)
	return c[0].TaskUUID
}

func (h *house) claim() tasker.Assignment {
	h.Helper()
	list, err := h.engine.Claim(h.Context(), h.worker, 1, 0)
	h.must(err)
	if len(list) != 1 {
		h.Fatalf("claimed %d steps", len(list))
	}
	return list[0]
}

func (h *house) report(o tasker.Outcome) {
	h.Helper()
	r, err := h.engine.Report(h.Context(), h.worker, []tasker.Outcome{o}, 0)
	h.must(err)
	if len(r.Accepted) != 1 {
		h.Fatalf("receipt %+v", r)
	}
}

// failed returns the investigation of a task whose step has failed for good.
func (h *house) failed() tasker.Entry {
	h.Helper()
	task := h.create()
	h.report(tasker.Outcome{Lease: h.claim().Lease(), Failure: &tasker.Failure{Message: "no"}})
	e, err := h.db.EntryOfTask(h.Context(), task)
	h.must(err)
	return e
}

// stand makes it so that the task has stood where it is for a while.
func (h *house) stand(task tasker.ID, d time.Duration) {
	h.Helper()
	h.exec(`UPDATE tasker.tasks SET state_since = state_since - $2::interval, warn_at = warn_at - $2::interval,
		stale_at = stale_at - $2::interval, ends_at = ends_at - $2::interval, created_at = created_at - $2::interval WHERE task_uuid = $1`, task, d)
}

func (h *house) state(task tasker.ID) tasker.TaskState {
	h.Helper()
	t, err := h.db.Task(h.Context(), task)
	h.must(err)
	return t.State
}

func TestTheSweepFindsWhatStandsStill(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	stale, warned, fresh := h.create(), h.create(), h.create()
	h.stand(stale, 31*time.Minute)
	h.stand(warned, 25*time.Minute)

	lines, err := h.db.Staleness(t.Context(), 10)
	h.must(err)
	var got []string
	for _, l := range lines {
		got = append(got, string(l.Health))
	}
	if diff := cmp.Diff([]string{"stale", "warning", "healthy"}, got); diff != "" || lines[0].TaskUUID != stale || lines[0].ThresholdMinutes != 30 {
		t.Errorf("staleness %+v %s", lines, diff)
	}
	dry, err := h.db.SweepStale(t.Context(), true, 10, 0)
	h.must(err)
	if len(dry) != 1 || dry[0].ActionTaken != "would_transition_to_dlq_and_error" || h.state(stale) != tasker.TaskStepsInProcess {
		t.Errorf("dry run %+v", dry)
	}
	n, err := h.dlq.Sweep(t.Context())
	h.must(err)
	if n != 1 || h.state(stale) != tasker.TaskError || h.state(warned) != tasker.TaskStepsInProcess || h.state(fresh) != tasker.TaskStepsInProcess {
		t.Fatalf("swept %d", n)
	}
	e, err := h.db.EntryOfTask(t.Context(), stale)
	h.must(err)
	if e.Reason != tasker.StalenessTimeout || e.DetailCode != "steps_in_process" || e.DetectedBy != tasker.DetectedSweep ||
		e.OriginalState != tasker.TaskStepsInProcess || e.StepUUID != nil {
		t.Errorf("entry %+v", e)
	}
	var s struct {
		Minutes   float64 `json:"time_in_state_minutes"`
		Threshold float64 `json:"threshold_minutes"`
	}
	h.must(json.Unmarshal(e.Snapshot, &s))
	if s.Minutes < 31 || s.Minutes > 32 || s.Threshold != 30 {
		t.Errorf("snapshot %+v", s)
	}
	if n, err = h.dlq.Sweep(t.Context()); err != nil || n != 0 {
		t.Errorf("the second sweep did %d, %v", n, err)
	}
}

func TestManySweepsAtOnceOpenOneInvestigationEach(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for range 30 {
		h.stand(h.create(), time.Hour)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 3 {
				if _, err := h.dlq.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	_, err := h.dlq.Sweep(t.Context())
	h.must(err)
	all, err := h.db.Entries(t.Context(), tasker.EntryFilter{Limit: 100, Status: tasker.EntryPending})
	h.must(err)
	if len(all) != 30 {
		t.Errorf("%d investigations of 30 tasks", len(all))
	}
}

// What is due all at once is moved by batches side by side, which do not take each
// other's tasks; each task is moved once, and all of them.
func TestASweepGoesOnUntilNothingIsDue(t *testing.T) {
	t.Parallel()
	for _, due := range []int{0, 1, 4, 5, 12, 31} {
		t.Run(fmt.Sprint(due), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			for range due {
				h.stand(h.create(), time.Hour)
			}
			n, err := dlq.New(h.db, dlq.Options{BatchSize: 4}).SweepAll(t.Context())
			h.must(err)
			all, err := h.db.Entries(t.Context(), tasker.EntryFilter{Limit: 100, Status: tasker.EntryPending})
			h.must(err)
			if n != due || len(all) != due {
				t.Errorf("says %d, opened %d investigations of %d tasks", n, len(all), due)
			}
		})
	}
}

// What one of two batches has moved stays, when the other dies.
func TestABatchThatDiesLeavesTheOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for i := range 8 {
		h.stand(h.create(), time.Duration(9-i)*time.Hour)
	}
	h.exec(`CREATE TABLE public.bad AS SELECT task_uuid FROM tasker.tasks ORDER BY state_since OFFSET 5 LIMIT 1`)
	h.exec(`CREATE FUNCTION public.die() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			PERFORM pg_terminate_backend(pg_backend_pid()) FROM public.bad b WHERE b.task_uuid = NEW.task_uuid;
			RETURN NEW;
		END $$`)
	h.exec(`CREATE TRIGGER dies BEFORE INSERT ON tasker.tasks_dlq FOR EACH ROW EXECUTE FUNCTION public.die()`)
	n, err := dlq.New(h.db, dlq.Options{BatchSize: 4}).SweepAll(t.Context())
	if err == nil || n < 4 {
		t.Errorf("moved %d, %v; want the longest overdue 4, and the error", n, err)
	}
	h.exec(`DROP TRIGGER dies ON tasker.tasks_dlq`)
	if n, err = dlq.New(h.db, dlq.Options{BatchSize: 4}).SweepAll(t.Context()); err != nil || n == 0 {
		t.Errorf("then moved %d, %v", n, err)
	}
}

func TestADryRunOfTheWholeSweepIsOneBatch(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for range 5 {
		h.stand(h.create(), time.Hour)
	}
	n, err := dlq.New(h.db, dlq.Options{BatchSize: 2, DryRun: true}).SweepAll(t.Context())
	if err != nil || n != 2 {
		t.Errorf("says %d, %v; want the first batch of 2", n, err)
	}
}

func TestABatchLeavesTheLongestOverdueToOthers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for i := range 4 {
		h.stand(h.create(), time.Duration(8-i)*time.Hour) // the first stands longest
	}
	swept, err := h.db.SweepStale(t.Context(), false, 2, 1)
	h.must(err)
	if len(swept) != 2 || swept[0].TimeInStateMinutes > 7.5*60 || swept[1].TimeInStateMinutes > 6.5*60 {
		t.Errorf("took %+v, want the second and the third", swept)
	}
	if _, err := h.db.SweepStale(t.Context(), false, 2, -1); err == nil || !strings.Contains(err.Error(), "p_skip must be at least 0, not -1") {
		t.Errorf("a batch that skips -1: %v", err)
	}
}

func TestAStaleTaskWhoseWorkerDeliversGoesOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	task := h.create()
	a := h.claim()
	h.stand(task, time.Hour)
	_, err := h.dlq.Sweep(t.Context())
	h.must(err)
	h.report(tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`1`)})
	if s := h.state(task); s != tasker.TaskComplete {
		t.Fatalf("task is %s", s)
	}
	e, err := h.db.EntryOfTask(t.Context(), task)
	h.must(err)
	if e.RecoveredAt == nil || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("entry recovered at %v, %s", e.RecoveredAt, e.ResolutionStatus)
	}
}

// A worker whose step takes longer than the threshold, and that cannot be heard for a
// while because the servers are away, finds its task where it was when they are back.
func TestALongStepOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, _, err := h.engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: "shop", Name: "long", Version: "1.0.0", Steps: []tasker.StepTemplate{
		{Name: "one", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Retry: tasker.DefaultRetry(), TimeoutSeconds: 7200},
	}}, "")
	h.must(err)
	c, err := h.engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "shop", Name: "long"}})
	h.must(err)
	task, a := c[0].TaskUUID, h.claim()
	h.stand(task, time.Hour)
	h.exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now() - interval '10 minutes' WHERE task_uuid = $1`, task)
	n, err := h.dlq.Sweep(t.Context()) // the first pass of a server that has just started
	h.must(err)
	if n != 0 || h.state(task) != tasker.TaskStepsInProcess {
		t.Fatalf("the sweep moved %d tasks; the task is %s", n, h.state(task))
	}
	beat, err := h.engine.Heartbeat(t.Context(), h.worker, []tasker.Lease{a.Lease()})
	h.must(err)
	if len(beat.Lost) != 0 {
		t.Fatalf("the lease is lost: %+v", beat)
	}
	h.report(tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`1`)})
	if s := h.state(task); s != tasker.TaskComplete {
		t.Errorf("the task is %s", s)
	}
	if _, err := h.db.EntryOfTask(t.Context(), task); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("it has an investigation: %v", err)
	}
}

// setThresholds starts with other thresholds and applies them at once.
func (h *house) setThresholds(th postgres.Thresholds) {
	h.Helper()
	_, err := h.db.SetStalenessThresholds(h.Context(), th)
	h.must(err)
	var pass postgres.ThresholdPass
	for more := true; more; {
		_, more, err = h.db.ApplyThresholds(h.Context(), &pass, 0, 1)
		h.must(err)
	}
}

func TestThresholds(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	task := h.create()
	h.setThresholds(postgres.Thresholds{WaitingForDependencies: 60, WaitingForRetry: 30, StepsInProcess: 5, ErrorRecovery: 60})
	h.stand(task, 6*time.Minute)
	n, err := h.dlq.Sweep(t.Context())
	h.must(err)
	if n != 1 {
		t.Error("the new threshold does not hold for a task that was there before")
	}
	_, _, err = h.engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: "shop", Name: "slow", Version: "1.0.0", Lifecycle: tasker.Lifecycle{MaxStepsInProcessMinutes: 120, MaxDurationMinutes: 240},
		Steps: []tasker.StepTemplate{{Name: "one", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Retry: tasker.DefaultRetry()}},
	}, "")
	h.must(err)
	c, err := h.engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "shop", Name: "slow"}})
	h.must(err)
	h.stand(c[0].TaskUUID, 100*time.Minute)
	if n, err = h.dlq.Sweep(t.Context()); err != nil || n != 0 {
		t.Errorf("the template's own threshold does not win: %d, %v", n, err)
	}
	h.stand(c[0].TaskUUID, 141*time.Minute)
	h.exec(`UPDATE tasker.tasks SET state_since = clock_timestamp(), warn_at = clock_timestamp() + interval '1 hour',
		stale_at = clock_timestamp() + interval '2 hours' WHERE task_uuid = $1`, c[0].TaskUUID)
	if n, err = h.dlq.Sweep(t.Context()); err != nil || n != 1 {
		t.Fatalf("a task past its whole duration was not found: %d, %v", n, err)
	}
	e, err := h.db.EntryOfTask(t.Context(), c[0].TaskUUID)
	h.must(err)
	if e.DetailCode != "max_duration" {
		t.Errorf("detail code %s", e.DetailCode)
	}
}

// A task at which something fails does not stop the others, nor does a whole
// batch of them hide what comes after.
func TestPoisonedTasksStopNobody(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.dlq = dlq.New(h.db, dlq.Options{BatchSize: 2})
	poisoned := []tasker.ID{h.create(), h.create(), h.create()}
	for _, task := range poisoned {
		h.stand(task, 2*time.Hour) // so they come first
	}
	sound := h.create()
	h.stand(sound, time.Hour)
	h.poison("NEW.task_uuid <> '%s'", sound)
	n, err := h.dlq.Sweep(t.Context())
	h.must(err)
	if n != 1 || h.state(sound) != tasker.TaskError {
		t.Errorf("the sweep found %d, the sound task is %s", n, h.state(sound))
	}
	for _, task := range poisoned {
		if s := h.state(task); s != tasker.TaskStepsInProcess {
			t.Errorf("a task without an investigation is %s", s)
		}
	}
	h.heal()
	if n, err = h.dlq.Sweep(t.Context()); err != nil || n != 2 {
		t.Errorf("once fixed, a batch finds %d, %v", n, err)
	}
	if n, err = h.dlq.Sweep(t.Context()); err != nil || n != 1 {
		t.Errorf("the next batch finds %d, %v", n, err)
	}
}

// However a task came to error: somebody will look at it.
func TestATaskInErrorIsNotForgotten(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	task, healed := h.create(), h.create()
	for _, id := range []tasker.ID{task, healed} { // by hand, in psql
		h.exec(`INSERT INTO tasker.task_transitions (task_uuid, from_state, to_state, event, created_at) VALUES ($1, 'steps_in_process', 'error', 'declare_stale', now())`, id)
		h.exec(`UPDATE tasker.tasks SET state = 'error', state_since = now(), warn_at = NULL, stale_at = NULL WHERE task_uuid = $1`, id)
	}
	n, err := h.dlq.Sweep(t.Context())
	h.must(err)
	if n != 0 {
		t.Errorf("within the recovery window the sweep finds %d", n)
	}
	h.claim()
	h.report(tasker.Outcome{Lease: h.claim().Lease(), Success: true, Result: json.RawMessage(`1`)}) // the second one goes on by itself
	if s := h.state(healed); s != tasker.TaskComplete {
		t.Fatalf("the task whose worker delivered is %s", s)
	}
	h.exec(`UPDATE tasker.tasks SET state_since = state_since - interval '61 minutes', attend_by = attend_by - interval '61 minutes' WHERE state = 'error'`)
	dry := dlq.New(h.db, dlq.Options{DryRun: true})
	if n, err = dry.Sweep(t.Context()); err != nil || n != 1 {
		t.Errorf("a dry run finds %d, %v", n, err)
	}
	if n, err = h.dlq.Sweep(t.Context()); err != nil || n != 1 {
		t.Fatalf("the sweep finds %d, %v", n, err)
	}
	e, err := h.db.EntryOfTask(t.Context(), task)
	h.must(err)
	if e.Reason != tasker.StalenessTimeout || e.DetailCode != "unrecovered_error" || e.OriginalState != tasker.TaskError || e.DetectedBy != tasker.DetectedSweep {
		t.Errorf("entry %s %s from %s by %s", e.Reason, e.DetailCode, e.OriginalState, e.DetectedBy)
	}
	if n, err = h.dlq.Sweep(t.Context()); err != nil || n != 0 {
		t.Errorf("a second sweep finds %d, %v", n, err)
	}
}

// A task that failed has its investigation at once; the sweep leaves it alone,
// also when that has ended.
func TestTheSweepLeavesAttendedTasksAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	e := h.failed()
	_, _, err := h.dlq.Update(t.Context(), e.UUID, tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("known"), ResolvedBy: new("ann")})
	h.must(err)
	h.exec(`UPDATE tasker.tasks SET state_since = state_since - interval '2 hours', attend_by = attend_by - interval '2 hours'`)
	if n, err := h.dlq.Sweep(t.Context()); err != nil || n != 0 {
		t.Errorf("the sweep finds %d, %v", n, err)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	e := h.failed()
	got, warn, err := h.dlq.Update(t.Context(), e.UUID, tasker.EntryUpdate{
		Notes: new("looking"), Metadata: json.RawMessage(`{"ticket": "OPS-1", "a": 1}`), Actor: "ann",
	})
	h.must(err)
	if got.ResolutionStatus != tasker.EntryPending || *got.ResolutionNotes != "looking" || got.ResolvedAt != nil || len(warn) != 0 {
		t.Errorf("after a note: %+v %v", got, warn)
	}
	end := tasker.EntryUpdate{
		Status: new(tasker.EntryManuallyResolved), Notes: new("fixed"), ResolvedBy: new("bob"), Metadata: json.RawMessage(`{"a": 2}`), Actor: "key-7",
	}
	for range 2 { // the very same again is fine
		if got, warn, err = h.dlq.Update(t.Context(), e.UUID, end); err != nil {
			t.Fatal(err)
		}
	}
	if got.ResolutionStatus != tasker.EntryManuallyResolved || *got.ResolvedBy != "bob" || got.ResolvedAt == nil || string(got.Metadata) != `{"a": 2, "ticket": "OPS-1"}` {
		t.Errorf("after its end: %+v, metadata %s", got, got.Metadata)
	}
	if len(warn) != 1 || !strings.Contains(warn[0], "still in error") {
		t.Errorf("warnings %v", warn)
	}
	var events []string
	for _, c := range got.History {
		events = append(events, c.Event+" by "+c.Actor)
	}
	if diff := cmp.Diff([]string{"created by tasker", "updated by ann", "resolved by key-7"}, events); diff != "" {
		t.Error(diff)
	}
	end.Status = new(tasker.EntryCancelled)
	_, _, err = h.dlq.Update(t.Context(), e.UUID, end)
	h.wantCode(err, tasker.Conflict, "ended as manually_resolved")
	_, _, err = h.dlq.Update(t.Context(), e.UUID, tasker.EntryUpdate{Status: new(tasker.EntryPending)})
	h.wantCode(err, tasker.Conflict, "stays so")
	after, err := h.db.Entry(t.Context(), e.UUID)
	h.must(err)
	if diff := cmp.Diff(string(e.Snapshot), string(after.Snapshot)); diff != "" {
		t.Errorf("the evidence has changed: %s", diff)
	}
}

func TestAnUpdateOfWhatSomebodyElseHasChangedIsRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	e := h.failed()
	read := e.UpdatedAt
	after, _, err := h.dlq.Update(t.Context(), e.UUID, tasker.EntryUpdate{Notes: new("mine"), Actor: "ann", Unchanged: &read})
	h.must(err)
	_, _, err = h.dlq.Update(t.Context(), e.UUID, tasker.EntryUpdate{Notes: new("mine, too"), Actor: "bob", Unchanged: &read})
	h.wantCode(err, tasker.Conflict, "after you read it", "read it again")
	end := tasker.EntryUpdate{Status: new(tasker.EntryCancelled), Notes: new("done"), ResolvedBy: new("bob"), Unchanged: &after.UpdatedAt}
	for range 2 { // sent again, it is still fine
		if _, _, err = h.dlq.Update(t.Context(), e.UUID, end); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUpdatesThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
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
		{"long notes", tasker.EntryUpdate{Notes: new(strings.Repeat("n", 20_001))}, "20000 is the limit"},
		{"a NUL", tasker.EntryUpdate{Notes: new("a\x00")}, "NUL"},
		{"metadata that is a list", tasker.EntryUpdate{Metadata: json.RawMessage(`[]`)}, "metadata: must be a JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := h.dlq.Update(t.Context(), e.UUID, tt.u)
			h.wantCode(err, tasker.Invalid, tt.says)
		})
	}
	_, _, err := h.dlq.Update(t.Context(), tasker.NewID(), tasker.EntryUpdate{Notes: new("n")})
	h.wantCode(err, tasker.NotFound, "no investigation")
	after, err := h.db.Entry(t.Context(), e.UUID)
	h.must(err)
	if after.UpdatedAt != e.UpdatedAt || len(after.History) != 1 {
		t.Error("the entry has changed")
	}
}

func TestOfTwoInvestigatorsOneEndsIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	e := h.failed()
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		status := tasker.ResolutionStatuses()[1+i%3]
		wg.Go(func() {
			_, _, errs[i] = h.dlq.Update(t.Context(), e.UUID, tasker.EntryUpdate{Status: &status, Notes: new(strings.Repeat("n", i+1)), ResolvedBy: new("ann")})
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
	h := newHouse(t)
	task := h.create()
	e, err := h.dlq.Open(t.Context(), task, tasker.EntryOpening{Actor: "ann", Reason: "looks odd", Metadata: json.RawMessage(`{"a": 1}`)})
	h.must(err)
	if e.Reason != tasker.ManualDLQ || e.DetectedBy != tasker.DetectedOperator || e.OriginalState != tasker.TaskStepsInProcess || e.History[0].Actor != "ann" {
		t.Errorf("entry %+v", e)
	}
	if s := h.state(task); s != tasker.TaskStepsInProcess {
		t.Errorf("the task was changed: it is %s", s)
	}
	_, err = h.dlq.Open(t.Context(), task, tasker.EntryOpening{Actor: "bob", Reason: "me too"})
	h.wantCode(err, tasker.Conflict, e.UUID.String())
	_, err = h.dlq.Open(t.Context(), task, tasker.EntryOpening{Actor: "", Reason: ""})
	h.wantCode(err, tasker.Invalid, "reason: is empty")
	_, err = h.dlq.Open(t.Context(), tasker.NewID(), tasker.EntryOpening{Actor: "ann", Reason: "r"})
	h.wantCode(err, tasker.NotFound)
}

func TestWrittenOffTasksAreNotRepairedButRecreated(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	e := h.failed()
	_, _, err := h.dlq.Update(t.Context(), e.UUID, tasker.EntryUpdate{
		Status: new(tasker.EntryPermanentlyFailed), Notes: new("the card is gone"), ResolvedBy: new("ann"),
	})
	h.must(err)
	_, err = h.engine.OperateStep(t.Context(), e.TaskUUID, *e.StepUUID, tasker.Operation{Action: tasker.ResetForRetry, Actor: "ann", Reason: "r"})
	h.wantCode(err, tasker.Conflict, "written off", "recreated_from")
	c, err := h.engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "shop", Name: "single", RecreatedFrom: e.TaskUUID}})
	h.must(err)
	again, err := h.db.Task(t.Context(), c[0].TaskUUID)
	h.must(err)
	if again.RecreatedFrom == nil || *again.RecreatedFrom != e.TaskUUID {
		t.Errorf("recreated from %v", again.RecreatedFrom)
	}
}

func TestASecondFailureIsANewInvestigation(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first := h.failed()
	_, _, err := h.dlq.Update(t.Context(), first.UUID, tasker.EntryUpdate{Status: new(tasker.EntryManuallyResolved), Notes: new("n"), ResolvedBy: new("ann")})
	h.must(err)
	_, err = h.engine.OperateStep(t.Context(), first.TaskUUID, *first.StepUUID, tasker.Operation{Action: tasker.ResetForRetry, Actor: "ann", Reason: "r"})
	h.must(err)
	h.report(tasker.Outcome{Lease: h.claim().Lease(), Failure: &tasker.Failure{Message: "no"}})
	second, err := h.db.EntryOfTask(t.Context(), first.TaskUUID)
	h.must(err)
	if second.UUID == first.UUID || second.PredecessorUUID == nil || *second.PredecessorUUID != first.UUID {
		t.Errorf("second %s names %v", second.UUID, second.PredecessorUUID)
	}
}

// Another step fails while somebody works on the first. Its evidence goes into
// the open investigation, and when that ends a new one is opened: nothing is
// forgotten.
func TestAStepThatFailsDuringAnInvestigationIsNotForgotten(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	retry := tasker.DefaultRetry()
	retry.MaxAttempts = 1
	run := tasker.Handler{Callable: "run"}
	_, _, err := h.engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: "shop", Name: "chain", Version: "1.0.0", Steps: []tasker.StepTemplate{
		{Name: "charge", Type: tasker.StandardStep, Handler: run, Retry: retry},
		{Name: "ship", Type: tasker.StandardStep, Handler: run, Retry: retry, Dependencies: []string{"charge"}},
	}}, "")
	h.must(err)
	c, err := h.engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "shop", Name: "chain"}})
	h.must(err)
	task := c[0].TaskUUID
	h.report(tasker.Outcome{Lease: h.claim().Lease(), Failure: &tasker.Failure{Message: "no money"}})
	first, err := h.db.EntryOfTask(t.Context(), task)
	h.must(err)
	_, err = h.engine.OperateStep(t.Context(), task, *first.StepUUID, tasker.Operation{
		Action: tasker.CompleteManually, Actor: "ann", Reason: "paid", Result: json.RawMessage(`1`),
	})
	h.must(err)
	ship := h.claim()
	h.report(tasker.Outcome{Lease: ship.Lease(), Failure: &tasker.Failure{Message: "no carrier"}})

	first, err = h.db.Entry(t.Context(), first.UUID)
	h.must(err)
	note := first.History[len(first.History)-1]
	if note.Event != "step_failed" || !strings.Contains(*note.Notes, "no carrier") || !strings.Contains(string(note.Metadata), ship.StepUUID.String()) {
		t.Errorf("the history of the open investigation ends with %+v", note)
	}
	_, warn, err := h.dlq.Update(t.Context(), first.UUID, tasker.EntryUpdate{Status: new(tasker.EntryManuallyResolved), Notes: new("paid"), ResolvedBy: new("ann")})
	h.must(err)
	second, err := h.db.EntryOfTask(t.Context(), task)
	h.must(err)
	if second.UUID == first.UUID || *second.StepUUID != ship.StepUUID || second.DetailCode != tasker.PermanentFailure || *second.PredecessorUUID != first.UUID {
		t.Errorf("the next investigation is %+v", second)
	}
	if len(warn) != 1 || !strings.Contains(warn[0], second.UUID.String()) {
		t.Errorf("warnings %v", warn)
	}
	// Once the step is repaired, nothing follows.
	_, err = h.engine.OperateStep(t.Context(), task, ship.StepUUID, tasker.Operation{Action: tasker.ResolveManually, Actor: "ann", Reason: "fetched"})
	h.must(err)
	_, _, err = h.dlq.Update(t.Context(), second.UUID, tasker.EntryUpdate{Status: new(tasker.EntryPermanentlyFailed), Notes: new("x"), ResolvedBy: new("ann")})
	h.wantCode(err, tasker.Conflict, "nothing to write off")
	_, warn, err = h.dlq.Update(t.Context(), second.UUID, tasker.EntryUpdate{Status: new(tasker.EntryManuallyResolved), Notes: new("done"), ResolvedBy: new("ann")})
	h.must(err)
	all, err := h.db.Entries(t.Context(), tasker.EntryFilter{Limit: 10, Status: tasker.EntryPending})
	h.must(err)
	if len(all) != 0 || len(warn) != 0 {
		t.Errorf("%d investigations are open, warnings %v", len(all), warn)
	}
}

func TestTheQueueIsOrderedByPriority(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	manual := h.create()
	h.claim()
	_, err := h.dlq.Open(t.Context(), manual, tasker.EntryOpening{Actor: "ann", Reason: "odd"})
	h.must(err)
	stale := h.create()
	h.claim()
	h.stand(stale, time.Hour)
	_, err = h.dlq.Sweep(t.Context())
	h.must(err)
	failed := h.failed()
	queue, _, err := h.db.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 10})
	h.must(err)
	var got []tasker.ID
	for _, q := range queue {
		got = append(got, q.TaskUUID)
	}
	if diff := cmp.Diff([]tasker.ID{failed.TaskUUID, stale, manual}, got); diff != "" {
		t.Error(diff)
	}
	if q := queue[0]; q.PriorityScore < 500 || q.PriorityScore > 501 || q.CurrentState != tasker.TaskError {
		t.Errorf("first is %+v", q)
	}
	stats, err := h.db.EntryStats(t.Context())
	h.must(err)
	if len(stats) != 3 || stats[0].Total != 1 || stats[0].AvgResolutionTimeMinutes != nil {
		t.Errorf("stats %+v", stats)
	}
}
