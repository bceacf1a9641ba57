package dlq_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// The tests of the SQL functions and views that the specification lists, under their names there,
// and the query of its gauge. Where ours differs on purpose, the test says so.

const (
	waitingForDependencies = tasker.TaskWaitingForDependencies
	waitingForRetry        = tasker.TaskWaitingForRetry
	stepsInProcess         = tasker.TaskStepsInProcess
)

// A documented is a harness whose tasks can be put into each watched state.
type documented struct {
	*harness
	flaky tasker.ID // a worker whose steps always fail
}

// newDocumented makes a harness. When the test has ended, the database violates no invariant.
func newDocumented(t *testing.T) *documented {
	t.Helper()
	h := &documented{harness: &harness{Harness: enginetest.New(t)}}
	h.flaky = h.RegisterWorker("flaky")
	return h
}

// put makes a task that has stood in a state for some minutes, of a template that
// leaves the thresholds to the server.
func (d *documented) put(state tasker.TaskState, minutes int) tasker.ID {
	d.Helper()
	return d.putWith(tasker.Lifecycle{}, state, minutes)
}

// putWith is put for a template with thresholds of its own.
func (d *documented) putWith(own tasker.Lifecycle, state tasker.TaskState, minutes int) tasker.ID {
	d.Helper()
	step := enginetest.Step("one")
	switch state {
	case waitingForDependencies:
		step.Type, step.Handler = tasker.ExternalStep, tasker.Handler{}
	case waitingForRetry:
		step.Handler.Callable = "flaky"
	default: // a step that is enqueued
	}
	name := string(state)
	if own != (tasker.Lifecycle{}) {
		name += "_own"
	}
	d.register(name, own, step)
	task := d.Create(name)
	if state == waitingForRetry {
		d.fail(d.flaky)
	}
	d.wantState(task, state)
	d.stand(task, time.Duration(minutes)*time.Minute)
	d.Exec(`UPDATE tasker.tasks SET created_at = created_at - interval '60 minutes' WHERE task_uuid = $1`, task)
	return task
}

// fail fails the next step of a worker so that it is retried.
func (d *documented) fail(worker tasker.ID) {
	d.Helper()
	d.worker = worker
	d.harness.fail(d.claim(), true)
}

// open calls create_dlq_entry; nil means that one is open already.
func (d *documented) open(task tasker.ID, reason tasker.Reason, code string) *tasker.ID {
	d.Helper()
	var id *tasker.ID
	d.Must(d.Admin().QueryRow(d.Context(), `
		SELECT tasker.create_dlq_entry(t.task_uuid, $2::text::tasker.dlq_reason, $3, 'sweep', t.state)
		FROM tasker.tasks t WHERE t.task_uuid = $1`, task, string(reason), code).Scan(&id))
	return id
}

// openAged opens an investigation as it will be after some minutes. Evidence
// never changes, so its guard is off for a moment.
func (d *documented) openAged(task tasker.ID, reason tasker.Reason, code string, minutes int) tasker.ID {
	d.Helper()
	id := d.open(task, reason, code)
	if id == nil {
		d.Fatal("an investigation is already open")
	}
	d.Exec(`ALTER TABLE tasker.tasks_dlq DISABLE TRIGGER entry_evidence_never_changes`)
	d.Exec(`UPDATE tasker.tasks_dlq SET dlq_timestamp = dlq_timestamp - make_interval(mins => $2),
		priority_at = priority_at - make_interval(mins => $2), created_at = created_at - make_interval(mins => $2)
		WHERE dlq_entry_uuid = $1`, *id, minutes)
	d.Exec(`ALTER TABLE tasker.tasks_dlq ENABLE TRIGGER entry_evidence_never_changes`)
	return *id
}

func (d *documented) end(entry tasker.ID, status tasker.ResolutionStatus) tasker.Entry {
	d.Helper()
	e, _ := d.update(entry, tasker.EntryUpdate{Status: &status, Notes: new("seen"), ResolvedBy: new("ann")})
	return e
}

