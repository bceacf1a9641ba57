package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// again is the step of an assignment as it is handed out later.
func again(a tasker.Assignment) tasker.Assignment {
	a.Fence++
	a.Attempt++
	a.LeaseExpiresAt = a.LeaseExpiresAt.Add(time.Second)
	return a
}

// A worker that is handed a step again, as after a reset by an operator, stops the older attempt at
// once: heartbeats name steps, and say nothing of it.
func TestAStepThatIsHandedOutAgainEndsTheOlderAttempt(t *testing.T) {
	for _, tt := range []struct {
		name     string
		reversed bool // the answer with the older attempt is the later one
		draining bool
		want     []int // the attempts that end because their lease is lost
		begun    []int
	}{
		{"in order", false, false, []int{1}, []int{1, 2}},
		{"the older one comes late", true, false, nil, []int{2}},
		{"while the worker drains", false, true, []int{1}, []int{1}},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			f := newFake()
			var begun, lost []int
			w := worker.New(f, worker.Options{Name: "test", Namespaces: []string{"n"}, Concurrency: 3, DrainTimeout: time.Minute})
			w.HandleRaw("run", func(ctx context.Context, c *worker.Call) (json.RawMessage, error) {
				begun = append(begun, c.Attempt)
				select {
				case <-ctx.Done():
					if errors.Is(context.Cause(ctx), worker.ErrLeaseLost) {
						lost = append(lost, c.Attempt)
					}
				case <-time.After(5 * time.Second):
				}
				return json.RawMessage(`1`), nil
			})
			r := start(t, w)
			synctest.Wait()
			first := step("run")
			second := again(first)
			list := []tasker.Assignment{first, second}
			if tt.reversed {
				slices.Reverse(list)
			}
			f.add(list[0])
			synctest.Wait()
			if tt.draining {
				r.stop()
				synctest.Wait()
			}
			f.add(list[1])
			synctest.Wait()
			if !slices.Equal(lost, tt.want) || !slices.Equal(begun, tt.begun) {
				t.Errorf("the attempts %v began, and %v were stopped, want %v and %v", begun, lost, tt.begun, tt.want)
			}
			elapse(time.Minute)
			r.finish()
			if !tt.draining && (len(f.accepted) != 1 || f.accepted[0].Lease != second.Lease()) {
				t.Errorf("accepted %+v, want the outcome of the second attempt", f.accepted)
			}
			if tt.draining && !slices.Equal(f.released, []tasker.Lease{second.Lease()}) {
				t.Errorf("released %+v, want the second attempt", f.released)
			}
		})
	}
}

// A mixedBackend names rejections in the reverse order of the outcomes.
type mixedBackend struct{ *fake }

func (m *mixedBackend) Report(ctx context.Context, id tasker.ID, list []tasker.Outcome, claim int) (tasker.Receipt, error) {
	receipt, err := m.fake.Report(ctx, id, list, claim)
	slices.Reverse(receipt.Rejected)
	return receipt, err
}

// Of two attempts of one step in one report, that the older one does not count settles nothing of
// the newer one.
func TestARejectionOfAnOlderAttemptDoesNotSettleTheNewerOne(t *testing.T) {
	for _, code := range []tasker.Code{tasker.Unavailable, tasker.Internal, tasker.Invalid} {
		inBubble(t, string(code), func(t *testing.T) {
			f := newFake()
			f.reportTakes = 5 * time.Second
			first := step("run")
			second := again(first)
			together := false
			f.reject = func(o tasker.Outcome) *tasker.Rejection {
				switch {
				case o.Lease == first.Lease():
					return &tasker.Rejection{StepUUID: o.StepUUID, Code: tasker.StaleLease, Message: "held by another"}
				case o.Lease == second.Lease() && !together:
					together = len(f.reports[len(f.reports)-1]) == 2
					return &tasker.Rejection{StepUUID: o.StepUUID, Code: code, Message: "not now"}
				}
				return nil
			}
			r := start(t, newWorker(&mixedBackend{f}, 3, takes(time.Millisecond)))
			f.add(step("run"))
			elapse(time.Second) // its report is under way
			f.add(first)
			elapse(time.Second)
			f.add(second)
			elapse(2 * time.Minute)
			r.finish()
			if !together || len(f.accepted) != 2 || f.accepted[1].Lease != second.Lease() {
				t.Errorf("reported together: %t; accepted %+v", together, f.accepted)
			}
		})
	}
}
