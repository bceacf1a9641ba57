package engine_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

// keptWaiting counts the steps that wait past their limit.
func (h *harness) keptWaiting() int {
	h.Helper()
	return h.Count(`SELECT count(*) FROM tasker.ready_steps WHERE limit_passed_at IS NOT NULL AND expires_at > clock_timestamp()`)
}

func TestStepOfASaturatedQueueDoesNotExpire(t *testing.T) {
	t.Parallel()
	claimed := func(h *harness, ago time.Duration) {
		h.Exec(`INSERT INTO tasker.queues (namespace, handler, busy_at) VALUES ($1, 'run', clock_timestamp() - $2::interval)`, enginetest.Namespace, ago)
	}
	for name, tt := range map[string]struct {
		rule  tasker.ExpiryRule // of the server
		own   tasker.ExpiryRule // of the template
		given func(h *harness)
		want  string // the detail code of its investigation; empty: it waits on
	}{
		"claimed within the limit":        {given: func(h *harness) { claimed(h, 4*time.Minute) }},
		"claimed before the limit":        {given: func(h *harness) { claimed(h, 6*time.Minute) }, want: tasker.DispatchExpired},
		"never claimed":                   {given: func(*harness) {}, want: tasker.DispatchExpired},
		"nobody is alive":                 {given: func(h *harness) { claimed(h, time.Second); h.leave() }, want: tasker.NoWorkers},
		"the worker drains":               {given: func(h *harness) { claimed(h, time.Second); h.Must(h.Engine.DrainWorker(h.Context(), h.Worker)) }, want: tasker.NoWorkers},
		"the server says always":          {rule: tasker.ExpireAlways, given: func(h *harness) { claimed(h, time.Second) }, want: tasker.DispatchExpired},
		"its template says always":        {own: tasker.ExpireAlways, given: func(h *harness) { claimed(h, time.Second) }, want: tasker.DispatchExpired},
		"the server says always, not its": {rule: tasker.ExpireAlways, own: tasker.ExpireUnlessSaturated, given: func(h *harness) { claimed(h, time.Second) }},
		"another queue is busy": {
			given: func(h *harness) { claimed(h, time.Second); h.Exec(`UPDATE tasker.queues SET handler = 'other'`) }, want: tasker.DispatchExpired,
		},
		"no place is free": {given: func(h *harness) { h.ClaimOne("only"); h.Exec(`UPDATE tasker.workers SET max_concurrency = 1`) }},
		"a place is free": {
			given: func(h *harness) { h.ClaimOne("only"); h.Exec(`UPDATE tasker.workers SET max_concurrency = 2`) }, want: tasker.DispatchExpired,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := withWorker(enginetest.NewWith(t, postgres.Options{ExpiryRule: tt.rule}))
			h.RegisterTemplate(tasker.Template{
				Namespace: enginetest.Namespace, Name: "only", Version: "1.0.0", Lifecycle: tasker.Lifecycle{QueueTTL: tt.own}, Steps: []tasker.StepTemplate{enginetest.Step("only")},
			})
			first := h.Create("only")
			tt.given(h)
			task := first
			if strings.Contains(name, "free") {
				task = h.Create("only")
			}
			found := h.expire()
			if tt.want != "" {
				if e := h.Entry(task); found != 1 || e.Reason != tasker.WorkerUnavailable || e.DetailCode != tt.want {
					t.Errorf("%d steps failed, the investigation is %+v", found, e)
				}
				return
			}
			h.WantStep(task, "only", tasker.StepEnqueued, 1)
			n := h.keptWaiting()
			check(t, found == 0 && n == 1, "%d steps failed and %d are kept waiting, want 0 and 1", found, n)
		})
	}
}

// claimFirst claims one step of several.
func (h *harness) claimFirst() {
	h.Helper()
	list := h.ClaimAs(h.Worker, 1)
	require(h, len(list) == 1, "claimed %v", names(list))
}