func (d *documented) entries() int {
	d.Helper()
	return d.Count(`SELECT count(*) FROM tasker.tasks_dlq`)
}

// A detected is a row of detect_and_transition_stale_tasks.
type detected struct {
	Task         tasker.ID
	Namespace    string
	Name         string
	State        string
	Minutes      float64
	Threshold    float64
	Action       string
	Moved        bool
	Transitioned bool
	Reason       string
	Entry        *tasker.ID
}

// detect calls the function. In the reference the thresholds are arguments; ours
// come from the configuration tables, so that nobody can call it with others.
func (d *documented) detect(dry bool, batch int) []detected {
	d.Helper()
	rows, err := d.Admin().Query(d.Context(), `
		SELECT task_uuid, namespace_name, task_name, current_state, time_in_state_minutes::float8,
			staleness_threshold_minutes::float8, action_taken, moved_to_dlq, transition_success, dlq_reason::text, dlq_entry_uuid
		FROM tasker.detect_and_transition_stale_tasks($1, $2)`, dry, batch)
	d.Must(err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[detected])
	d.Must(err)
	return list
}

// wantStood checks that a task has stood for so many minutes, give or take how long the test runs.
func (d *documented) wantStood(minutes float64, want int) {
	d.Helper()
	if minutes < float64(want) || minutes > float64(want)+5 {
		d.Errorf("stood for %v minutes, want %d", minutes, want)
	}
}

// threshold is what staleness_threshold says of a state of the task's template.
func (d *documented) threshold(task tasker.ID, state string) *float64 {
	d.Helper()
	var minutes *float64
	d.Must(d.Admin().QueryRow(d.Context(), `
		SELECT (extract(epoch FROM tasker.staleness_threshold($2, tt, st)) / 60)::float8
		FROM tasker.tasks t
		JOIN tasker.task_templates tt USING (template_uuid)
		CROSS JOIN tasker.staleness_thresholds st
		WHERE t.task_uuid = $1`, task, state).Scan(&minutes))
	return minutes
}

func (d *documented) wantThreshold(task tasker.ID, state tasker.TaskState, want float64) {
	d.Helper()
	if diff := cmp.Diff(&want, d.threshold(task, string(state))); diff != "" {
		d.Errorf("threshold of %s: %s", state, diff)
	}
}

// wantDeadline checks the threshold that the task itself was given.
func (d *documented) wantDeadline(task tasker.ID, want int) {
	d.Helper()
	got := d.Count(`SELECT (extract(epoch FROM stale_at - state_since) / 60)::integer FROM tasker.tasks WHERE task_uuid = $1`, task)
	if got != want {
		d.Errorf("the task is stale after %d minutes, want %d", got, want)
	}
}

func TestCalculateStalenessThresholdWithTemplateOverride(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	task := d.putWith(tasker.Lifecycle{MaxWaitingForDependenciesMinutes: 120}, waitingForDependencies, 0)
	d.wantThreshold(task, waitingForDependencies, 120)
	d.wantThreshold(task, waitingForRetry, 30) // of which the template says nothing
	d.wantThreshold(task, stepsInProcess, 30)
	d.wantDeadline(task, 120)
}

func TestCalculateStalenessThresholdWithDefaults(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	task := d.put(waitingForDependencies, 0)
	d.wantThreshold(task, waitingForDependencies, 60)
	d.wantThreshold(task, waitingForRetry, 30)
	d.wantThreshold(task, stepsInProcess, 30)
	d.wantDeadline(task, 60)
}

