package emission_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/internal/emission"
)

// A relay that has nothing to send rests, and is woken when there are events.
func TestAnIdleRelayIsWoken(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	o := emission.Options{DB: h.DB, PollInterval: 10 * time.Millisecond, IdleInterval: time.Hour}
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
	h.relay(h.DB, func(o *emission.Options) { o.IdleInterval = 20 * time.Millisecond }, h.webhook(r.URL))
	h.Eventually("it was refused", func() bool { return r.attempts() > 0 })
	r.says(200)
	h.hurry()
	h.Eventually("it has sent the event", func() bool { return len(r.all()) == 1 })
}

// lines are those of a log, as long as there is room.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// An operation on the database that takes too long is given up and tried again, so a
// slow database only delays the relay.
func TestOperationsOnTheDatabaseAreBounded(t *testing.T) {
	t.Parallel()
	h, r := newHarness(t), newReceiver(t)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	h.investigate()
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE tasker.emission_sinks IN ACCESS EXCLUSIVE MODE`)
	h.Must(err)
	said := make(lines, 10)
	h.relay(h.DB, func(o *emission.Options) {
		o.StoreTimeout, o.Log = 100*time.Millisecond, slog.New(slog.NewTextHandler(said, nil))
	}, h.webhook(r.URL))
	select {
	case line := <-said:
		if !strings.Contains(line, "context deadline exceeded") { // and not the statement timeout of the connection
			t.Errorf("the relay says %s", line)
		}
	case <-time.After(patience):
		t.Fatal("the relay still waits for the database")
	}
	h.Must(tx.Rollback(t.Context()))
	h.Eventually("it has sent the event", func() bool { return len(r.all()) == 1 })
}
