package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

func (h *harness) rejectedReports() int {
	h.Helper()
	var n int
	h.Must(h.pool.QueryRow(h.Context(), `SELECT count(*) FROM tasker.rejected_reports`).Scan(&n))
	return n
}

// onlyRejected expects a receipt that refuses one report and accepts none.
func (h *harness) onlyRejected(r tasker.Receipt, code tasker.Code, words string) {
	h.Helper()
	if len(r.Accepted) != 0 || len(r.Rejected) != 1 || r.Rejected[0].Code != code || !strings.Contains(r.Rejected[0].Message, words) {
		h.Fatalf("receipt %+v, want one rejection %s that says %q", r, code, words)
	}
}

// Connections break after new work was handed out and before the standing of a
// stale report is known: it is answered all the same, and later on record.
func TestEachOutcomeIsAnsweredWhenItsStandingCannotBeRead(t *testing.T) {
	t.Parallel()
	h, cutter := newCutHarness(t)
	h.Template("single", enginetest.Step("one"))
	h.Create("single")
	stale := h.claimOne("one")
	_, _, err := h.Engine.Release(t.Context(), h.worker, []tasker.Lease{stale.Lease()})
	h.Must(err)
	const marks = "s.reported_fence, s.report_digest"
	cutter.Cut(100, marks, false)
	r, err := h.Engine.Report(t.Context(), h.worker, []tasker.Outcome{success(stale, `1`)}, 5)
	h.Must(err)
	if len(r.Next) != 1 {
		t.Errorf("%d steps were handed out, want 1", len(r.Next))
	}
	h.onlyRejected(r, tasker.Unavailable, "send it again")
	if n := cutter.Count(); n < 2 {
		t.Errorf("it was tried %d times", n)
	}
	cutter.Cut(1, marks, false) // one break is bridged
	h.onlyRejected(h.report(success(stale, `1`)), tasker.StaleLease, "lease lost")
	if n := h.rejectedReports(); n != 1 {
		t.Errorf("%d refusals are on record, want 1", n)
	}
	h.accepted(success(r.Next[0], `1`))
}

func TestARefusalIsOnRecordBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.Create("single")
	stale := h.claimOne("one")
	_, _, err := h.Engine.Release(t.Context(), h.worker, []tasker.Lease{stale.Lease()})
	h.Must(err)
	h.fails(`INSERT ON tasker.rejected_reports FOR EACH ROW`)
	h.onlyRejected(h.report(success(stale, `1`)), tasker.Unavailable, "send it again")
	h.Exec(`DROP TRIGGER broken ON tasker.rejected_reports`)
	h.onlyRejected(h.report(success(stale, `1`)), tasker.StaleLease, "lease lost")
	if n := h.rejectedReports(); n != 1 {
		t.Errorf("%d refusals are on record, want 1", n)
	}
	h.drain()
}

// A result that cannot be stored is the cause of its attempt's failure, and stands
// in the investigation. The same report again gets the same answer.
func TestAResultThatCannotBeStoredFailsItsAttempt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		result, metadata string
		code             tasker.Code
		words            string
	}{
		"a NUL":            {`{"a": ["x\u0000"]}`, ``, tasker.Invalid, "result: a[0]: the string has a NUL"},
		"half a surrogate": {`"\ud800"`, ``, tasker.Invalid, "surrogate"},
		"a key twice":      {`{"a": 1, "a": 2}`, ``, tasker.Invalid, "duplicate key"},
		"too deep":         {strings.Repeat("[", 65) + strings.Repeat("]", 65), ``, tasker.Invalid, "64"},
		"too large":        {`[` + strings.Repeat(`"`+strings.Repeat("x", 1000)+`",`, 1100) + `1]`, ``, tasker.TooLarge, "limit"},
		"bad metadata":     {`1`, `"\u0000"`, tasker.Invalid, "metadata: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.Template("single", attempts(3, enginetest.Step("one")))
			task := h.Create("single")
			a := h.claimOne("one")
			bad := success(a, tt.result)
			bad.Metadata = json.RawMessage(tt.metadata)
			const failed = "the attempt was failed with this reason"
			first := h.report(bad)
			h.onlyRejected(first, tt.code, tt.words)
			h.onlyRejected(first, tt.code, failed)
			h.wantStep(task, "one", tasker.StepError, 1) // a retry would return the same
			h.wantState(task, tasker.TaskError)
			var f tasker.StepFailure
			h.Must(json.Unmarshal(h.step(task, "one").Error, &f))
			if f.Type != tasker.InvalidResult || !strings.Contains(f.Message, tt.words) || f.Retryable {
				t.Errorf("the failure is %+v", f)
			}
			if e := h.Entry(task); !strings.Contains(string(e.Snapshot), tasker.InvalidResult) {
				t.Errorf("the snapshot does not tell the reason: %s", e.Snapshot)
			}
			if again := h.report(bad); len(again.Rejected) != 1 || again.Rejected[0] != first.Rejected[0] {
				t.Errorf("sent again: %+v, want %+v", again, first)
			}
			h.wantStep(task, "one", tasker.StepError, 1)
			// A worker that restates its result as a failure, as earlier ones do.
			h.onlyRejected(h.report(tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{
				Message: "the engine rejected the result: " + first.Rejected[0].Message, Type: tasker.InvalidResult,
			}}), tasker.StaleLease, "a different outcome")
			h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "seen"))
		})
	}
}

// Under a lease that is lost, a result that cannot be stored fails nothing.
func TestAnUnstorableResultOfALostLease(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	task := h.Create("single")
	a := h.claimOne("one")
	_, _, err := h.Engine.Release(t.Context(), h.worker, []tasker.Lease{a.Lease()})
	h.Must(err)
	h.onlyRejected(h.report(success(a, `"\u0000"`)), tasker.StaleLease, "lease lost")
	h.wantStep(task, "one", tasker.StepEnqueued, 1)
	h.drain()
}
