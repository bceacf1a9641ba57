package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/hold"
)

// outdate puts rows of steps that are not enqueued before all others of the queue: one of a step that does not exist, one
// of a step that is complete, and for each enqueued step one with another instant.
func (h *harness) outdate(bytes string) {
	h.Helper()
	done := h.Create("single")
	h.Complete("one")
	for range 3 {
		h.Create("single")
	}
	h.Exec(`INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, inputs_bytes)
		SELECT 'shop', 'run', 0, now() - interval '1 hour', s.step_uuid, s.task_uuid, now() - interval '1 minute', ` + bytes + `
		FROM (
			SELECT step_uuid, task_uuid FROM tasker.workflow_steps
			WHERE state = 'enqueued' OR task_uuid = '` + done.String() + `'
			UNION ALL
			SELECT tasker.uuid_generate_v7(), '` + done.String() + `'
		) s`)
	n := h.outdated()
	require(h, n == 5, "%d outdated rows, want 5", n)
}

func (h *harness) outdated() int {
	h.Helper()
	return h.Count(`SELECT count(*) FROM tasker.ready_steps r WHERE NOT EXISTS (
		SELECT FROM tasker.workflow_steps s WHERE s.step_uuid = r.step_uuid AND s.state = 'enqueued' AND s.state_since = r.state_since)`)
}

func (h *harness) holds() *hold.Service { return hold.New(h.DB, h.Engine, hold.Options{}) }

func holdOf(handler string) tasker.NewHold {
	return tasker.NewHold{HoldScope: tasker.HoldScope{Namespace: enginetest.Namespace, Handler: handler}, For: time.Hour, Owner: "ann", Reason: "a test"}
}

func TestOutdatedRowsDoNotBlockClaims(t *testing.T) {
	t.Parallel()
	for about, arrange := range map[string]func(h *harness){
		"plain": func(*harness) {},
		"several handlers": func(h *harness) {
			h.Worker = h.RegisterWorker("run", "walk")
		},
		"many handlers": func(h *harness) {
			handlers := []string{"run"}
			for i := range 250 {
				handlers = append(handlers, fmt.Sprint("h", i))
			}
			h.Worker = h.RegisterWorker(handlers...)
		},
		"limit": func(h *harness) { h.limit(handlerLimit(), 50) },
		"hold elsewhere": func(h *harness) {
			h.Must(errOf(h.holds().Begin(h.Context(), holdOf("other"))))
		},
	} {
		t.Run(about, func(t *testing.T) {
			h := newSingle(t)
			arrange(h)
			for name, bytes := range map[string]string{"unmeasured": "NULL", "measured": "2", "too large": "1099511627776"} {
				h.outdate(bytes)
				list := h.ClaimAs(h.Worker, 3)
				if len(list) < 3 {
					list = append(list, h.ClaimAs(h.Worker, 3-len(list))...)
				}
				if len(list) != 3 || h.outdated() != 0 {
					t.Errorf("%s: two claims of 3 handed out %d steps and left %d outdated rows", name, len(list), h.outdated())
				}
				h.Succeed(list...)
			}
		})
	}
}

func TestOutdatedRowsOfAFullLimitDoNotBlockClaims(t *testing.T) {
	h := newHarness(t)
	single := withLimits(tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1})
	single.Steps = single.Steps[:1]
	h.Register(single)
	create := func(customer string) tasker.ID {
		return h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(`{"customer": "` + customer + `"}`)})
	}
	full := create("ann")
	h.ClaimOne("one")
	h.Exec(`INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, inputs_bytes)
		SELECT 'shop', 'run', 0, now() - interval '1 hour' * n, step_uuid, task_uuid, now() + interval '1 hour', 2
		FROM tasker.workflow_steps, generate_series(1, 200) n WHERE task_uuid = $1`, full)
	create("bob")
	list := h.Claim()
	list = append(list, h.Claim()...)
	if len(list) != 1 || h.outdated() != 0 {
		t.Errorf("handed out %d steps, want that of bob; %d outdated rows are left", len(list), h.outdated())
	}
}

func TestUnmeasuredStepsThatWaitForALimitAreHandedOut(t *testing.T) {
	h := newHarness(t)
	single := withLimits(tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1})
	single.Steps = single.Steps[:1]
	h.Register(single)
	for range 4 {
		h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(`{"customer": "ann"}`)})
	}
	first := h.ClaimOne("one")
	if h.Claim(); h.parked() != 3 {
		t.Fatalf("%d steps wait for the limit, want 3", h.parked())
	}
	h.Exec(`ALTER TABLE tasker.workflow_steps DISABLE TRIGGER follow_updated_step`)
	h.Exec(`UPDATE tasker.workflow_steps SET inputs_bytes = NULL WHERE state = 'enqueued'`)
	h.Exec(`UPDATE tasker.held_steps SET inputs_bytes = NULL`)
	h.Exec(`INSERT INTO tasker.held_steps (limit_key_id, namespace, handler, priority, state_since, step_uuid, task_uuid)
		SELECT limit_key_id, namespace, handler, priority, state_since - interval '1 hour', tasker.uuid_generate_v7(), task_uuid FROM tasker.held_steps LIMIT 1`)
	h.Accepted(success(first, `1`))
	for range 3 {
		list := h.Claim()
		if len(list) != 1 {
			list = h.Claim()
		}
		if len(list) != 1 {
			t.Fatalf("handed out %d steps, want 1; %d wait", len(list), h.parked())
		}
		h.Accepted(success(list[0], `1`))
	}
	equal(t, "rows are left", h.parked(), 0)
}

func TestOutdatedRowsAreDeletedWhenTheyExpire(t *testing.T) {
	h := newSingle(t)
	h.outdate("NULL")
	h.Exec(`INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at)
		SELECT 'shop', 'run', 0, now(), tasker.uuid_generate_v7(), tasker.uuid_generate_v7(), now() - interval '1 hour' FROM generate_series(1, 100)`)
	h.Exec(`UPDATE tasker.ready_steps SET expires_at = clock_timestamp() WHERE expires_at > now()`)
	first, second := h.expire(), h.expire()
	if first+second != 3 || h.outdated() != 0 {
		t.Errorf("two passes expired %d and %d steps and left %d outdated rows, want 3 steps and none", first, second, h.outdated())
	}
}

func TestOutdatedRowsDoNotReplaceHeldSteps(t *testing.T) {
	h := newSingle(t)
	h.Create("single")
	holds := h.holds()
	held, err := holds.Begin(h.Context(), holdOf("run"))
	h.Must(err)
	putAside := func() {
		h.Must(errOf(holds.ParkSteps(h.Context())))
	}
	putAside()
	h.Exec(`INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at)
		SELECT namespace, handler, priority, state_since - interval '1 hour', step_uuid, task_uuid, expires_at FROM tasker.workflow_steps`)
	putAside()
	if n := h.Count(`SELECT count(*) FROM tasker.held_steps JOIN tasker.workflow_steps USING (step_uuid, state_since)`); n != 1 || h.outdated() != 0 {
		t.Errorf("%d steps are held and %d outdated rows are left, want 1 and none", n, h.outdated())
	}
	h.Must(errOf(holds.Release(h.Context(), held.UUID, nil, hold.Change{Actor: "ann", Reason: "a test"})))
	h.Must(errOf(holds.AdvanceHolds(h.Context())))
	h.ClaimOne("one")
}
