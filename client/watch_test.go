package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"tasker.example/tasker"
)

func block(id, event string) string {
	return fmt.Sprintf("id: %s\nevent: dlq.entry.created\ndata: {\"id\":%q,\"time\":\"2026-01-31T12:00:00Z\"}\n\n", id, event)
}

// Wherever the connection breaks, watching goes on after the last whole event.
func TestWatchResumesAfterABreak(t *testing.T) {
	before := goleak.IgnoreCurrent()
	var tries atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, last, n := r.URL.Query().Get("from"), r.Header.Get("Last-Event-ID"), tries.Add(1)
		stream := func(text string) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, text)
			w.(http.Flusher).Flush()
		}
		for _, expected := range []struct {
			from, last string
			serve      func()
		}{
			{"beginning", "", func() { w.WriteHeader(http.StatusBadGateway) }},
			{"beginning", "", func() {
				stream("retry: 1\nid: 0\n\n: a comment\n\n" + block("1", "a") + strings.TrimSuffix(block("2", "b"), "\n"))
			}},
			{"", "1", func() { stream(block("2", "b") + ": still here\nid: 3\n\n"); panic(http.ErrAbortHandler) }},
			{"", "3", func() { w.WriteHeader(http.StatusServiceUnavailable) }},
			{"", "3", func() { stream(block("4", "c")) }},
			{"", "4", func() {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"error":{"code":"INVALID","message":"ahead"}}`)
			}},
		}[n-1 : n] {
			if from != expected.from || last != expected.last || r.URL.Query().Get("topic") != "x,y" {
				t.Errorf("try %d: %s after %q", n, r.URL, last)
			}
			expected.serve()
		}
	}))
	c := dial(t, s.URL)
	var got, ids, lost []string
	var end error
	for e, err := range c.WatchEvents(t.Context(), WatchOptions{
		Topics: []string{"x", "y"}, FromBeginning: true, Lost: func(err error) { lost = append(lost, string(tasker.CodeOf(err))) },
	}) {
		if err != nil {
			end = err
			break
		}
		got, ids = append(got, e.ID), append(ids, e.ResumeID)
	}
	if fmt.Sprint(got, ids) != "[a b c] [1 2 4]" {
		t.Errorf("events %v, ids %v", got, ids)
	}
	if tasker.CodeOf(end) != tasker.Invalid || fmt.Sprint(lost) != "[UNAVAILABLE UNAVAILABLE UNAVAILABLE UNAVAILABLE]" {
		t.Errorf("ended with %v after %v", end, lost)
	}
	s.Close()
	c.http.CloseIdleConnections()
	goleak.VerifyNone(t, before)
}

func TestWatchEndsWhenItsReaderDoes(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, block("1", "a"), block("2", "b"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	for e, err := range c.WatchEvents(t.Context(), WatchOptions{After: "0"}) {
		if err != nil || e.ID != "a" {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
}

func TestWatchOfSomethingElse(t *testing.T) {
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		code  tasker.Code
		words string
	}{
		"an older server":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, tasker.NotFound, "404"},
		"a page":           {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, tasker.Internal, "instead of an event stream"},
		"another protocol": {switchProtocols(t), tasker.Internal, "101 Switching Protocols"},
		"never there":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, tasker.Unavailable, "502"},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: x\n\n")
		}, tasker.Internal, "cannot decode an event"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, tt.serve, WithRetries(1))
			n := 0
			for _, err := range c.WatchEvents(t.Context(), WatchOptions{}) {
				if n++; tasker.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.words) {
					t.Errorf("%v, want %s with %q", err, tt.code, tt.words)
				}
			}
			if n != 1 {
				t.Errorf("%d errors", n)
			}
		})
	}
}

// FollowTask resumes after a connection loss, yields each transition once, and ends with the task.
func TestFollowTask(t *testing.T) {
	t.Parallel()
	task, step := tasker.NewID(), tasker.NewID()
	move := func(id int, ofStep bool) string {
		of := ""
		if ofStep {
			of = fmt.Sprintf(`,"step_uuid":%q`, step)
		}
		return fmt.Sprintf("id: 0.%d.0\nevent: transition\ndata: {\"kind\":\"transition\",\"transition\":{\"transition_id\":%d%s}}\n\n", id, id, of)
	}
	const state, end = "id: 0.0.0\nevent: state\ndata: {\"kind\":\"state\",\"status\":\"steps_in_process\"}\n\n",
		"id: 0.4.0\nevent: end\ndata: {\"kind\":\"end\",\"status\":\"complete\"}\n\n"
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String()+" "+r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		if len(asked) == 1 {
			fmt.Fprint(w, state+move(1, true)+move(2, true)+move(2, false))
			return
		}
		fmt.Fprint(w, state+move(2, true)+move(3, true)+end)
	})
	var got []string
	lost := 0
	for e, err := range c.FollowTask(t.Context(), task, FollowOptions{FromNow: true, Lost: func(error) { lost++ }}) {
		if err != nil {
			t.Fatal(err)
		}
		text := e.Kind + " " + e.ResumeID
		if m := e.Transition; m != nil {
			text = fmt.Sprint(m.ID, m.StepUUID != nil)
		}
		got = append(got, text)
	}
	if want := "state 0.0.0, 1 true, 2 true, 2 false, 3 true, end 0.4.0"; strings.Join(got, ", ") != want || lost != 1 {
		t.Errorf("got %v, lost the connection %d times", got, lost)
	}
	path := "/v1/tasks/" + task.String() + "/events"
	if want := []string{path + "?from=now ", path + " 0.2.0"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}
