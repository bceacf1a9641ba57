package api_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/feed"
)

// taskEvent reads up to the next event of a task; ok is false after the end of the stream.
func (f *following) taskEvent() (e apiv1.TaskEvent, ok bool) {
	f.Helper()
	for {
		fields, ok := f.block()
		if !ok {
			return e, false
		}
		if fields["data"] == "" {
			continue
		}
		dec := json.NewDecoder(strings.NewReader(fields["data"]))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&e); err != nil || fields["event"] != e.Kind {
			f.Fatalf("event %s: %v: %s", fields["event"], err, fields["data"])
		}
		return e, true
	}
}

// rest returns the events up to the end of the stream, as text, and the ids after them.
func (f *following) rest(names map[tasker.ID]string) (list, ids []string) {
	f.Helper()
	for {
		e, ok := f.taskEvent()
		if !ok {
			return list, ids
		}
		text := fmt.Sprint(e.Kind, " ", e.Status)
		if m := e.Transition; m != nil {
			name := "task"
			if m.StepUUID != nil {
				name = names[*m.StepUUID]
			}
			text = fmt.Sprint(name, " ", m.To)
		}
		list, ids = append(list, text), append(ids, f.id)
	}
}

// of returns the transitions of one step, or of the task.
func of(list []string, name string) (states []string) {
	for _, text := range list {
		if state, ok := strings.CutPrefix(text, name+" "); ok {
			states = append(states, state)
		}
	}
	return states
}

func (h *harness) stepNames(task tasker.ID) map[tasker.ID]string {
	names := map[tasker.ID]string{}
	for _, s := range h.Steps(task) {
		names[s.UUID] = s.Name
	}
	return names
}

func eventsPath(task tasker.ID) string { return "/v1/tasks/" + task.String() + "/events" }

