package dlq_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/enginetest"
)

// pair registers a template of two steps, each after the other, and makes a task of it.
func (h *harness) pair(attempts int) tasker.ID {
	h.Helper()
	h.Template("pair", attempted(attempts, enginetest.Step("charge")), attempted(attempts, enginetest.Step("ship", "charge")))
	return h.Create("pair")
}

// opened makes it so that an investigation was opened some minutes before another
// one. Evidence never changes, so its guard is off for a moment.
func (h *harness) opened(entry tasker.ID, minutes int, before tasker.ID) {
	h.Helper()
	h.Exec(`ALTER TABLE tasker.tasks_dlq DISABLE TRIGGER entry_evidence_never_changes`)
	h.Exec(`
		UPDATE tasker.tasks_dlq d
		SET dlq_timestamp = o.dlq_timestamp - make_interval(mins => $2), created_at = o.dlq_timestamp - make_interval(mins => $2),
			priority_at = d.priority_at - d.dlq_timestamp + o.dlq_timestamp - make_interval(mins => $2)
		FROM tasker.tasks_dlq o
		WHERE d.dlq_entry_uuid = $1 AND o.dlq_entry_uuid = $3`, entry, minutes, before)
	h.Exec(`ALTER TABLE tasker.tasks_dlq ENABLE TRIGGER entry_evidence_never_changes`)
}

func (h *harness) queue() []tasker.InvestigationQueueEntry {
	h.Helper()
	list, _, err := h.DB.InvestigationQueue(h.Context(), tasker.InvestigationFilter{Limit: 100})
	h.Must(err)
	return list
}

