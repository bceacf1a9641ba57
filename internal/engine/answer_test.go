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
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT count(*) FROM tasker.rejected_reports`).Scan(&n))
	return n
}

// onlyRejected expects a receipt that refuses one report and accepts none.
func (h *harness) onlyRejected(r tasker.Receipt, code tasker.Code, words string) {
	h.Helper()
	if len(r.Accepted) != 0 || len(r.Rejected) != 1 || r.Rejected[0].Code != code || !strings.Contains(r.Rejected[0].Message, words) {
		h.Fatalf("receipt %+v, want one rejection %s that says %q", r, code, words)
	}
}

func TestReportIsAnsweredIfALeaseCannotBeChecked(t *testing.T) {
	h, cutter := newCutHarness(t)
	h.Template("single", enginetest.Step("one"))
	h.Create("single")
	stale := h.ClaimOne("one")
	h.Release(stale)
	const marks = "s.reported_fence, s.report_digest"
	cutter.Cut(100, marks, false)
	r, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{success(stale, `1`)}, 5)
	h.Must(err)
	equal(t, "steps were handed out", len(r.Next), 1)
	h.onlyRejected(r, tasker.Unavailable, "send it again")
	n := cutter.Count()
	check(t, n >= 2, "it was tried %d times", n)
	cutter.Cut(1, marks, false) // one break is bridged
	h.onlyRejected(h.Report(success(stale, `1`)), tasker.StaleLease, "lease lost")
	equal(t, "recorded rejections", h.rejectedReports(), 1)
	h.Accepted(success(r.Next[0], `1`))
}

func TestRejectedReportIsRecordedBeforeTheAnswer(t *testing.T) {
	h := newSingle(t)
	h.Create("single")
	stale := h.ClaimOne("one")
	h.Release(stale)
	h.poison("INSERT ON tasker.rejected_reports", "true")
	h.onlyRejected(h.Report(success(stale, `1`)), tasker.Unavailable, "send it again")
	h.heal()
	h.onlyRejected(h.Report(success(stale, `1`)), tasker.StaleLease, "lease lost")
	equal(t, "recorded rejections", h.rejectedReports(), 1)
	h.Drain()
}

func TestResultThatCannotBeStoredFailsItsAttempt(t *testing.T) {
	h := newHarness(t)
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
		h.each(name, func(h *harness) {
			h.Template("single", attempts(3, enginetest.Step("one")))
			task := h.Create("single")
			a := h.ClaimOne("one")
			bad := success(a, tt.result)
			bad.Metadata = json.RawMessage(tt.metadata)
			const failed = "the attempt was failed with this reason"
			first := h.Report(bad)
			h.onlyRejected(first, tt.code, tt.words)
			h.onlyRejected(first, tt.code, failed)
			h.WantStep(task, "one", tasker.StepError, 1) // a retry would return the same
			h.WantState(task, tasker.TaskError)
			var f tasker.StepFailure
			h.Must(json.Unmarshal(h.Step(task, "one").Error, &f))
			check(h, f.Type == tasker.InvalidResult && strings.Contains(f.Message, tt.words) && !f.Retryable,
				"the failure is %+v", f)
			if e := h.Entry(task); !strings.Contains(string(e.Snapshot), tasker.InvalidResult) {
				h.Errorf("the snapshot does not tell the reason: %s", e.Snapshot)
			}
			if again := h.Report(bad); len(again.Rejected) != 1 || again.Rejected[0] != first.Rejected[0] {
				h.Errorf("sent again: %+v, want %+v", again, first)
			}
			h.WantStep(task, "one", tasker.StepError, 1)
			// A worker that restates its result as a failure, as earlier ones do.
			h.onlyRejected(h.Report(tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{
				Message: "the engine rejected the result: " + first.Rejected[0].Message, Type: tasker.InvalidResult,
			}}), tasker.StaleLease, "different outcome")
			h.Cancel(task)
		})
	}
}

func TestResultThatCannotBeStoredOfALostLeaseFailsNothing(t *testing.T) {
	h := newSingle(t)
	task := h.Create("single")
	a := h.ClaimOne("one")
	h.Release(a)
	h.onlyRejected(h.Report(success(a, `"\u0000"`)), tasker.StaleLease, "lease lost")
	h.WantStep(task, "one", tasker.StepEnqueued, 1)
	h.Drain()
}
