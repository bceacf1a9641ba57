// Package lifecycle defines the state machines of tasks, steps and investigations as tables of allowed
// transitions. Validation, the diagrams in docs and the history checks all use these tables.
//
// Each machine is one literal: a pair of state and event that is absent is
// refused. Validation, the state diagrams in docs and the check of the recorded
// history all come from these tables. The database holds one copy, the paths
// between the states in which a task rests; a test keeps it equal.
package lifecycle

import (
	"cmp"
	"slices"
	"strings"

	"tasker.example/tasker"
)

// A Move is an event that meets a state.
type Move[S, E ~string] struct {
	From S
	On   E
}

// A Table says where each legal move leads.
type Table[S, E ~string] map[Move[S, E]]S

// Next returns the state that event on leads to. The error is a Conflict that
// names what the state does accept.
func (t Table[S, E]) Next(from S, on E) (S, error) {
	to, ok := t[Move[S, E]{from, on}]
	if !ok {
		return "", tasker.Errorf(tasker.Conflict, "%s is refused in state %s; possible: %s",
			on, from, strings.Join(t.names(from), ", "))
	}
	return to, nil
}

// Accepts returns the events that state from accepts, sorted.
func (t Table[S, E]) Accepts(from S) []E {
	var events []E
	for m := range t {
		if m.From == from {
			events = append(events, m.On)
		}
	}
	slices.Sort(events)
	return events
}

func (t Table[S, E]) names(from S) []string {
	var names []string
	for _, e := range t.Accepts(from) {
		names = append(names, string(e))
	}
	if len(names) == 0 {
		return []string{"nothing, the state is final"}
	}
	return names
}

// An Edge is a legal move with where it leads, as the history records it.
type Edge[S, E ~string] struct {
	From  S
	Event E
	To    S
}

// Edges returns every legal move, sorted.
func (t Table[S, E]) Edges() []Edge[S, E] {
	edges := make([]Edge[S, E], 0, len(t))
	for m, to := range t {
		edges = append(edges, Edge[S, E]{m.From, m.On, to})
	}
	slices.SortFunc(edges, func(a, b Edge[S, E]) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Event, b.Event))
	})
	return edges
}
