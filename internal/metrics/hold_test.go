package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tasker.example/tasker"
)

// Open holds are counted by kind and state, from 0 on; while the database cannot be read the
// last value stays.
func TestHoldsAreCounted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var counts []tasker.HoldGroup
	var failing error
	unopened := int64(0)
	if err := p.ObserveHolds(func(context.Context) ([]tasker.HoldGroup, error) { return counts, failing }, func() int64 { return unopened }); err != nil {
		t.Fatal(err)
	}
	is := func(manual, releasing, breaker string) {
		t.Helper()
		p.want(map[string]string{
			"tasker.holds manual active": manual, "tasker.holds manual releasing": releasing, "tasker.holds breaker active": breaker, "tasker.holds breaker releasing": "0",
			"tasker.breakers.unopened": fmt.Sprint(unopened),
		})
	}
	is("0", "0", "0")
	counts = []tasker.HoldGroup{{Kind: tasker.ManualHold, State: tasker.HoldReleasing, Holds: 2}, {Kind: tasker.BreakerHold, State: tasker.HoldActive, Holds: 3}}
	is("0", "2", "3")
	counts, failing, unopened = nil, errors.New("no database"), 2
	is("0", "2", "3")
	failing = nil
	is("0", "0", "0")
}