func TestSaturatedQueueIsReportedUntilRelieved(t *testing.T) {
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	h.Create("only")
	task, late := h.Create("only"), h.Create("only")
	h.claimFirst()
	h.Must(h.Engine.StoreBusy(t.Context()))
	if n := h.expire(); n != 0 || h.keptWaiting() != 2 {
		t.Fatalf("%d steps failed, %d are kept waiting", n, h.keptWaiting())
	}
	queue := func() tasker.Queue {
		t.Helper()
		list, err := h.DB.Queues(t.Context(), "", 10)
		h.Must(err)
		require(t, len(list) == 1, "the queues are %+v", list)
		return list[0]
	}
	told := func(topic, summary string) int {
		return h.Count(`SELECT count(*) FROM tasker.messages WHERE topic = $1 AND data->>'summary' = $2 AND data->>'handler' = 'run' AND namespaces = '{shop}'`, topic, summary)
	}
	q := queue()
	if q.Saturated != 2 || q.Queued != 2 || q.SaturatedSince == nil || q.NextExpiresAt == nil || !q.NextExpiresAt.After(time.Now()) {
		t.Errorf("the queue is %+v", q)
	}
	backlogs, err := h.DB.Backlogs(t.Context())
	h.Must(err)
	check(t, len(backlogs) == 1 && backlogs[0].Saturated == 2, "the backlogs are %+v", backlogs)
	if n := told(tasker.QueueSaturatedTopic, "shop: the workers of handler run are busy, and steps wait for them past their limit"); n != 1 {
		t.Errorf("%d messages say that the queue is saturated", n)
	}
	h.Must(h.Engine.RelieveQueues(t.Context()))
	if again := queue(); again.SaturatedSince == nil || !again.SaturatedSince.Equal(*q.SaturatedSince) {
		t.Errorf("steps still wait, and the queue is %+v", again)
	}

	h.claimFirst()
	h.Exec(`UPDATE tasker.queues SET busy_at = clock_timestamp() - interval '301 seconds'`)
	h.Exec(`UPDATE tasker.ready_steps SET expires_at = clock_timestamp()`)
	n, err := h.Engine.ExpireSteps(t.Context())
	h.Must(err)
	require(t, n == 1 && h.State(task) != tasker.TaskError, "%d steps failed when nobody took any for a limit", n)
	e := h.Entry(late)
	var evidence struct {
		Dispatch struct {
			Saturated bool      `json:"queue_was_saturated"`
			Claimed   time.Time `json:"queue_last_claimed_at"`
			ExpiresAt time.Time `json:"expires_at"`
			TTL       int64     `json:"worker_queue_ttl_ms"`
		}
	}
	h.Must(json.Unmarshal(e.Metadata, &evidence))
	if d := evidence.Dispatch; e.DetailCode != tasker.DispatchExpired || !d.Saturated || time.Since(d.Claimed) < 5*time.Minute || d.ExpiresAt.After(time.Now()) || d.TTL < 300_000 {
		t.Errorf("the investigation is %s %s", e.DetailCode, e.Metadata)
	}
	if body := string(h.Step(late, "only").Error); !regexp.MustCompile(`no step of the queue was claimed for 3\d\d s`).MatchString(body) {
		t.Errorf("the step says %s", body)
	}

	h.Must(h.Engine.RelieveQueues(t.Context()))
	h.WantCount(1, `SELECT count(*) FROM tasker.queues WHERE saturated_since IS NOT NULL`)
	h.Exec(`UPDATE tasker.queues SET kept_at = kept_at - interval '1 minute'`)
	h.Must(h.Engine.RelieveQueues(t.Context()))
	h.WantCount(1, `SELECT count(*) FROM tasker.queues WHERE saturated_since IS NULL AND kept_at IS NULL`)
	if n := told(tasker.QueueRelievedTopic, "shop: no step waits for handler run past its limit any more"); n != 1 || h.count("messages") != 2 {
		t.Errorf("%d messages say that the queue is relieved, of %d", n, h.count("messages"))
	}
	h.Exec(`UPDATE tasker.queues SET busy_at = clock_timestamp() - interval '25 hours'`)
	h.Must(h.Engine.RelieveQueues(t.Context()))
	h.wantRows(0, "queues")
}

