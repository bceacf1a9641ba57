package dlq_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
)

// A step that fails for good while somebody looks into its task for a lesser reason
// makes the investigation as urgent as any other of a failed step, on every surface.
func TestAWeightierReasonRaisesTheInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.pair(1)
	charge := h.claim()
	opened := h.openByHand(task)
	other := h.pair(1)
	h.openByHand(other)
	h.opened(h.Entry(other).UUID, 5, opened.UUID)
	h.wantQueue(h.Entry(other).UUID, opened.UUID)
	h.report(tasker.Outcome{Lease: charge.Lease(), Failure: &tasker.Failure{Message: "no money 4711"}})

	e := h.entry(opened.UUID)
	if e.Reason != tasker.MaxRetriesExceeded || e.DetailCode != tasker.PermanentFailure || e.StepUUID == nil || *e.StepUUID != charge.StepUUID {
		t.Errorf("the investigation is about %s %s, step %v", e.Reason, e.DetailCode, e.StepUUID)
	}
	if tasker.Reason(e.OriginalReason) != tasker.ManualDLQ || e.OriginalCode != tasker.OperatorRequest || !e.At.Equal(opened.At) || string(e.Snapshot) != string(opened.Snapshot) {
		t.Errorf("it was opened for %s %s at %s", e.OriginalReason, e.OriginalCode, e.At)
	}
	h.wantQueue(opened.UUID, h.Entry(other).UUID)
	first := h.queue()[0]
	if first.Reason != tasker.MaxRetriesExceeded || math.Abs(first.PriorityScore-first.MinutesInDLQ-500) > 0.1 ||
		first.StepName != "charge" || first.ErrorPattern != "no money #" {
		t.Errorf("the queue begins with %+v", first)
	}
	h.wantPending(map[tasker.Reason]int64{tasker.MaxRetriesExceeded: 1, tasker.ManualDLQ: 1})
	mark, err := h.DB.Task(t.Context(), task)
	h.Must(err)
	if mark.MarkReason != "max_retries_exceeded" {
		t.Errorf("mark %+v", mark.DeadLetter)
	}
	if diff := cmp.Diff([]string{"created", "step_failed", "raised"}, h.events(e.UUID)); diff != "" {
		t.Error(diff)
	}
	h.wantRaisedEvent(e.UUID, "manual_dlq", "max_retries_exceeded", 500)

	// It is in the same case as a task that failed in the same way.
	h.report(tasker.Outcome{Lease: h.claim().Lease(), Failure: &tasker.Failure{Message: "no money 1"}}) // of other
	h.FindCases()
	alike, err := h.DB.RelatedEntries(t.Context(), e.UUID, 10)
	h.Must(err)
	if alike.Open != 1 {
		t.Errorf("%d investigations of the same case", alike.Open)
	}
	h.update(e.UUID, resolution())
	for _, s := range h.stats() {
		if s.Reason == tasker.MaxRetriesExceeded && s.ManuallyResolved != 1 {
			t.Errorf("statistics %+v", s)
		}
	}
}

// wantPending checks that statistics and gauge count the open investigations alike.
func (h *harness) wantPending(want map[tasker.Reason]int64) {
	h.Helper()
	got := map[tasker.Reason]int64{}
	var all int64
	for _, s := range h.stats() {
		if s.Pending > 0 {
			got[s.Reason] = s.Pending
			all += s.Pending
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.Error(diff)
	}
	open, _, err := h.DB.OpenEntries(h.Context())
	h.Must(err)
	if open != all {
		h.Errorf("the gauge says %d, the statistics %d", open, all)
	}
}

func (h *harness) wantRaisedEvent(entry tasker.ID, from, to string, priority int) {
	h.Helper()
	var topic string
	var data json.RawMessage
	h.Must(h.Admin().QueryRow(h.Context(),
		`SELECT topic, data FROM tasker.outbox WHERE dlq_entry_uuid = $1 ORDER BY position DESC LIMIT 1`, entry).Scan(&topic, &data))
	type cause struct {
		Reason string `json:"dlq_reason"`
	}
	var told struct {
		Reason   string `json:"dlq_reason"`
		Priority int    `json:"base_priority"`
		Change   struct {
			Event    string
			Metadata struct{ From, To cause }
		}
	}
	h.Must(json.Unmarshal(data, &told))
	if topic != "dlq.entry.updated" || told.Reason != to || told.Priority != priority || told.Change.Event != "raised" ||
		told.Change.Metadata.From.Reason != from || told.Change.Metadata.To.Reason != to {
		h.Errorf("%s %s", topic, data)
	}
}

// Of each two reasons the weightier one counts, whichever comes first.
func TestWeightierOfTwoReasonsWins(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	code := map[tasker.Reason]tasker.Cause{}
	for _, c := range tasker.Causes() {
		code[c.Reason] = c
	}
	for _, first := range tasker.Reasons() {
		for _, second := range tasker.Reasons() {
			task := h.create()
			for i, reason := range []tasker.Reason{first, second} {
				h.Exec(`SELECT tasker.create_dlq_entry(task_uuid, $2::text::tasker.dlq_reason, $3, 'inline', 'steps_in_process', p_step_uuid => step_uuid, p_actor => $4)
					FROM tasker.workflow_steps WHERE task_uuid = $1`, task, string(reason), code[reason].Code, fmt.Sprint("number ", i))
			}
			e := h.entry(h.Entry(task).UUID)
			want, original, events := first, tasker.Reason(""), []string{"created", "step_failed"}
			if code[second].BasePriority > code[first].BasePriority {
				want, original, events = second, first, append(events, "raised")
			}
			if e.Reason != want || tasker.Reason(e.OriginalReason) != original || e.DetailCode != code[want].Code {
				t.Errorf("%s, then %s: %s %s, opened for %q", first, second, e.Reason, e.DetailCode, e.OriginalReason)
			}
			if diff := cmp.Diff(events, h.events(e.UUID)); diff != "" {
				t.Errorf("%s, then %s: %s", first, second, diff)
			}
			h.Exec(`UPDATE tasker.tasks_dlq SET resolution_status = 'cancelled', resolved_at = now(), resolved_by = 'x', resolution_notes = 'x' WHERE dlq_entry_uuid = $1`, e.UUID)
			h.Exec(`INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status) VALUES ($1, 'resolved', 'x', 'pending', 'cancelled')`, e.UUID)
		}
	}
}

// The weights are those of the configuration. What is open keeps its place, and is
// raised by what is weightier than that.
func TestTheWeightsAreConfigured(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	before := h.failed()
	set := func(reason tasker.Reason, minutes int, want bool) {
		t.Helper()
		of := tasker.DefaultBasePriorities()
		of[reason] = minutes
		changed, err := h.DB.SetBasePriorities(t.Context(), of)
		if err != nil || changed != want {
			t.Errorf("changed: %v, %v", changed, err)
		}
	}
	set(tasker.ManualDLQ, 700, true)
	set(tasker.ManualDLQ, 700, false)
	task := h.pair(1)
	manual := h.openByHand(task)
	h.wantQueue(manual.UUID, before.UUID)
	h.fail(h.claim(), false)
	if e := h.Entry(task); e.Reason != tasker.ManualDLQ {
		t.Errorf("a lighter reason made it %s", e.Reason)
	}
	set(tasker.ManualDLQ, 0, true)
	h.wantQueue(manual.UUID, before.UUID) // as they were opened
	if q := h.queue()[0]; math.Abs(q.PriorityScore-q.MinutesInDLQ-700) > 0.1 {
		t.Errorf("%v points after %v minutes", q.PriorityScore, q.MinutesInDLQ)
	}
}