// The reference gives 1440 minutes to whatever it does not know. Ours has no
// threshold there: nobody watches the state, so nothing in it becomes stale.
func TestCalculateStalenessThresholdUnknownState(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	task := d.put(waitingForDependencies, 0)
	states := []string{"unknown_state", ""}
	for _, s := range tasker.TaskStates() {
		if s != waitingForDependencies && s != waitingForRetry && s != stepsInProcess {
			states = append(states, string(s))
		}
	}
	for _, s := range states {
		if got := d.threshold(task, s); got != nil {
			t.Errorf("threshold of %q is %v minutes, want none", s, *got)
		}
	}
}

func TestCreateDLQEntry(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	task := d.put(waitingForDependencies, 120)
	id := d.open(task, tasker.StalenessTimeout, "waiting_for_dependencies")
	if id == nil {
		t.Fatal("no investigation was opened")
	}
	if n := d.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE dlq_entry_uuid = $1 AND task_uuid = $2`, *id, task); n != 1 || d.entries() != 1 {
		t.Errorf("%d entries have the id, %d are there", n, d.entries())
	}
	e := d.entry(*id)
	if e.Reason != tasker.StalenessTimeout || e.OriginalState != waitingForDependencies || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("entry %+v", e)
	}
}

func TestCreateDLQEntryDuplicatePrevention(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	task := d.put(waitingForDependencies, 120)
	if d.open(task, tasker.StalenessTimeout, "waiting_for_dependencies") == nil {
		t.Fatal("no investigation was opened")
	}
	if again := d.open(task, tasker.StalenessTimeout, "waiting_for_dependencies"); again != nil {
		t.Errorf("a second one was opened: %s", again)
	}
	if n := d.entries(); n != 1 {
		t.Errorf("%d entries", n)
	}
	if n := d.Count(`SELECT count(*) FROM tasker.outbox`); n != 1 {
		t.Errorf("%d events, want that of the first", n)
	}
}

// Ours moves the task only from where the caller saw it.
func TestTransitionStaleTaskToError(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	id := d.put(waitingForDependencies, 120)
	task, err := d.DB.Task(t.Context(), id)
	d.Must(err)
	for _, try := range []struct {
		what  string
		state tasker.TaskState
		since time.Time
		moves bool
	}{
		{"another state", stepsInProcess, task.StateSince, false},
		{"the state, at another time", waitingForDependencies, task.StateSince.Add(time.Second), false},
		{"the state", waitingForDependencies, task.StateSince, true},
		{"the state, once more", waitingForDependencies, task.StateSince, false},
	} {
		var moved bool
		d.Must(d.Admin().QueryRow(t.Context(), `SELECT tasker.transition_stale_task_to_error($1, $2, $3, 'stood still')`,
			id, string(try.state), try.since).Scan(&moved))
		if moved != try.moves {
			t.Errorf("seen in %s: moved %v, want %v", try.what, moved, try.moves)
		}
	}
	if s := d.State(id); s != tasker.TaskError {
		t.Errorf("the task is %s", s)
	}
	history, _, err := d.DB.TaskTransitions(t.Context(), id, 100, 0)
	d.Must(err)
	last := history[len(history)-1]
	if last.From != "waiting_for_dependencies" || last.To != "error" || last.Event != "declare_stale" || last.Reason != "stood still" {
		t.Errorf("the history ends with %+v", last)
	}
	d.open(id, tasker.StalenessTimeout, "waiting_for_dependencies") // as whoever calls it does
}

// stale is what get_stale_tasks_for_dlq finds.
func (d *documented) stale() []tasker.ID {
	d.Helper()
	rows, err := d.Admin().Query(d.Context(), `SELECT task_uuid FROM tasker.get_stale_tasks_for_dlq(100)`)
	d.Must(err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[tasker.ID])
	d.Must(err)
	return list
}

func TestGetStaleTasksForDLQDiscovery(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	retry, dependencies := d.put(waitingForRetry, 60), d.put(waitingForDependencies, 120)
	d.put(waitingForDependencies, 20)
	if diff := cmp.Diff([]tasker.ID{dependencies, retry}, d.stale()); diff != "" { // the longest overdue first
		t.Error(diff)
	}
}

func TestGetStaleTasksForDLQExcludesDLQTasks(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	task := d.put(waitingForDependencies, 120)
	if diff := cmp.Diff([]tasker.ID{task}, d.stale()); diff != "" {
		t.Error(diff)
	}
	d.open(task, tasker.StalenessTimeout, "waiting_for_dependencies")
	if got := d.stale(); len(got) != 0 {
		t.Errorf("found although it has an investigation: %v", got)
	}
}

func TestDetectAndTransitionStaleTasksDryRun(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	task := d.put(waitingForDependencies, 120)
	got := d.detect(true, 10)
	if len(got) != 1 {
		t.Fatalf("detected %+v", got)
	}
	d.wantStood(got[0].Minutes, 120)
	want := detected{
		Task: task, Namespace: "shop", Name: "waiting_for_dependencies", State: "waiting_for_dependencies", Minutes: got[0].Minutes,
		Threshold: 60, Action: "would_transition_to_dlq_and_error", Reason: "staleness_timeout",
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Error(diff)
	}
	if d.entries() != 0 || d.State(task) != waitingForDependencies {
		t.Errorf("%d entries, the task is %s", d.entries(), d.State(task))
	}
}

func TestDetectAndTransitionStaleTasksRealExecution(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	task := d.put(waitingForDependencies, 120)
	got := d.detect(false, 10)
	if len(got) != 1 {
		t.Fatalf("detected %+v", got)
	}
	e := d.Entry(task)
	d.wantStood(got[0].Minutes, 120)
	want := detected{
		Task: task, Namespace: "shop", Name: "waiting_for_dependencies", State: "waiting_for_dependencies", Minutes: got[0].Minutes,
		Threshold: 60, Action: "transitioned_to_dlq_and_error", Moved: true, Transitioned: true, Reason: "staleness_timeout", Entry: &e.UUID,
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Error(diff)
	}
	if e.ResolutionStatus != tasker.EntryPending || d.entries() != 1 || d.State(task) != tasker.TaskError {
		t.Errorf("entry is %s, one of %d; the task is %s", e.ResolutionStatus, d.entries(), d.State(task))
	}
}

func TestDetectAndTransitionBatchSizeLimit(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	for range 5 {
		d.put(waitingForDependencies, 120)
	}
	if got := d.detect(true, 2); len(got) != 2 {
		t.Errorf("a dry run of 2 detects %d", len(got))
	}
	for i, want := range []int{2, 2, 1, 0} {
		if got := d.detect(false, 2); len(got) != want {
			t.Errorf("batch %d has %d tasks, want %d", i, len(got), want)
		}
	}
	if n := d.entries(); n != 5 {
		t.Errorf("%d entries of 5 tasks", n)
	}
}

func TestDetectAndTransitionWithTemplateThresholds(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	own := tasker.Lifecycle{MaxWaitingForDependenciesMinutes: 30}
	task := d.putWith(own, waitingForDependencies, 45)
	d.put(waitingForDependencies, 45) // whose threshold is the server's 60
	check := func() {
		t.Helper()
		if got := d.detect(true, 10); len(got) != 1 || got[0].Task != task || got[0].Threshold != 30 {
			t.Errorf("detected %+v", got)
		}
	}
	check()
	d.putWith(own, waitingForDependencies, 25)
	check()
}

// oneOfEach puts a task before the sweep for each thing that it can do.
func (d *documented) oneOfEach() map[tasker.ID]string {
	d.Helper()
	stale, failing, raced := d.put(waitingForDependencies, 120), d.put(stepsInProcess, 120), d.put(stepsInProcess, 120)
	forgotten := d.put(stepsInProcess, 0)
	d.Exec(`INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at)
		VALUES ($1, 'steps_in_process', 'error', 'declare_stale', now())`, forgotten) // by hand, in psql
	d.Exec(`UPDATE tasker.tasks SET state = 'error', state_since = now(), warn_at = NULL, stale_at = NULL WHERE task_uuid = $1`, forgotten)
	d.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '61 minutes', attend_by = attend_by - interval '61 minutes'
		WHERE task_uuid = $1`, forgotten)

	// One cannot have an entry; of the other, somebody opens one just then.
	d.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	d.Exec(fmt.Sprintf(`CREATE TRIGGER broken BEFORE INSERT ON tasker.tasks_dlq FOR EACH ROW
		WHEN (NEW.task_uuid = '%s') EXECUTE FUNCTION public.refuse()`, failing))
	d.Exec(`CREATE FUNCTION public.be_faster() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM tasker.create_dlq_entry(NEW.task_uuid, 'manual_dlq', 'operator_request', 'operator', OLD.state); RETURN NULL; END $$`)
	d.Exec(fmt.Sprintf(`CREATE TRIGGER faster AFTER UPDATE OF state ON tasker.tasks FOR EACH ROW
		WHEN (NEW.task_uuid = '%s') EXECUTE FUNCTION public.be_faster()`, raced))
	return map[tasker.ID]string{
		stale: "transitioned_to_dlq_and_error", forgotten: "moved_to_dlq_only", raced: "transitioned_to_error_only", failing: "transition_failed",
	}
}

