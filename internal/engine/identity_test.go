package engine_test

import (
	"encoding/json"
	"testing"

	"tasker.example/tasker"
)

func TestRepeatedReportsAreComparedByValue(t *testing.T) {
	h := newSingle(t)
	failed := func(f tasker.Failure) tasker.Outcome { return tasker.Outcome{Failure: &f} }
	ok := func(result, metadata string) tasker.Outcome {
		return tasker.Outcome{Success: true, Result: json.RawMessage(result), Metadata: json.RawMessage(metadata)}
	}
	down := tasker.Failure{Message: "down", Type: "smtp", Context: json.RawMessage(`{"ms": 12}`), RetryAfter: 1000}
	retried, measured, other := down, down, down
	retried.Retryable = true
	measured.Context, measured.RetryAfter = json.RawMessage(`{"ms": 13}`), 2000
	other.Message = "up"
	for _, tt := range []struct {
		name         string
		first, again tasker.Outcome
		want         bool
	}{
		{"keys in another order", ok(`{"a": 1, "b": 2}`, ``), ok(`{"b":2,"a":1}`, ``), true},
		{"another spelling of a character", ok(`"\u00e9"`, ``), ok(`"é"`, ``), true},
		{"another spelling of a number", ok(`[1, 1e2]`, ``), ok(`[1.0, 100]`, ``), true},
		{"metadata measured anew", ok(`1`, `{"ms": 12}`), ok(`1`, `{"ms": 13}`), true},
		{"no result and null", ok(``, ``), ok(`null`, ``), true},
		{"numbers that a float cannot tell apart", ok(`9007199254740993`, ``), ok(`9007199254740992`, ``), false},
		{"another result", ok(`1`, ``), ok(`2`, ``), false},
		{"a failure after a success", ok(`1`, ``), failed(down), false},
		{"the evidence of a failure measured anew", failed(down), failed(measured), true},
		{"another message of a failure", failed(down), failed(other), false},
		{"a failure that may be retried", failed(down), failed(retried), false},
	} {
		h.each(tt.name, func(h *harness) {
			h.Create("single")
			lease := h.ClaimOne("one").Lease()
			tt.first.Lease, tt.again.Lease = lease, lease
			h.Accepted(tt.first)
			r := h.Report(tt.again)
			got := len(r.Accepted) == 1
			check(h, got == tt.want, "accepted %v, want %v: %+v", got, tt.want, r)
		})
	}
}