func (h *harness) wantQueue(want ...tasker.ID) {
	h.Helper()
	var got []tasker.ID
	for _, q := range h.queue() {
		got = append(got, q.EntryUUID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.Error(diff)
	}
}

// What the sweep knew when it found a task is with the entry: which sweep, how,
// what ran last, how long the task stood and how long it may.
func TestEntriesOfASweepSayWhatItSaw(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	half := h.pair(3)
	h.succeed(h.claim())
	idle := h.create()
	untouched := h.pair(3)
	begun := h.claim() // ship of the first
	if begun.Name != "ship" || begun.TaskUUID != half {
		t.Fatalf("claimed %s of %s", begun.Name, begun.TaskUUID)
	}
	for _, task := range []tasker.ID{half, idle, untouched} {
		h.stand(task, 45*time.Minute)
	}
	h.Exec(`UPDATE tasker.tasks SET stale_at = state_since + interval '20 minutes', warn_at = state_since + interval '16 minutes' WHERE task_uuid = $1`, idle)
	h.sweep(3)
	later := h.create()
	h.stand(later, 45*time.Minute)
	h.sweep(1)

	type seen struct {
		SweepID   tasker.ID `json:"sweep_id"`
		Method    string    `json:"detection_method"`
		LastStep  *string   `json:"last_step"`
		Minutes   float64   `json:"time_in_state_minutes"`
		Threshold float64   `json:"threshold_minutes"`
	}
	read := func(task tasker.ID) seen {
		t.Helper()
		e := h.Entry(task)
		var keys map[string]json.RawMessage
		h.Must(json.Unmarshal(e.Metadata, &keys))
		if len(keys) != 5 {
			t.Errorf("metadata %s", e.Metadata)
		}
		var s seen
		h.Must(json.Unmarshal(e.Metadata, &s))
		var snapshot struct {
			Minutes float64 `json:"time_in_state_minutes"`
		}
		h.Must(json.Unmarshal(e.Snapshot, &snapshot))
		if s.Minutes < 45 || s.Minutes > snapshot.Minutes { // which is taken a moment later
			t.Errorf("stood for %v minutes, says the sweep, for %v the snapshot", s.Minutes, snapshot.Minutes)
		}
		return s
	}
	first := read(half)
	if first.SweepID.Version() != 7 {
		t.Errorf("sweep_id %s", first.SweepID)
	}
	for _, tt := range []struct {
		task tasker.ID
		want seen
	}{
		{half, seen{first.SweepID, "automatic_staleness", new("ship"), 0, 30}},
		{idle, seen{first.SweepID, "automatic_staleness", nil, 0, 20}},
		{untouched, seen{first.SweepID, "automatic_staleness", nil, 0, 30}},
	} {
		if diff := cmp.Diff(tt.want, read(tt.task), cmpopts.IgnoreFields(seen{}, "Minutes")); diff != "" {
			t.Error(diff)
		}
	}
	if s := read(later); s.SweepID.Version() != 7 || s.SweepID == first.SweepID {
		t.Errorf("two sweeps have the id %s", s.SweepID)
	}
}

// Who is told of a step that failed for good learns which, how often, and why.
func TestTheEventOfAFailureTellsOfItsStep(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.pair(2)
	for _, message := range []string{"no money", "still no money"} {
		h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = clock_timestamp() WHERE next_retry_at IS NOT NULL`)
		_, err := h.Engine.Tick(t.Context())
		h.Must(err)
		h.report(tasker.Outcome{Lease: h.claim().Lease(), Failure: &tasker.Failure{Message: message, Type: "declined", Retryable: true}})
	}
	e := h.Entry(task)
	var told struct {
		Analytics string     `json:"analytics_type"`
		Entry     tasker.ID  `json:"dlq_entry_uuid"`
		Task      tasker.ID  `json:"task_uuid"`
		StepUUID  *tasker.ID `json:"step_uuid"`
		Reason    string     `json:"dlq_reason"`
		Detector  string     `json:"detected_by"`
		Severity  string     `json:"severity"`
		Priority  int        `json:"base_priority"`
		Step      map[string]any
	}
	var topic string
	var data json.RawMessage
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT topic, data FROM tasker.outbox`).Scan(&topic, &data))
	h.Must(json.Unmarshal(data, &told))
	if topic != "dlq.entry.created" || told.Analytics != "STEP_DEAD_LETTERED" || told.Entry != e.UUID || told.Task != task ||
		told.StepUUID == nil || *told.StepUUID != *e.StepUUID || told.Reason != "max_retries_exceeded" || told.Detector != "inline" || told.Severity != "high" || told.Priority != 500 {
		t.Errorf("%s %+v", topic, told)
	}
	want := map[string]any{
		"name": "charge", "handler": "run", "attempts": 2.0, "max_attempts": 2.0, "error_type": "declined", "error_message": "still no money",
		"error_fingerprint": nil,
	}
	for _, name := range []string{"worker_uuid", "last_attempted_at"} {
		if text, _ := told.Step[name].(string); text == "" {
			t.Errorf("the step has no %s", name)
		}
		delete(told.Step, name)
	}
	if diff := cmp.Diff(want, told.Step); diff != "" {
		t.Error(diff)
	}
}

// A task that went on by itself is the least urgent of all, whatever its reason
// and however long it waits.
func TestARecoveredTaskComesLast(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	recovered := h.create()
	a := h.claim()
	h.stand(recovered, time.Hour)
	h.sweep(1)
	waits := h.create()
	h.claim()
	manual := h.openByHand(waits)
	swept := h.Entry(recovered)
	h.opened(swept.UUID, 600, manual.UUID)
	h.wantQueue(swept.UUID, manual.UUID)

	h.succeed(a)
	h.wantQueue(manual.UUID, swept.UUID)
	queue := h.queue()
	if queue[0].RecoveredAt != nil || queue[1].RecoveredAt == nil || queue[1].CurrentState != tasker.TaskComplete ||
		queue[1].PriorityScore < queue[0].PriorityScore+600 {
		t.Errorf("queue %+v", queue)
	}
	if first, _, err := h.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 1}); err != nil || len(first) != 1 || first[0].EntryUUID != manual.UUID {
		t.Errorf("the first is %+v, %v", first, err)
	}
}

