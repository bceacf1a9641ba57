package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// serve starts a server of one handler and returns a client of it.
func serve(t *testing.T, h http.HandlerFunc, o ...Option) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return dial(t, s.URL, o...)
}

func dial(t *testing.T, url string, o ...Option) *Client {
	t.Helper()
	c, err := New(url, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func TestURLsThatAreRefused(t *testing.T) {
	for url, want := range map[string]string{
		"":                      "must include a scheme",
		"127.0.0.1:8080":        "such as http://127.0.0.1:8080",
		"localhost":             "must include a scheme",
		"ftp://x":               "must begin with http:// or https://",
		"http://":               "must include a host",
		"http://x/?a=b":         "must not contain ? or #",
		"http://x\x7f":          "invalid server URL",
		"http://h:port/":        "invalid server URL",
		"https://h/under/a#top": "must not contain ? or #",
	} {
		_, err := New(url)
		if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%q): %v, want Invalid with %q", url, err, want)
		}
	}
}

func TestBaseMayHaveAPath(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.URL.EscapedPath(); fmt.Fprint(w, "{}") })
	c.base = c.base.JoinPath("under", "a")
	if _, err := c.Template(t.Context(), "a/b", "c d", "1.0"); err != nil {
		t.Fatal(err)
	}
	if want := "/under/a/v1/templates/a%2Fb/c%20d/1.0"; got != want {
		t.Errorf("path %s, want %s", got, want)
	}
	if _, err := c.Template(t.Context(), "..", "n", "1"); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("a path that climbs: %v, want Invalid", err)
	}
}

func TestErrorsKeepCodeMessageAndDetails(t *testing.T) {
	for code, status := range map[tasker.Code]int{
		tasker.Invalid: 400, tasker.Unauthorized: 401, tasker.Forbidden: 403, tasker.NotFound: 404, tasker.Conflict: 409,
		tasker.StaleLease: 409, tasker.TooLarge: 413, tasker.Unsupported: 405, tasker.Internal: 500, tasker.Unavailable: 503,
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error": {"code": %q, "message": "that is why", "details": {"id": 7}}}`, code)
		}, WithRetries(0))
		_, err := c.Task(t.Context(), tasker.NewID())
		want := &tasker.Error{Code: code, Message: "that is why", Details: map[string]any{"id": 7.0}}
		var got *tasker.Error
		if !errors.As(err, &got) {
			t.Errorf("%s: %v is no tasker.Error", code, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", code, diff)
		}
	}
}

func TestAnswersOfOtherServers(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		status     int
		header     string
		code       tasker.Code
		want       string
	}{
		{"a proxy's page", "<h1>Bad\x1b[31m\n gateway</h1>", 502, "", tasker.Unavailable, "responded with 502 Bad Gateway: <h1>Bad gateway</h1>"},
		{"nothing", "", 404, "", tasker.NotFound, "responded with 404 Not Found; is it a Tasker server?"},
		{"a teapot", "short and stout", 418, "", tasker.Internal, "short and stout"},
		{"a redirect", "", 301, "https://elsewhere/", tasker.Internal, "points to https://elsewhere/; use that address"},
		{"a page of success", "<html>", 200, "", tasker.Internal, "is it a Tasker server of the same version?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.header != "" {
					w.Header().Set("Location", tt.header)
				}
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			}, WithRetries(0))
			_, err := c.Task(t.Context(), tasker.NewID())
			if tasker.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s %v, want %s with %q", tasker.CodeOf(err), err, tt.code, tt.want)
			}
		})
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	_, err = dial(t, url, WithRetries(1)).Stats(t.Context())
	want := "cannot reach " + url + ": connect: connection refused; is the server running? start one with: tasker dev"
	if tasker.CodeOf(err) != tasker.Unavailable || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A request is sent again exactly when nothing can be done twice by it.
