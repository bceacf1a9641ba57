package templatefile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// However many checks of one namespace wait, that of another is the next but one.
func TestChecksAlternateBetweenNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newFairSemaphore(1)
		if err := turns.enter(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		var order []string // by who has the turn
		check := func(ctx context.Context, namespace string) {
			go func() {
				if turns.enter(ctx, namespace) == nil {
					order = append(order, namespace)
					turns.leave()
				}
			}()
			synctest.Wait()
		}
		for range 50 {
			check(t.Context(), "a")
		}
		ended, end := context.WithCancel(t.Context())
		check(ended, "c")
		check(ended, "a")
		check(t.Context(), "b")
		end()
		synctest.Wait()
		turns.leave()
		synctest.Wait()
		if at := slices.Index(order, "b"); at > 1 || len(order) != 51 {
			t.Errorf("of %d checks that of the other namespace was number %d: %q", len(order), at, order)
		}
		if turns.free != 1 || len(turns.waiting)+len(turns.next) > 0 {
			t.Errorf("afterwards %d turns are free, and there are %v and %q", turns.free, turns.waiting, turns.next)
		}
	})
}

// What the server does by itself does not wait for requests.
func TestTimersDoNotWaitForChecksOfRequests(t *testing.T) {
	in := compileInput(t, `{"required": ["a"]}`)
	for range checking.size {
		if err := checking.enter(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(checking.leave)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := in.Check(ended, NewBudget(), decoded(t, `{"a": 1}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("a request: %v", err)
	}
	if err := in.Check(t.Context(), NewTimerBudget(), decoded(t, `{"a": 1}`)); err != nil {
		t.Errorf("a timer: %v", err)
	}
}
