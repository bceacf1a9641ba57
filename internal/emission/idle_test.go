package emission_test

import (
	"testing"
	"time"

	"tasker.example/tasker/internal/emission"
)

// A relay that has nothing to send rests, and is woken when there are events.
func TestAnIdleRelayIsWoken(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	o := emission.Options{DB: h.DB, LookEvery: 10 * time.Millisecond, IdleEvery: time.Hour}
	o.Sinks = append(o.Sinks, h.webhook(r.URL))
	relay := emission.New(o)
	h.runs(relay)
	h.Eventually("it holds the sink", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.emission_sinks WHERE holder IS NOT NULL`) == 1
	})
	h.investigate()
	h.Eventually("it has sent the event", func() bool {
		relay.Wake() // as often as it likes
		return len(r.all()) > 0
	})
	if n := h.Count(`SELECT count(*) FROM tasker.emissions`); n != 1 {
		t.Errorf("%d events were taken", n)
	}
}

// While an event rests that could not be sent, the relay looks for it by itself.
func TestARelayWithEventsDoesNotRestForLong(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	r.says(503)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.investigate()
	h.relay(h.DB, func(o *emission.Options) { o.IdleEvery = 20 * time.Millisecond }, h.webhook(r.URL))
	h.Eventually("it was refused", func() bool { return r.attempts() > 0 })
	r.says(200)
	h.hurry()
	h.Eventually("it has sent the event", func() bool { return len(r.all()) == 1 })
}
