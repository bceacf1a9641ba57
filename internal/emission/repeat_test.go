package emission_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/emission"
)

// A forgetful sink is told again what goes on, and takes a second of its clock each time.
type forgetful struct {
	clock   atomic.Int64
	repeats atomic.Int64
	onThird func()

	mu      sync.Mutex
	again   map[tasker.ID]int // by subject
	emitted []int64           // after how many repetitions each message came
}

func (*forgetful) Name() string               { return "pager" }
func (*forgetful) Close() error               { return nil }
func (*forgetful) RepeatEvery() time.Duration { return time.Hour }

func (s *forgetful) Emit(context.Context, tasker.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emitted = append(s.emitted, s.repeats.Load())
	return nil
}

func (s *forgetful) Repeat(_ context.Context, e tasker.Event) error {
	s.mu.Lock()
	s.again[e.Subject.ID]++
	s.mu.Unlock()
	s.clock.Add(int64(time.Second))
	if s.repeats.Add(1) == 3 {
		s.onThird()
	}
	return nil
}

// What is new does not wait until all that goes on is sent again, which is once each, with
// more of it than fits into one part; what has ended meanwhile is not.
func TestNewMessagesDoNotWaitForRepeats(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.investigate()
	h.FindCases()
	h.Must(h.DB.OpenMessageSink(t.Context(), "pager"))
	const tell = `
		WITH i AS (
			INSERT INTO tasker.incidents (namespace, lead_case_id, dedup_key, severity)
			SELECT c.namespace, c.case_id, 'key ' || n, 'high' FROM tasker.cases c, generate_series(1, $1) n RETURNING incident_id, namespace
		), m AS (
			INSERT INTO tasker.messages (topic, subject_kind, subject_id, incident_id, namespaces, data, routed_at)
			SELECT 'case.opened', 'incident', incident_id, incident_id, ARRAY[namespace], '{}', now() FROM i RETURNING position, subject_id
		)
		INSERT INTO tasker.message_emissions (position, sink, subject_id, state, published_at) SELECT position, 'pager', subject_id, $2, now() FROM m`
	const goOn = 40
	h.Exec(tell, goOn, "published")
	s := &forgetful{again: map[tasker.ID]int{}}
	s.clock.Store(time.Now().UnixNano())
	s.onThird = func() {
		h.Exec(tell, 1, "pending")
		h.Exec(`UPDATE tasker.incidents SET ended_at = now() WHERE incident_id = (SELECT max(incident_id::text)::uuid FROM tasker.incidents WHERE dedup_key <> 'key 1')`)
	}
	stop := h.relay(h.DB, func(o *emission.Options) {
		o.Named, o.Now = append(o.Named, s), func() time.Time { return time.Unix(0, s.clock.Load()) }
	})
	h.Eventually("all is sent", func() bool {
		return s.repeats.Load() >= goOn-1 && h.Count(`SELECT count(*) FROM tasker.message_emissions WHERE state = 'pending'`) == 0
	})
	stop()
	if len(s.emitted) != 1 || s.emitted[0] > 6 {
		t.Errorf("what was new came after so many repetitions: %v", s.emitted)
	}
	for id, n := range s.again {
		if n != 1 {
			t.Errorf("%s was sent again %d times", id, n)
		}
	}
	if n := len(s.again); n < goOn-1 || n > goOn { // the new one may be among them
		t.Errorf("%d were sent again", n)
	}
}