func TestWholeBacklogIsExtendedInOnePass(t *testing.T) {
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	requests := make([]tasker.NewTask, 1100)
	for i := range requests {
		requests[i] = tasker.NewTask{Namespace: enginetest.Namespace, Name: "only"}
	}
	for len(requests) > 0 {
		n := min(len(requests), 100)
		h.Must(errOf(h.Engine.CreateTasks(t.Context(), requests[:n])))
		requests = requests[n:]
	}
	h.claimFirst()
	h.Must(h.Engine.StoreBusy(t.Context()))
	if n := h.expire(); n != 0 || h.keptWaiting() != 1099 {
		t.Errorf("%d steps failed, %d are kept waiting, want 0 and 1099", n, h.keptWaiting())
	}
}

func TestDeadLetterOfASaturatedQueueIsPublishedAgain(t *testing.T) {
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	h.Create("only")
	task := h.Create("only")
	h.claimFirst()
	h.Must(h.Engine.StoreBusy(t.Context()))
	fixture.QueueTTLsExpired(h, h.Admin())
	h.Engine = newEngine(h.DB, engine.Options{Leases: engine.LeaseOptions{ReconnectGrace: -1}}) // which gives workers no time to come back
	ref := tasker.StepRef{TaskUUID: task, StepUUID: h.Step(task, "only").UUID}
	done, err := h.Engine.DeadLetters(t.Context(), []engine.DeadLetter{{StepRef: ref, Evidence: json.RawMessage(`{}`)}})
	h.Must(err)
	check(t, len(done.Again) == 1 && len(done.Expired) == 0, "the dead letter became %+v", done)
	h.WantStep(task, "only", tasker.StepEnqueued, 1)
}

func TestEveryClaimMarksItsQueueBusy(t *testing.T) {
	h := newHarness(t)
	for name, take := range map[string]func(h *harness, first tasker.Assignment, task tasker.ID) ([]tasker.Assignment, error){
		"with a report": func(h *harness, first tasker.Assignment, _ tasker.ID) ([]tasker.Assignment, error) {
			receipt, err := h.Engine.Report(h.Context(), h.Worker, []tasker.Outcome{success(first, `1`)}, 1)
			return receipt.Next, err
		},
		"by name": func(h *harness, _ tasker.Assignment, task tasker.ID) ([]tasker.Assignment, error) {
			return h.Engine.TakeSteps(h.Context(), h.Worker, []tasker.StepRef{{TaskUUID: task, StepUUID: h.Step(task, "only").UUID}})
		},
	} {
		h.each(name, func(h *harness) {
			h.Template("only", enginetest.Step("only"))
			h.Create("only")
			first := h.ClaimOne("only")
			h.Engine = newEngine(h.DB, engine.Options{Leases: engine.LeaseOptions{ReconnectGrace: -1}}) // which has stored nothing
			list, err := take(h, first, h.Create("only"))
			h.Must(err)
			h.Must(h.Engine.StoreBusy(h.Context()))
			if len(list) != 1 || h.count("queues") != 1 {
				h.Errorf("handed out %v, and %d queues are busy", names(list), h.count("queues"))
			}
			h.Succeed(list...)
			h.Exec(`DELETE FROM tasker.queues`)
		})
	}
}

func TestBusyQueueIsStoredAfterAFailure(t *testing.T) {
	h := newHarness(t)
	h.Template("only", enginetest.Step("only"))
	h.Create("only")
	h.Create("only")
	h.poison("INSERT ON tasker.queues", "true")
	h.claimFirst()
	if err := h.Engine.StoreBusy(t.Context()); err == nil {
		t.Error("the failure is not told")
	}
	h.heal()
	h.claimFirst()
	h.Eventually("it is stored", func() bool {
		h.Must(h.Engine.StoreBusy(h.Context()))
		return h.count("queues") == 1
	})
}
