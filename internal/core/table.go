package core

import (
	"cmp"
	"slices"
	"strings"

	"tasker.example/tasker"
)

// cause is an event that occurs in a state.
type cause[S, E ~string] struct {
	From S
	On   E
}

// Table maps each legal move to the next state.
type Table[S, E ~string] map[cause[S, E]]S

// Next returns the state that follows an event. If the event is not allowed, it returns a Conflict
// that lists the allowed events.
func (t Table[S, E]) Next(from S, on E) (S, error) {
	to, ok := t[cause[S, E]{from, on}]
	if !ok {
		return "", tasker.Errorf(tasker.Conflict, "%s is not allowed in state %s: allowed are %s",
			on, from, strings.Join(t.eventNames(from), ", "))
	}
	return to, nil
}

// Accepts returns the events that are allowed in a state, sorted.
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

func (t Table[S, E]) eventNames(from S) []string {
	var names []string
	for _, e := range t.Accepts(from) {
		names = append(names, string(e))
	}
	if len(names) == 0 {
		return []string{"none, as the state is final"}
	}
	return names
}

// Edge is a legal move together with its next state, as the history records it.
type Edge[S, E ~string] struct {
	From  S
	Event E
	To    S
}

// Edges returns all legal moves, sorted.
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