// Each minute of age is a point: an entry of 10 points passes a new one of 500 after 490 minutes.
func TestAgeOutweighsTheReason(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	failed := h.failed()
	waits := h.create()
	manual := h.openByHand(waits)
	h.wantQueue(failed.UUID, manual.UUID)
	h.opened(manual.UUID, 489, failed.UUID)
	h.wantQueue(failed.UUID, manual.UUID)
	h.opened(manual.UUID, 491, failed.UUID)
	h.wantQueue(manual.UUID, failed.UUID)
	h.opened(manual.UUID, 500, failed.UUID)
	h.wantQueue(manual.UUID, failed.UUID)
	queue := h.queue()
	if ahead := queue[0].PriorityScore - queue[1].PriorityScore; math.Abs(ahead-10) > 0.1 {
		t.Errorf("it is %v points ahead, want 10", ahead)
	}
}

// Operators write what they like into the metadata, also the names of our own
// columns. Queue and statistics are made of evidence, and stay as they are.
func TestWhatOperatorsWriteLeavesQueueAndStatisticsAlone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	odd := json.RawMessage(`{"time_in_state_minutes": "x", "threshold_minutes": [], "priority_score": "high", "minutes_in_dlq": null,
		"dlq_timestamp": "never", "sweep_id": 7, "step_uuid": "none", "detail_code": "y"}`)
	stale := h.create()
	h.claim()
	h.stand(stale, 45*time.Minute)
	h.sweep(1)
	waits := h.create()
	h.claim()
	_, err := h.DLQ.Open(t.Context(), waits, tasker.NewEntry{Actor: "ann", Reason: "odd", Metadata: odd})
	h.Must(err)
	ended := h.failed()
	h.update(ended.UUID, resolution())
	h.failed()

	alike := cmpopts.IgnoreFields(tasker.InvestigationQueueEntry{}, "MinutesInDLQ", "PriorityScore") // which grow
	before, statistics := h.queue(), h.stats()
	if len(before) != 3 || len(statistics) != 3 {
		t.Fatalf("%d in the queue, %d reasons", len(before), len(statistics))
	}
	all, err := h.DB.Entries(t.Context(), tasker.EntryFilter{Limit: 10})
	h.Must(err)
	if len(all) != 4 {
		t.Fatalf("%d entries", len(all))
	}
	for _, e := range all { // the ended one, too
		got, _ := h.update(e.UUID, tasker.EntryUpdate{Metadata: odd, Actor: "ann"})
		var m map[string]any
		h.Must(json.Unmarshal(got.Metadata, &m))
		if m["time_in_state_minutes"] != "x" || m["sweep_id"] != 7.0 {
			t.Errorf("metadata %s", got.Metadata)
		}
	}
	after := h.queue()
	if diff := cmp.Diff(before, after, alike); diff != "" {
		t.Error(diff)
	}
	for i, base := range []float64{500, 100, 10} {
		if q := after[i]; math.Abs(q.PriorityScore-q.MinutesInDLQ-base) > 0.01 || q.TimeInStateMinutes == nil {
			t.Errorf("line %d: %v points after %v minutes, stood for %v", i, q.PriorityScore, q.MinutesInDLQ, q.TimeInStateMinutes)
		}
	}
	if stood := *after[1].TimeInStateMinutes; stood < 45 || stood > 50 {
		t.Errorf("the stale task stood for %v minutes", stood)
	}
	if diff := cmp.Diff(statistics, h.stats()); diff != "" {
		t.Error(diff)
	}
	h.sweep(0)
}

func (h *harness) stats() []tasker.EntryStats {
	h.Helper()
	list, err := h.DB.EntryStats(h.Context())
	h.Must(err)
	return list
}