func TestTaskStream(t *testing.T) {
	t.Parallel()
	h := newHarness(t, live)
	h.Template("settle", enginetest.Attempts(2, enginetest.Step("charge")), enginetest.Step("book", "charge"))
	task := h.Create("settle")
	f := h.follow(eventsPath(task))
	for name, value := range map[string]string{"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"} {
		if got := f.answer.Header.Get(name); got != value {
			t.Errorf("%s: %q", name, got)
		}
	}
	if e, _ := f.taskEvent(); e.Kind != "state" || e.Status != tasker.TaskStepsInProcess || e.TaskUUID != task {
		t.Errorf("the stream begins with %+v", e)
	}
	var got []apiv1.TaskEvent
	upTo := func(to tasker.StepState) {
		t.Helper()
		for {
			e, ok := f.taskEvent()
			if !ok {
				t.Fatalf("the stream ended: %v", f.lines.Err())
			}
			got = append(got, e)
			if e.Transition.To == string(to) {
				return
			}
		}
	}
	upTo(tasker.StepEnqueued)
	charge := h.ClaimOne("charge")
	upTo(tasker.StepInProgress) // while the attempt runs
	h.Accepted(enginetest.Failure(charge, true))
	upTo(tasker.StepError)
	if m := got[len(got)-1].Transition; m.Event != "fail" || *m.Attempt != 1 || !strings.Contains(string(m.Detail), "no luck") {
		t.Errorf("the failure is %+v", m)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() WHERE next_retry_at IS NOT NULL`)
	h.Tick()
	h.Release(h.ClaimOne("charge")) // faster than the stream
	h.Complete("charge", "book")
	names := h.stepNames(task)
	list, ids := f.rest(names)
	if last := list[len(list)-1]; last != "end complete" {
		t.Errorf("the stream ends with %s", last)
	}

	// A stream from the beginning has the same transitions, each once and in order for each step.
	want := "enqueued in_progress error enqueued in_progress enqueued in_progress complete"
	all, _ := h.follow(eventsPath(task)).rest(names)
	if got := strings.Join(of(all, "charge"), " "); got != want {
		t.Errorf("step charge: %s, want %s", got, want)
	}
	if got := strings.Join(of(all, "book"), " "); got != "enqueued in_progress complete" {
		t.Errorf("step book: %s", got)
	}
	if len(got)+len(list)+1 != len(all) {
		t.Errorf("the live stream has %d events, a later one %d: %v", len(got)+len(list)+1, len(all), all)
	}
	if states := of(all, "task"); states[len(states)-1] != "complete" {
		t.Errorf("the task: %v", states)
	}

	// A client that resumes misses nothing.
	for i, id := range ids {
		again, _ := h.follow(eventsPath(task)+"?from=now", "Last-Event-ID: "+id).rest(names)
		for _, text := range list[i+1:] {
			if !slices.Contains(again, text) {
				t.Errorf("after event %d of %v: %v", i, list, again)
			}
		}
	}
	if now, _ := h.follow(eventsPath(task) + "?from=now").rest(names); strings.Join(now, ", ") != "state complete, end complete" {
		t.Errorf("from now: %v", now)
	}
}

// A task that failed permanently does not continue, so its stream ends.
func TestTaskStreamEndsWithAPermanentFailure(t *testing.T) {
	t.Parallel()
	h := newHarness(t, live)
	h.Template("settle", enginetest.Once(enginetest.Step("charge")))
	task := h.Create("settle")
	h.Accepted(enginetest.Failure(h.ClaimOne("charge"), false))
	f := h.follow(eventsPath(task) + "?from=now")
	f.taskEvent()
	h.Abandon(task)
	if e, ok := f.taskEvent(); !ok || e.Kind != "end" || e.Status != tasker.TaskError || !e.PermanentlyFailed {
		t.Errorf("the end is %+v, %v", e, ok)
	}
}

func TestInvalidTaskStreamRequests(t *testing.T) {
	t.Parallel()
	h := newHarness(t, live, func(o *api.Options) { o.Feed.MaxReaders = 1 })
	h.Template("settle", enginetest.Step("charge"))
	task := h.Create("settle")
	path := eventsPath(task)
	for query, words := range map[string]string{
		"?from=yesterday":             "must be one of now, beginning",
		"?last_event_id=7":            "invalid event id",
		"?last_event_id=1.2.x":        "invalid event id",
		"?last_event_id=01.2.3":       "invalid event id",
		"?last_event_id=1.99999999.3": "precedes a restore",
		"?colour=red":                 "known parameters are from, last_event_id",
	} {
		h.wantError(http.StatusBadRequest, "INVALID", words, "GET", path+query, nil)
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", "", "GET", eventsPath(tasker.NewID()), nil)
	if got := h.send("HEAD", path, nil); got.status != http.StatusOK || got.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %+v", got)
	}
	f := h.follow(path)
	f.block()
	h.follow("/v1/dlq/events").block() // is counted separately
	got := h.send("GET", path, nil)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || !strings.Contains(got.text, "1 readers") {
		t.Errorf("a follower too many: %+v", got)
	}
	h.stop()
	for {
		if _, ok := f.block(); !ok {
			break
		}
	}
	if f.lines.Err() != nil {
		t.Errorf("the stream broke: %v", f.lines.Err())
	}
	h.wantError(http.StatusServiceUnavailable, "UNAVAILABLE", "shutting down", "GET", path, nil)
}

// A caller without the permission for the namespace does not learn that the task exists, and one
// without payloads:read sees no errors.
func TestTaskStreamsShowOnlyWhatTheCallerMaySee(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t, live)
	h.Template("settle", enginetest.Once(enginetest.Step("charge")))
	task := h.Create("settle")
	h.Accepted(enginetest.Failure(h.ClaimOne("charge"), false))
	h.Cancel(task)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "", "GET", eventsPath(task), nil, h.bearer("other", "viewer@attic"))
	h.wantError(http.StatusUnauthorized, "UNAUTHORIZED", "", "GET", eventsPath(task), nil)
	for grant, sees := range map[string]bool{"viewer": false, "operator": true} {
		f := h.follow(eventsPath(task), h.bearer(grant, grant+"@shop"))
		shown := ""
		for {
			fields, ok := f.block()
			if !ok {
				break
			}
			shown += fields["data"]
		}
		if strings.Contains(shown, "no luck") != sees || !strings.Contains(shown, `"to_state":"error"`) {
			t.Errorf("a %s sees %s", grant, shown)
		}
	}
}

// A client that does not read is disconnected and delays no other.
func TestStalledTaskStreamIsDisconnected(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *api.Options) {
		o.Feed = api.FeedOptions{
			Options:   feed.Options{Every: 10 * time.Millisecond, Page: 50, MaxReaders: 2, MaxShare: 2, StatementTimeout: 4 * time.Second},
			WriteTime: time.Second,
		}
	})
	h.Template("settle", enginetest.External("charge"))
	task := h.Create("settle")
	step := h.Step(task, "charge").UUID
	address := strings.TrimPrefix(h.server.URL, "http://")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	h.Must(err)
	defer conn.Close()
	h.Must(conn.(*net.TCPConn).SetReadBuffer(4 << 10))
	const moves = 1500 // an even number of moves leaves the step where it was
	h.Exec(`INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, detail, created_at)
		SELECT $1, $2, CASE WHEN n % 2 = 1 THEN 'pending' ELSE 'error' END, CASE WHEN n % 2 = 1 THEN 'error' ELSE 'pending' END,
			CASE WHEN n % 2 = 1 THEN 'time_out' ELSE 'reset_for_retry' END, 0,
			CASE WHEN n % 2 = 1 THEN jsonb_build_object('message', repeat(md5(n::text), 300)) END, now()
		FROM generate_series(1, $3::int) n`, task, step, moves)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", eventsPath(task), address)
	quick := h.follow(eventsPath(task))
	seen := map[int64]bool{}
	for len(seen) < moves {
		e, ok := quick.taskEvent()
		if !ok {
			t.Fatalf("the stream ended: %v", quick.lines.Err())
		}
		if m := e.Transition; m != nil && m.StepUUID != nil && seen[m.ID] {
			t.Fatalf("transition %d comes twice", m.ID)
		} else if m != nil && m.StepUUID != nil {
			seen[m.ID] = true
		}
	}
	h.Eventually("the other is disconnected", func() bool { return h.send("HEAD", eventsPath(task), nil).status == http.StatusOK })
}