func actions(list []detected) map[tasker.ID]string {
	out := map[tasker.ID]string{}
	for _, r := range list {
		out[r.Task] = r.Action
	}
	return out
}

// The reference reads the words into an enum and takes an unknown one for a
// failure. Ours stay words, so what counts is that there are no others.
func TestStalenessActionFromStr(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	want := d.oneOfEach()
	would := map[tasker.ID]string{}
	for task, action := range want {
		would[task] = "would_transition_to_dlq_and_error"
		if action == "moved_to_dlq_only" {
			would[task] = "would_move_to_dlq_only"
		}
	}
	if diff := cmp.Diff(would, actions(d.detect(true, 100))); diff != "" {
		t.Errorf("a dry run: %s", diff)
	}
	if diff := cmp.Diff(want, actions(d.detect(false, 100))); diff != "" {
		t.Error(diff)
	}
}

// The helpers of the reference's enum are columns of ours, and its failure is what does not count
// as done. A task moved only is none here: it was in error before, and nobody looked into it.
func TestStalenessActionHelpers(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	d.oneOfEach()
	type flags struct{ Moved, Transitioned, HasEntry bool }
	got := map[string]flags{}
	for _, r := range d.detect(false, 100) {
		got[r.Action] = flags{r.Moved, r.Transitioned, r.Entry != nil}
	}
	want := map[string]flags{
		"transitioned_to_dlq_and_error": {Moved: true, Transitioned: true, HasEntry: true},
		"moved_to_dlq_only":             {Moved: true, HasEntry: true},
		"transitioned_to_error_only":    {Transitioned: true}, // the entry is somebody else's
		"transition_failed":             {},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	d.sweep(0)
	other := newDocumented(t)
	other.oneOfEach()
	if n, err := other.DLQ.Sweep(t.Context()); err != nil || n != 3 {
		t.Errorf("%d of the four count, %v", n, err)
	}
}

func TestDLQStatsViewIntegration(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	open := func(reason tasker.Reason, code string) tasker.ID {
		t.Helper()
		return d.openAged(d.put(stepsInProcess, 0), reason, code, 60)
	}
	at := func(id tasker.ID) *time.Time {
		t.Helper()
		e := d.entry(id)
		return &e.At
	}
	took := func(e tasker.Entry) *float64 { return new(e.ResolvedAt.Sub(e.At).Minutes()) }

	stale := []tasker.ID{
		open(tasker.StalenessTimeout, "steps_in_process"), open(tasker.StalenessTimeout, "steps_in_process"), open(tasker.StalenessTimeout, "steps_in_process"),
	}
	retries := []tasker.ID{open(tasker.MaxRetriesExceeded, tasker.RetriesExhausted), open(tasker.MaxRetriesExceeded, tasker.RetriesExhausted)}
	worker := open(tasker.WorkerUnavailable, tasker.NoWorkers)
	resolved := d.end(stale[2], tasker.EntryManuallyResolved)
	cancelled := d.end(retries[1], tasker.EntryCancelled)
	e := d.entry(worker)
	d.Must(d.Engine.CancelTask(t.Context(), e.TaskUUID, "ann", "nobody will come")) // what may go on is not written off
	failed := d.end(worker, tasker.EntryPermanentlyFailed)

	got, err := d.DB.EntryStats(t.Context())
	d.Must(err)
	want := []tasker.EntryStats{
		{
			Reason: tasker.StalenessTimeout, Total: 3, Pending: 2, ManuallyResolved: 1,
			Oldest: at(stale[0]), Newest: at(stale[2]), AvgResolutionTimeMinutes: took(resolved),
		},
		{
			Reason: tasker.MaxRetriesExceeded, Total: 2, Pending: 1, Cancelled: 1,
			Oldest: at(retries[0]), Newest: at(retries[1]), AvgResolutionTimeMinutes: took(cancelled),
		},
		{
			Reason: tasker.WorkerUnavailable, Total: 1, PermanentFailures: 1,
			Oldest: at(worker), Newest: at(worker), AvgResolutionTimeMinutes: took(failed),
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-3)); diff != "" {
		t.Error(diff)
	}
	d.wantStood(*got[0].AvgResolutionTimeMinutes, 60)
}

// A score is the base priority of the reason (1000, 500, 100, 50, 10) and a point
// for each minute of age. Where a task stands is shown as it is now; how long it
// had stood is of the snapshot, and so are the reference's other columns.
func TestInvestigationQueueViewIntegration(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	open := func(reason tasker.Reason, code string, age int) tasker.ID {
		t.Helper()
		return d.openAged(d.put(stepsInProcess, 20), reason, code, age)
	}
	worker := open(tasker.WorkerUnavailable, tasker.NoWorkers, 60)
	newer := open(tasker.MaxRetriesExceeded, tasker.RetriesExhausted, 30)
	stale := open(tasker.StalenessTimeout, "steps_in_process", 90)
	older := open(tasker.MaxRetriesExceeded, tasker.RetriesExhausted, 180)
	cycle := open(tasker.DependencyCycleDetected, tasker.DependencyCycle, 120)
	d.end(open(tasker.StalenessTimeout, "steps_in_process", 150), tasker.EntryManuallyResolved)

	type line struct {
		Entry  tasker.ID
		Reason tasker.Reason
	}
	want := []line{
		{cycle, tasker.DependencyCycleDetected}, {older, tasker.MaxRetriesExceeded}, {newer, tasker.MaxRetriesExceeded},
		{stale, tasker.StalenessTimeout}, {worker, tasker.WorkerUnavailable},
	}
	scores := []struct{ base, age int }{{1000, 120}, {500, 180}, {500, 30}, {100, 90}, {50, 60}}
	queue, _, err := d.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 100})
	d.Must(err)
	var got []line
	for i, q := range queue {
		got = append(got, line{q.EntryUUID, q.Reason})
		if i < len(scores) {
			d.wantStood(q.MinutesInDLQ, scores[i].age)
			if base := math.Round(q.PriorityScore - q.MinutesInDLQ); int(base) != scores[i].base {
				t.Errorf("%s has %v points at an age of %v minutes", q.Reason, q.PriorityScore, q.MinutesInDLQ)
			}
		}
		if q.Namespace != "shop" || q.TaskName != "steps_in_process" || q.CurrentState != stepsInProcess || q.OriginalState != stepsInProcess {
			t.Errorf("line %+v", q)
		}
		d.wantStood(*q.TimeInStateMinutes, 20)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	top, _, err := d.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 3})
	d.Must(err)
	got = nil
	for _, q := range top {
		got = append(got, line{q.EntryUUID, q.Reason})
	}
	if diff := cmp.Diff(want[:3], got); diff != "" {
		t.Errorf("the first 3: %s", diff)
	}
}