func TestWhatIsSentAgain(t *testing.T) {
	id := tasker.NewID()
	for _, tt := range []struct {
		name  string
		send  func(context.Context, *Client) error
		tries int32
	}{
		{"a question", func(ctx context.Context, c *Client) error { _, err := c.Task(ctx, id); return err }, 3},
		{"a cancellation", func(ctx context.Context, c *Client) error { _, err := c.CancelTask(ctx, id, "r", "a"); return err }, 3},
		{"a heartbeat", func(ctx context.Context, c *Client) error { return errorOf(c.Heartbeat(ctx, id, apiv1.Leases{})) }, 3},
		{"results", func(ctx context.Context, c *Client) error { return errorOf(c.Report(ctx, id, apiv1.ReportResults{})) }, 3},
		{"results with a claim", func(ctx context.Context, c *Client) error {
			return errorOf(c.Report(ctx, id, apiv1.ReportResults{Claim: &apiv1.ClaimSteps{Max: 1}}))
		}, 1},
		{"a claim", func(ctx context.Context, c *Client) error { return errorOf(c.Claim(ctx, id, apiv1.ClaimSteps{Max: 1})) }, 1},
		{"a new task", func(ctx context.Context, c *Client) error { return errorOf(c.CreateTask(ctx, apiv1.CreateTask{})) }, 1},
		{"a new task with a key", func(ctx context.Context, c *Client) error {
			return errorOf(c.CreateTask(ctx, apiv1.CreateTask{IdempotencyKey: "k"}))
		}, 3},
		{"new tasks, one without a key", func(ctx context.Context, c *Client) error {
			return errorOf(c.CreateTasks(ctx, []apiv1.CreateTask{{IdempotencyKey: "k"}, {}}))
		}, 1},
		{"a step action", func(ctx context.Context, c *Client) error {
			return errorOf(c.ActOnStep(ctx, id, id, apiv1.StepAction{}))
		}, 3}, // with a key by which the server applies it once
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int32
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tries.Add(1) < 3 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				fmt.Fprint(w, "{}")
			})
			err := tt.send(t.Context(), c)
			if got := tries.Load(); got != tt.tries || (err == nil) != (tt.tries == 3) {
				t.Errorf("%d tries with %v, want %d", got, err, tt.tries)
			}
		})
	}
}

// Wait asks again until the task is settled, at a limited rate, and tolerates an outage.
func TestWait(t *testing.T) {
	t.Parallel()
	id := tasker.NewID()
	answers := []any{
		tasker.Task{State: "pending"}, http.StatusServiceUnavailable, tasker.Task{State: "error"}, tasker.Task{State: "error", DeadLetter: tasker.DeadLetter{DeadLettered: true}},
	}
	var queries []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.Path+"?"+r.URL.RawQuery)
		answer := answers[len(queries)-1]
		if status, ok := answer.(int); ok {
			w.WriteHeader(status)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}, WithRetries(0))
	begun := time.Now()
	got, err := c.Wait(t.Context(), id)
	if err != nil || !got.DeadLettered || len(queries) != len(answers) || queries[0] != "/v1/tasks/"+id.String()+"?wait_ms=30000" {
		t.Errorf("after %v: %+v, %v", queries, got, err)
	}
	if took := time.Since(begun); took < 3*awaitPause {
		t.Errorf("%d requests in %v", len(queries), took)
	}
	if _, err := dial(t, "http://127.0.0.1:1", WithRetries(0)).Wait(t.Context(), id); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("a server that never answered: %v", err)
	}
}

func TestConflictIsNotSentAgain(t *testing.T) {
	var tries atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { tries.Add(1); w.WriteHeader(http.StatusConflict) })
	if _, err := c.Task(t.Context(), tasker.NewID()); tasker.CodeOf(err) != tasker.Conflict || tries.Load() != 1 {
		t.Errorf("%d tries, %v", tries.Load(), err)
	}
}

func TestCallsEnd(t *testing.T) {
	release := make(chan struct{})
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}, WithTimeout(20*time.Millisecond))
	t.Cleanup(func() { close(release) })
	if _, err := c.Workers(t.Context(), apiv1.Page{}); tasker.CodeOf(err) != tasker.Unavailable || !strings.Contains(err.Error(), "within 20ms") {
		t.Errorf("own time limit: %v, want Unavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Workers(ctx, apiv1.Page{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled by the caller: %v, want context.Canceled", err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "%q", strings.Repeat("x", 1000)) })
	c.maxResponseBytes = 100
	if _, err := c.Stats(t.Context()); tasker.CodeOf(err) != tasker.TooLarge {
		t.Errorf("%v, want TooLarge", err)
	}
}

// unanswered are the requests whose answer has no body.
var unanswered = regexp.MustCompile(`^DELETE /v1/(limits|workers/[^/]+|namespaces/[^/]+)$|/checkpoint$`)

