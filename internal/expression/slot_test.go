package expression

import (
	"context"
	"errors"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// An evaluation that does not return keeps its slot, and no other waits for it. Without a free slot an evaluation
// fails with an error that can be retried.
func TestAnAbandonedEvaluationHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	slots := make(evaluationSlots, 2)
	release := make(chan struct{})
	endless := func() (ref.Val, int, error) { <-release; return types.True, 1, nil }
	quick := func() (ref.Val, int, error) { return types.True, 1, nil }
	abandon := func() {
		ended, cancel := context.WithCancel(t.Context())
		started := make(chan struct{})
		go func() { <-started; cancel() }()
		_, cost, err := slots.run(ended, func() (ref.Val, int, error) { close(started); return endless() })
		if !errors.Is(err, context.Canceled) || cost != maxCost {
			t.Errorf("it ends with %v at the cost %d", err, cost)
		}
	}
	abandon()
	if out, _, err := slots.run(t.Context(), quick); out != types.True || err != nil {
		t.Errorf("another evaluation gives %v, %v", out, err)
	}
	abandon()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := slots.run(ended, quick); !errors.Is(err, errNoSlot) {
		t.Errorf("without a slot it ends with %v", err)
	}
	close(release)
	if out, _, err := slots.run(t.Context(), quick); out != types.True || err != nil {
		t.Errorf("once they have returned it gives %v, %v", out, err)
	}
}