// The mark of a task is that of its investigation while it is open, and stays
// only if the task was written off.
func TestTheMarkOfATaskFollowsItsInvestigation(t *testing.T) {
	t.Parallel()
	for status, stays := range map[tasker.ResolutionStatus]bool{
		tasker.EntryManuallyResolved: false, tasker.EntryPermanentlyFailed: true, tasker.EntryCancelled: false,
	} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			e := h.failed()
			plain := h.create() // is never marked
			marked := tasker.DeadLetter{DeadLettered: true, DeadLetteredAt: &e.At, MarkReason: "max_retries_exceeded", EntryUUID: &e.UUID, EntryStatus: tasker.EntryPending}
			h.wantMarks(map[tasker.ID]tasker.DeadLetter{e.TaskUUID: marked, plain: {}})

			u := resolution()
			u.Status = &status
			h.update(e.UUID, u)
			want := tasker.DeadLetter{}
			if stays {
				want = marked
				want.EntryStatus = tasker.EntryPermanentlyFailed
			}
			h.wantMarks(map[tasker.ID]tasker.DeadLetter{e.TaskUUID: want, plain: {}})

			if stays {
				return // for good: nobody looks into it again
			}
			next, err := h.DLQ.Open(t.Context(), e.TaskUUID, tasker.NewEntry{Actor: "ann", Reason: "look again"})
			h.Must(err)
			h.wantMarks(map[tasker.ID]tasker.DeadLetter{
				e.TaskUUID: {DeadLettered: true, DeadLetteredAt: &next.At, MarkReason: "manual_dlq", EntryUUID: &next.UUID, EntryStatus: tasker.EntryPending}, plain: {},
			})
		})
	}
}

// wantMarks checks the marks of all tasks: of each, in the list, and in the list
// of those with and without.
func (h *harness) wantMarks(want map[tasker.ID]tasker.DeadLetter) {
	h.Helper()
	for id, d := range want {
		d.Mark, d.MarkLabel = d.Kind(), tasker.OptionalString(d.Label())
		want[id] = d
	}
	marks := func(f tasker.TaskFilter) map[tasker.ID]tasker.DeadLetter {
		f.Limit = 10
		list, _, err := h.DB.Tasks(h.Context(), f)
		h.Must(err)
		out := map[tasker.ID]tasker.DeadLetter{}
		for _, t := range list {
			out[t.UUID] = t.DeadLetter
		}
		return out
	}
	if diff := cmp.Diff(want, marks(tasker.TaskFilter{})); diff != "" {
		h.Errorf("the list: %s", diff)
	}
	with, without := map[tasker.ID]tasker.DeadLetter{}, map[tasker.ID]tasker.DeadLetter{}
	for id, mark := range want {
		one, err := h.DB.Task(h.Context(), id)
		h.Must(err)
		if diff := cmp.Diff(mark, one.DeadLetter); diff != "" {
			h.Errorf("task %s: %s", id, diff)
		}
		if mark.DeadLettered {
			with[id] = mark
		} else {
			without[id] = mark
		}
	}
	if diff := cmp.Diff(with, marks(tasker.TaskFilter{DeadLettered: new(true)})); diff != "" {
		h.Errorf("those marked: %s", diff)
	}
	if diff := cmp.Diff(without, marks(tasker.TaskFilter{DeadLettered: new(false)})); diff != "" {
		h.Errorf("those not marked: %s", diff)
	}
}

func TestASweepThatIsSwitchedOff(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	if loops := dlq.New(h.DB, dlq.Options{SweepEvery: -1}).Loops(); len(loops) != 1 || loops[0].Name != "staleness thresholds" {
		t.Errorf("%d loops", len(loops))
	}
	for every, want := range map[time.Duration]time.Duration{0: dlq.DefaultSweepEvery, time.Second: time.Second} {
		loops := dlq.New(h.DB, dlq.Options{SweepEvery: every}).Loops()
		if len(loops) != 2 || loops[0].Interval != want {
			t.Errorf("loops of %s: %+v", every, loops)
		}
	}
}

func attempted(attempts int, s tasker.StepTemplate) tasker.StepTemplate {
	s.Retry.MaxAttempts = attempts
	return s
}