// Every method sends the method, path, query and body that the API documents.
func TestWire(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("Content-Type") + " " + string(body))
		if unanswered.MatchString(r.Method + " " + r.URL.Path) {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("ETag", `"`+apiv1.DocumentTag([]byte("null"))+`"`)
		fmt.Fprint(w, "null") // fits any answer
	})
	id := func(n byte) tasker.ID { return tasker.ID{15: n} }
	const task, step = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
	yes, notes := true, "n"
	ctx := t.Context()
	sent := func(want string, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("sent %s\nwant %s: %v", got, want, err)
		}
	}
	sent(`POST /v1/templates/n/t/1.0.0/retire application/json {"reason":"r"}`,
		errorOf(c.RetireTemplate(ctx, tasker.TemplateVersion{Namespace: "n", Name: "t", Version: "1.0.0"}, apiv1.RetireTemplate{Reason: "r"})))
	sent(`POST /v1/templates/n/t/1.0.0/unretire application/json {"reason":"r"}`,
		errorOf(c.UnretireTemplate(ctx, tasker.TemplateVersion{Namespace: "n", Name: "t", Version: "1.0.0"}, apiv1.RetireTemplate{Reason: "r"})))
	seconds := int64(60)
	sent("POST /v1/tasks/"+task+`/workflow_steps/approve/answer_links application/json {"expires_in_seconds":60}`,
		errorOf(c.CreateAnswerLink(ctx, id(1), "approve", apiv1.CreateAnswerLink{ExpiresInSeconds: &seconds})))
	sent("GET /v1/tasks/"+task+"/workflow_steps/approve/answer_links",
		errorOf(c.AnswerLinks(ctx, id(1), "approve")))
	sent("DELETE /v1/tasks/"+task+"/workflow_steps/approve/answer_links/"+step,
		errorOf(c.RevokeAnswerLink(ctx, id(1), "approve", id(2))))
	sent(`POST /v1/schedules application/json {"namespace":"n","name":"nightly","template":"t","every_seconds":60}`,
		errorOf(c.CreateSchedule(ctx, apiv1.CreateSchedule{ScheduleSpec: apiv1.ScheduleSpec{Namespace: "n", Name: "nightly", Template: "t", EverySeconds: 60}})))
	sent("GET /v1/schedules?after="+task+"&limit=2&name=nightly&namespace=n&paused=true",
		errorOf(c.Schedules(ctx, tasker.ScheduleFilter{Namespace: "n", Name: "nightly", Paused: true, After: new(id(1)), Limit: 2})))
	sent("GET /v1/schedules/"+task+"?next=3", errorOf(c.Schedule(ctx, id(1), 3)))
	before := time.Date(2026, 1, 31, 7, 30, 0, 0, time.UTC)
	sent("GET /v1/schedules/"+task+"/firings?before=2026-01-31T07%3A30%3A00Z&before_kind=clock&limit=5&outcome=missed",
		errorOf(c.Firings(ctx, id(1), tasker.FiringFilter{Outcome: "missed", Before: &before, Kind: "clock", Limit: 5})))
	sent("PUT /v1/schedules/"+task+` application/json {"namespace":"n","name":"nightly","template":"t","cron":"@daily","revision":2}`,
		errorOf(c.UpdateSchedule(ctx, id(1), apiv1.UpdateSchedule{ScheduleSpec: apiv1.ScheduleSpec{Namespace: "n", Name: "nightly", Template: "t", Cron: "@daily"}, Revision: 2})))
	sent("POST /v1/schedules/"+task+`/pause application/json {"reason":"r","by":"me"}`,
		errorOf(c.PauseSchedule(ctx, id(1), apiv1.PauseSchedule{Reason: "r", By: "me"})))
	sent("POST /v1/schedules/"+task+`/resume application/json {"reason":"r"}`,
		errorOf(c.ResumeSchedule(ctx, id(1), apiv1.ChangeSchedule{Reason: "r"})))
	sent("POST /v1/schedules/"+task+`/trigger application/json {"by":"me"}`,
		errorOf(c.TriggerSchedule(ctx, id(1), apiv1.ChangeSchedule{By: "me"})))
	from := time.Date(2026, 1, 31, 7, 30, 0, 0, time.UTC)
	sent("POST /v1/schedules/"+task+`/backfill application/json {"from":"2026-01-31T07:30:00Z","to":"2026-01-31T08:30:00Z","dry_run":true}`,
		errorOf(c.BackfillSchedule(ctx, id(1), apiv1.BackfillSchedule{From: from, To: from.Add(time.Hour), DryRun: true})))
	sent("DELETE /v1/schedules/"+task+"?by=me&reason=r",
		errorOf(c.DeleteSchedule(ctx, id(1), apiv1.ChangeSchedule{Reason: "r", By: "me"})))
	sent("GET /v1/inbox?assignee=ann&mine=true",
		errorOf(c.Inbox(ctx, apiv1.InboxQuery{Mine: true, Assignees: []string{"ann"}})))
	sent("PUT /v1/tasks/"+task+`/workflow_steps/approve/assignee application/json {"assignee":"ann"}`,
		errorOf(c.AssignStep(ctx, id(1), "approve", apiv1.AssignStep{Assignee: "ann"})))
	sent("POST /v1/templates application/yaml name: x", errorOf(c.RegisterTemplate(ctx, []byte("name: x"), YAML)))
	sent("GET /v1/templates?limit=2&namespace=a", errorOf(c.Templates(ctx, "a", apiv1.Page{Limit: 2})))
	sent("GET /v1/templates/a/b/1.0.0", errorOf(c.Template(ctx, "a", "b", "1.0.0")))
	sent("GET /v1/tasks/"+task, errorOf(c.Task(ctx, id(1))))
	sent("GET /v1/tasks", errorOf(c.Tasks(ctx, tasker.TaskFilter{})))
	sent("GET /v1/tasks/"+task+"/tree", errorOf(c.TaskTree(ctx, id(1))))
	sent("GET /v1/tasks/"+task+"/workflow_steps", errorOf(c.Steps(ctx, id(1))))
	sent("GET /v1/tasks/"+task+"/transitions?offset=3", errorOf(c.TaskTransitions(ctx, id(1), apiv1.Page{Offset: 3})))
	sent("GET /v1/tasks/"+task+"/workflow_steps/refund%5B17%5D", errorOf(c.StepNamed(ctx, id(1), "refund[17]")))
	sent("PATCH /v1/tasks/"+task+`/workflow_steps/refund%5B17%5D application/json {"action_type":"resolve_manually","reason":"r","resolved_by":"me"}`,
		errorOf(c.ActOnStepNamed(ctx, id(1), "refund[17]", apiv1.StepAction{ActionType: "resolve_manually", Reason: "r", ResolvedBy: "me"})))
	sent("GET /v1/tasks/"+task+"/workflow_steps/refund/items?from=7&limit=2&state=error",
		errorOf(c.StepItems(ctx, id(1), "refund", tasker.MapItemFilter{State: tasker.StepError, From: 7, Limit: 2})))
	sent("GET /v1/tasks/"+task+"/context", errorOf(c.TaskContext(ctx, id(1))))
	sent("GET /v1/tasks/"+task+"/results/refund/items?from=7", errorOf(c.ItemResults(ctx, id(1), "refund", 7)))
	sent("GET /v1/tasks/"+task+"/workflow_steps/"+step+"/transitions",
		errorOf(c.StepTransitions(ctx, id(1), id(2), apiv1.Page{})))
	sent("GET /v1/tasks?dead_lettered=true&limit=1&name=b&namespace=a&offset=2&phase=compensating&status=error",
		errorOf(c.Tasks(ctx, tasker.TaskFilter{State: tasker.TaskError, Phase: tasker.Compensating, Namespace: "a", Name: "b", DeadLettered: &yes, Limit: 1, Offset: 2})))
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	_, err := c.Tasks(ctx, tasker.TaskFilter{
		Tags: []string{"a", "b"}, CorrelationID: "c", IdempotencyKey: "k", Initiator: "i", SourceSystem: "s", Attributes: []tasker.AttributeFilter{{Name: "risk", Value: ">0.5"}},
		CreatedAfter: noon, CreatedBefore: noon.Add(500 * time.Millisecond),
	})
	sent("GET /v1/tasks?attribute=risk%3A%3E0.5&correlation_id=c&created_after=2026-01-31T12%3A00%3A00Z&created_before=2026-01-31T12%3A00%3A00.5Z&idempotency_key=k&initiator=i&source_system=s&tag=a&tag=b",
		err)
	sent("POST /v1/workers/"+task+`/checkpoint application/json {"step_uuid":"`+step+`","lease_token":"l","checkpoint":{"row":1}}`,
		c.SaveCheckpoint(ctx, id(1), apiv1.SaveCheckpoint{Lease: apiv1.Lease{StepUUID: step, LeaseToken: "l"}, Checkpoint: json.RawMessage(`{"row":1}`)}))
	sent("GET /v1/tasks?parent="+task, errorOf(c.Tasks(ctx, tasker.TaskFilter{Parent: id(1)})))
	sent("GET /v1/tasks?before="+task+"&limit=3", errorOf(c.Tasks(ctx, tasker.TaskFilter{Before: id(1), Limit: 3})))
	sent("GET /v1/limits?after=server&keys=true&kind=name&limit=5&name=customer&namespace=n",
		errorOf(c.Limits(ctx, tasker.LimitFilter{Namespace: "n", Kind: "name", Name: "customer", After: "server", Keys: true, Limit: 5})))
	sent(`PUT /v1/limits application/json {"kind":"server","per_second":2.5,"burst":3,"reason":"r"}`,
		errorOf(c.SetLimit(ctx, apiv1.SetLimit{Kind: "server", PerSecond: 2.5, Burst: 3, Reason: "r"})))
	sent("DELETE /v1/limits?by=me&kind=handler&name=a%2Fb&namespace=n&reason=r",
		c.DeleteLimit(ctx, tasker.LimitRef{Kind: tasker.HandlerLimit, Namespace: "n", Name: "a/b"}, "r", "me"))
	sent("GET /v1/attributes?limit=5&namespace=a", errorOf(c.Attributes(ctx, "a", apiv1.Page{Limit: 5})))
	sent("DELETE /v1/tasks/"+task+"?cancelled_by=me&reason=why+not",
		errorOf(c.CancelTask(ctx, id(1), "why not", "me")))
	sent("DELETE /v1/tasks/"+task+"?cancelled_by=me&compensate=true&reason=why+not",
		errorOf(c.CompensateTask(ctx, id(1), "why not", "me")))
	sent("POST /v1/tasks/bulk application/json []", errorOf(c.CreateTasks(ctx, []apiv1.CreateTask{})))
	sent("PATCH /v1/tasks/"+task+"/workflow_steps/"+step+` application/json {"action_type":"reset_for_retry","reason":"r","reset_by":"me"}`,
		errorOf(c.ActOnStep(ctx, id(1), id(2), apiv1.StepAction{ActionType: "reset_for_retry", Reason: "r", ResetBy: "me"})))
	sent("POST /v1/tasks/"+task+"/workflow_steps/"+step+`/completion application/json {"success":true,"result":{"a":1}}`,
		errorOf(c.CompleteStep(ctx, id(1), id(2), apiv1.Completion{Success: true, Result: json.RawMessage(`{"a":1}`)})))
	sent("POST /v1/tasks/"+task+`/workflow_steps/approve%20it/completion application/json {"success":true}`,
		errorOf(c.CompleteStepNamed(ctx, id(1), "approve it", apiv1.Completion{Success: true})))
	sent("GET /v1/dlq?dlq_reason=manual_dlq&limit=5&resolution_status=pending",
		errorOf(c.Entries(ctx, tasker.EntryFilter{Status: tasker.EntryPending, Reason: tasker.ManualDLQ, Limit: 5})))
	sent("GET /v1/dlq/entry/"+task, errorOf(c.Entry(ctx, id(1))))
	sent("GET /v1/dlq/task/"+task, errorOf(c.EntryOfTask(ctx, id(1))))
	sent("PATCH /v1/dlq/entry/"+task+` application/json {"resolution_notes":"n"}`,
		errorOf(c.UpdateEntry(ctx, id(1), apiv1.UpdateEntry{ResolutionNotes: &notes})))
	sent("POST /v1/dlq/task/"+task+` application/json {"reason":"r","created_by":"me"}`,
		errorOf(c.OpenEntry(ctx, id(1), apiv1.OpenEntry{Reason: "r", CreatedBy: "me"})))
	sent("GET /v1/dlq/stats", errorOf(c.Stats(ctx)))
	_, err = c.InvestigationQueue(ctx, tasker.InvestigationFilter{
		Reason: tasker.ManualDLQ, Namespace: "shop", Name: "order", State: tasker.TaskError, Recovered: new(false), Limit: 2, Offset: 4,
	})
	sent("GET /v1/dlq/investigation-queue?current_state=error&dlq_reason=manual_dlq&limit=2&name=order&namespace=shop&offset=4&recovered=false",
		err)
	_, err = c.InvestigationQueue(ctx, tasker.InvestigationFilter{
		Tags: []string{"a", "b"}, CorrelationID: "c", Attributes: []tasker.AttributeFilter{{Name: "risk", Value: ">0.5"}}, Limit: 9,
	})
	sent("GET /v1/dlq/investigation-queue?attribute=risk%3A%3E0.5&correlation_id=c&limit=9&tag=a&tag=b", err)
	sent("GET /v1/dlq/investigation-queue?limit=9",
		errorOf(c.InvestigationQueue(ctx, tasker.InvestigationFilter{Limit: 9})))
	sent("GET /v1/cases?case="+task+"&min_age_minutes=90&text=odd+one&unowned=true",
		errorOf(c.Cases(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Case: new(id(1)), Age: 90 * time.Minute, Text: "odd one"}, Unowned: true})))
	sent("GET /v1/cases?case_state=new&failed_again=true&owner=ann",
		errorOf(c.Cases(ctx, tasker.CaseFilter{CaseState: tasker.CaseNew, Owner: "ann", FailedAgain: true})))
	sent("GET /v1/cases/"+task, errorOf(c.Case(ctx, id(1))))
	sent("GET /v1/cases/"+task+"/why", errorOf(c.WhyCase(ctx, id(1))))
	sent("GET /v1/cases/"+task+"/changes", errorOf(c.CaseChanges(ctx, id(1))))
	sent("GET /v1/explain/"+task, errorOf(c.Explain(ctx, id(1))))
	sent("GET /v1/explain/queue/orders/a%2Fb", errorOf(c.ExplainQueue(ctx, "orders", "a/b")))
	sent("PATCH /v1/cases/"+task+` application/json {"notes":"n","actor":"ann"}`,
		errorOf(c.UpdateCase(ctx, id(1), apiv1.UpdateCase{Notes: new("n"), Actor: "ann"})))
	sent("POST /v1/cases/"+task+`/merge application/json {"into":"x","reason":"r"}`,
		errorOf(c.MergeCase(ctx, id(1), apiv1.MergeCase{Into: "x", Reason: "r"})))
	sent("POST /v1/cases/"+task+`/unmerge application/json {"reason":"r"}`,
		errorOf(c.UnmergeCase(ctx, id(1), apiv1.UnmergeCase{Reason: "r"})))
	sent("POST /v1/cases/"+task+`/split application/json {"literal":"l","reason":"r"}`,
		errorOf(c.SplitCase(ctx, id(1), apiv1.SplitCase{Literal: "l", Reason: "r"})))
	sent("GET /v1/reports?from=2026-01-31T00%3A00%3A00Z&namespace=n",
		errorOf(c.IncidentReport(ctx, tasker.IncidentReportQuery{Namespace: "n", From: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)})))
	one := id(1)
	sent("GET /v1/cases/"+task+"/report?format=md",
		errorOf(c.IncidentReportMarkdown(ctx, tasker.IncidentReportQuery{Case: &one})))
	sent("GET /v1/incidents/"+task+"/report",
		errorOf(c.IncidentReport(ctx, tasker.IncidentReportQuery{Incident: &one})))
	sent("GET /v1/dlq/entry/"+task+"/evidence", errorOf(c.EvidenceFile(ctx, id(1))))
	sent("GET /v1/dlq/entry/"+task+"/related?limit=3", errorOf(c.RelatedEntries(ctx, id(1), 3)))
	sent("GET /v1/dlq/times?minutes=90", errorOf(c.EntryTimes(ctx, 90*time.Minute)))
	sent("GET /v1/dlq/counts?interval_minutes=5&intervals=12", errorOf(c.EntryCounts(ctx, 5*time.Minute, 12)))
	sent("GET /v1/dlq/counts", errorOf(c.EntryCounts(ctx, 0, 0)))
	sent("GET /v1/dlq/staleness", errorOf(c.Staleness(ctx, tasker.StalenessFilter{})))
	sent("GET /v1/workers", errorOf(c.Workers(ctx, apiv1.Page{})))
	sent("POST /v1/workers/"+task+"/drain", errorOf(c.DrainWorker(ctx, id(1))))
	sent("GET /v1/namespaces", errorOf(c.Namespaces(ctx)))
	sent(`PUT /v1/namespaces/a%2Fb application/json {"weight":2}`,
		errorOf(c.SetNamespace(ctx, "a/b", apiv1.SetNamespace{Weight: 2})))
	sent("DELETE /v1/namespaces/n", c.DeleteNamespace(ctx, "n"))
	sent("GET /v1/queues?limit=9&namespace=n", errorOf(c.Queues(ctx, "n", 9)))
	sent("DELETE /v1/workers/"+task, c.LeaveWorker(ctx, id(1)))
	sent("GET /health/ready", errorOf(c.Ready(ctx)))
	sent("GET /health", errorOf(c.Health(ctx)))
}

// errorOf drops the result of a call.
func errorOf[T any](_ T, err error) error { return err }
