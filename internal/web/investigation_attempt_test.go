package web

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

// historyOf makes moves of a step, newest first, from "from to event" and so many
// seconds after the one before.
func historyOf(lines ...string) []tasker.Transition {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var moves []tasker.Transition
	for _, line := range lines {
		var from, to, event string
		var attempt, seconds int
		_, _ = fmt.Sscan(line, &from, &to, &event, &attempt, &seconds)
		at = at.Add(time.Duration(seconds) * time.Second)
		moves = append(moves, tasker.Transition{From: from, To: to, Event: event, Attempt: &attempt, CreatedAt: at, Detail: []byte(`{"message":"` + event + `"}`)})
	}
	slices.Reverse(moves)
	return moves
}

func TestAttemptsAreReadOutOfTheHistory(t *testing.T) {
	for _, tt := range []struct {
		name  string
		moves []tasker.Transition
		want  string
	}{
		{"none", nil, ""},
		{"one that runs", historyOf("pending enqueued enqueue 1 0", "enqueued in_progress claim 1 5"), "1 in_progress took='' said=''"},
		{"one that succeeded", historyOf("enqueued in_progress claim 1 5", "in_progress complete succeed 1 7"), "1 complete took='7.0 s' said=''"},
		{"two, the last first", historyOf("enqueued in_progress claim 1 5", "in_progress error fail 1 2", "error enqueued retry 2 60", "enqueued in_progress claim 2 0",
			"in_progress error time_out 2 90"), "2 error took='1 min' said='time_out', 1 error took='2.0 s' said='fail'"},
		{"no worker took it", historyOf("pending enqueued enqueue 1 0", "enqueued error expire 1 60"), "1 error took='' said='expire'"},
		{"failed outside", historyOf("pending error fail_external 0 0"), "0 error took='' said='fail_external'"},
		{"given back", historyOf("enqueued in_progress claim 1 0", "in_progress enqueued release 1 1", "enqueued in_progress claim 1 1"),
			"1 in_progress took='' said='', 1 enqueued took='1.0 s' said=''"},
		{"kept, and followed up later", historyOf("enqueued in_progress claim 1 0", "in_progress enqueued_for_orchestration keep 1 1",
			"enqueued_for_orchestration complete succeed 1 2"), "1 complete took='3.0 s' said=''"},
		{"repaired by hand", historyOf("in_progress error fail 3 0", "error resolved_manually resolve_manually 3 9"), "3 error took='' said='fail'"},
		{"at once", historyOf("enqueued in_progress claim 1 0", "in_progress complete succeed 1 0"), "1 complete took='0 ms' said=''"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, a := range collectAttempts(tt.moves, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) {
				got = append(got, fmt.Sprintf("%d %s took='%s' said='%s'", a.Number, a.State, a.Took(), a.Failure.Message))
			}
			if s := strings.Join(got, ", "); s != tt.want {
				t.Errorf("reads %s, want %s", s, tt.want)
			}
		})
	}
}
