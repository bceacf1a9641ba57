package emission_test

import (
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/emission"
)

// Events are sent again by one rule, whoever asks: an event or a range, to known sinks,
// up to a limit, once for a key.
func TestReEmit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	entry := h.investigate()
	_, err := emission.ReEmit(t.Context(), h.DB, emission.ReEmission{From: 1, To: 2, Actor: "ann", Reason: "lost"})
	h.WantCode(err, tasker.Conflict, "no sinks exist")
	for _, sink := range []string{"log", "webhook"} {
		h.Must(h.DB.OpenSink(t.Context(), sink))
	}
	h.Exec(`INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status)
		SELECT $1, 'updated', 'bob', 'pending', 'pending' FROM generate_series(1, $2)`, entry.UUID, emission.MaxReEmitted+5)
	var event tasker.ID
	var position int64
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT event_uuid, position FROM tasker.outbox ORDER BY position LIMIT 1`).Scan(&event, &position))
	nobody := tasker.NewID()
	for _, tt := range []struct {
		name  string
		r     emission.ReEmission
		code  tasker.Code
		words string
	}{
		{"a range that ends before it begins", emission.ReEmission{From: 3, To: 2}, tasker.Invalid, "invalid from_position 3: must not be after to_position 2"},
		{"an unknown sink", emission.ReEmission{Event: &event, Sinks: []string{"log", strings.Repeat("x", 101) + "\xff"}}, tasker.Invalid, "unknown sink \"" + strings.Repeat("x", 100) + "…\": must be one of log, webhook"},
		{"an unknown event", emission.ReEmission{Event: &nobody}, tasker.NotFound, "event"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := emission.ReEmit(t.Context(), h.DB, tt.r)
			h.Copy(t).WantCode(err, tt.code, tt.words)
		})
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events`); n != 0 {
		t.Errorf("%d refused requests are on record", n)
	}
	patiently := func(r emission.ReEmission) (got emission.ReEmitted, err error) { // a slow machine may need more than one attempt
		for range 10 {
			if got, err = emission.ReEmit(t.Context(), h.DB, r); tasker.CodeOf(err) != tasker.Unavailable {
				break
			}
		}
		return got, err
	}
	for _, emissions := range []int{1, 0} {
		got, err := patiently(emission.ReEmission{Event: &event, Sinks: []string{"webhook", "webhook"}, Actor: " ann ", Reason: "lost", Key: "once"})
		h.Must(err)
		if got.Events != 1 || got.Emissions != emissions || !slices.Equal(got.Sinks, []string{"webhook"}) || got.Next != nil {
			t.Errorf("one event: %+v, want %d emissions", got, emissions)
		}
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE actor = 'ann' AND action = 'dlq.re_emit'`); n != 1 {
		t.Errorf("on record %d times", n)
	}
	got, err := patiently(emission.ReEmission{From: position, To: 1 << 50, Actor: "ann", Reason: "lost"})
	h.Must(err)
	if got.Events != emission.MaxReEmitted || got.Emissions != 2*emission.MaxReEmitted || !slices.Equal(got.Sinks, []string{"log", "webhook"}) || got.Next == nil {
		t.Fatalf("a long range: %+v", got)
	}
	rest, err := patiently(emission.ReEmission{From: *got.Next, To: 1 << 50, Actor: "ann", Reason: "lost"})
	h.Must(err)
	if rest.Events != 6 || rest.Next != nil {
		t.Errorf("what is left: %+v", rest)
	}
}