// The reference has columns for the percentage, for the minutes that are left and
// for whether to act; ours has the two numbers and the class that they follow from.
func TestStalenessMonitoringViewIntegration(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	type line struct {
		Task      tasker.ID
		Health    tasker.Health
		Threshold float64
	}
	healthy := []line{{d.put(waitingForDependencies, 30), tasker.Healthy, 60}, {d.put(waitingForRetry, 15), tasker.Healthy, 30}, {d.put(stepsInProcess, 10), tasker.Healthy, 30}}
	warning := []line{{d.put(waitingForDependencies, 50), tasker.Warning, 60}, {d.put(waitingForRetry, 25), tasker.Warning, 30}}
	stale := []line{{d.put(waitingForDependencies, 90), tasker.Stale, 60}, {d.put(stepsInProcess, 60), tasker.Stale, 30}, {d.put(waitingForRetry, 45), tasker.Stale, 30}}
	want := slices.Concat(stale, warning, healthy)

	lines, err := d.DB.Staleness(t.Context(), tasker.StalenessFilter{Limit: 100})
	d.Must(err)
	var got []line
	for _, l := range lines {
		got = append(got, line{l.TaskUUID, l.Health, l.ThresholdMinutes})
		share, left := l.TimeInStateMinutes/l.ThresholdMinutes, max(0, l.ThresholdMinutes-l.TimeInStateMinutes)
		health := tasker.Healthy
		switch {
		case share >= 1:
			health = tasker.Stale
		case share >= 0.8:
			health = tasker.Warning
		}
		if l.Health != health || (left == 0) != (l.Health == tasker.Stale) {
			t.Errorf("%s at %v of %v minutes", l.Health, l.TimeInStateMinutes, l.ThresholdMinutes)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	first, err := d.DB.Staleness(t.Context(), tasker.StalenessFilter{Limit: 5})
	d.Must(err)
	got = nil
	for _, l := range first {
		got = append(got, line{l.TaskUUID, l.Health, l.ThresholdMinutes})
	}
	if diff := cmp.Diff(want[:5], got); diff != "" {
		t.Errorf("the first 5: %s", diff)
	}

	// The view, for those who read it in psql, says the same.
	rows, err := d.Admin().Query(t.Context(), `
		SELECT task_uuid, health_status, staleness_threshold_minutes::float8
		FROM tasker.v_task_staleness_monitoring
		ORDER BY array_position(ARRAY['stale', 'warning', 'healthy'], health_status), time_in_state_minutes DESC`)
	d.Must(err)
	view, err := pgx.CollectRows(rows, pgx.RowToStructByPos[line])
	d.Must(err)
	if diff := cmp.Diff(want, view); diff != "" {
		t.Errorf("the view: %s", diff)
	}
}

func TestPendingInvestigationsGaugeQuery(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	check := func(want int) {
		t.Helper()
		if n := d.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`); n != want {
			t.Errorf("%d are pending, want %d", n, want)
		}
		if n, _, err := d.DB.OpenEntries(t.Context()); err != nil || n != int64(want) {
			t.Errorf("the gauge shows %d, want %d, %v", n, want, err)
		}
	}
	var entries []tasker.ID
	for range 3 {
		entries = append(entries, *d.open(d.put(waitingForDependencies, 120), tasker.StalenessTimeout, "waiting_for_dependencies"))
	}
	check(3)
	d.end(entries[0], tasker.EntryManuallyResolved)
	check(2)
}
