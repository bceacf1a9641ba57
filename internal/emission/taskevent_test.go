package emission_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
)

// subscribed returns a harness whose server has subscriptions to task events, and a template whose
// two steps have two attempts.
func subscribed(t *testing.T, list ...tasker.TaskSubscription) *harness {
	t.Helper()
	h := &harness{
		Harness: enginetest.NewWith(t, postgres.Options{TaskEvents: list}),
		counts:  &counts{failed: map[string]int{}, emitted: map[string]int{}, aside: map[string]int{}},
	}
	h.Template("settle", enginetest.Attempts(2, enginetest.Step("charge")), enginetest.Attempts(2, enginetest.Step("book", "charge")))
	return h
}

func all() tasker.TaskSubscription {
	return tasker.TaskSubscription{Topics: tasker.TaskTopics(), MaxBytes: 16 << 10}
}

// A taskEvent is an event of a task in the outbox.
type taskEvent struct {
	Topic string
	Data  struct {
		Namespace, TaskName, TaskState, Outcome string
		Permanent                               bool
		DLQEntryUUID                            string `json:"dlq_entry_uuid"`
		Change                                  struct{ Event, FromState, Actor, Reason string }
		Step                                    struct{ Name, ErrorMessage string }
		Context                                 json.RawMessage
		Results                                 map[string]json.RawMessage
	}
}

func (h *harness) taskEvents(task tasker.ID) (list []taskEvent) {
	h.Helper()
	rows, err := h.Admin().Query(h.Context(), `SELECT topic, data FROM tasker.outbox WHERE task_uuid = $1 AND dlq_entry_uuid IS NULL ORDER BY position`, task)
	h.Must(err)
	var topic string
	var doc []byte
	_, err = pgx.ForEachRow(rows, []any{&topic, &doc}, func() error {
		e := taskEvent{Topic: topic}
		list = append(list, e)
		return json.Unmarshal([]byte(strings.NewReplacer("task_name", "TaskName", "task_state", "TaskState", "from_state", "FromState", "error_message", "ErrorMessage").
			Replace(string(doc))), &list[len(list)-1].Data)
	})
	h.Must(err)
	return list
}

func (h *harness) wantTopics(task tasker.ID, want ...string) (list []taskEvent) {
	h.Helper()
	list = h.taskEvents(task)
	var got []string
	for _, e := range list {
		got = append(got, e.Topic)
	}
	if !slices.Equal(got, want) {
		h.Errorf("the task has the events %v, want %v", got, want)
	}
	if len(got) != len(want) {
		h.FailNow()
	}
	return list
}

// fail fails the attempts of a step that are left.
func (h *harness) fail(task tasker.ID, attempts int) {
	h.Helper()
	for range attempts {
		h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() WHERE task_uuid = $1 AND next_retry_at IS NOT NULL`, task)
		h.Tick()
		h.Accepted(enginetest.Failure(h.Claim()[0], true))
	}
}

func TestTaskEventsAreOnePerFact(t *testing.T) {
	t.Parallel()
	h := subscribed(t, all())

	done := h.Create("settle")
	h.Complete("charge", "book")
	e := h.wantTopics(done, tasker.TaskCompletedTopic)[0].Data
	if e.Namespace != h.Space || e.TaskName != "settle" || e.TaskState != "complete" || e.Change.FromState != "steps_in_process" || e.Context != nil || e.Results != nil {
		t.Errorf("the event of a completed task is %+v", e)
	}

	failing := h.Create("settle")
	h.fail(failing, 1)
	h.wantTopics(failing) // the step is retried
	h.fail(failing, 1)
	list := h.wantTopics(failing, tasker.StepFailedTopic, tasker.TaskFailedTopic)
	if s := list[0].Data.Step; s.Name != "charge" || s.ErrorMessage != "no luck" {
		t.Errorf("the failed step is %+v", s)
	}
	if list[1].Data.Permanent || list[1].Data.DLQEntryUUID != "" {
		t.Errorf("a task in error failed permanently: %+v", list[1].Data)
	}

	h.Operate(failing, "charge", enginetest.Operation(tasker.ResetForRetry))
	h.fail(failing, 2)
	entry := h.Entry(failing)
	h.Abandon(failing)
	list = h.wantTopics(failing, tasker.StepFailedTopic, tasker.TaskFailedTopic, tasker.StepFailedTopic, tasker.TaskFailedTopic, tasker.TaskFailedTopic)
	if d := list[4].Data; !d.Permanent || d.DLQEntryUUID != entry.UUID.String() || d.Change.Actor != "ann" || d.Change.Reason != "no way" {
		t.Errorf("the event of a permanent failure is %+v", d)
	}

	cancelled := h.Create("settle")
	h.Cancel(cancelled)
	if d := h.wantTopics(cancelled, tasker.TaskCancelledTopic)[0].Data; d.Change.Actor != "ann" || d.Change.Reason != "not wanted" {
		t.Errorf("the event of a cancelled task is %+v", d)
	}
}

func TestTaskEventsOfSubscriptionsOnly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		filter []tasker.TaskSubscription
		want   []string
	}{
		{"none", nil, nil},
		{"another namespace", []tasker.TaskSubscription{{Topics: tasker.TaskTopics(), Namespace: "shops"}}, nil},
		{"another template", []tasker.TaskSubscription{{Topics: tasker.TaskTopics(), Namespace: enginetest.Namespace, Template: "settl"}}, nil},
		{"another topic", []tasker.TaskSubscription{{Topics: []string{tasker.TaskFailedTopic}}}, nil},
		{"exact names", []tasker.TaskSubscription{{Topics: []string{tasker.TaskCompletedTopic}, Namespace: enginetest.Namespace, Template: "settle"}}, []string{tasker.TaskCompletedTopic}},
		{"two of which one matches", []tasker.TaskSubscription{{Topics: tasker.TaskTopics(), Namespace: "shops"}, {Topics: tasker.TaskTopics()}}, []string{tasker.TaskCompletedTopic}},
		{"two that match", []tasker.TaskSubscription{all(), all()}, []string{tasker.TaskCompletedTopic}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := subscribed(t, tt.filter...)
			task := h.Create("settle")
			h.Complete("charge", "book")
			h.wantTopics(task, tt.want...)
			h.WantCount(len(tt.want), `SELECT count(*) FROM tasker.outbox`)
		})
	}
}

// A payload is included only on request, within its limit and redacted like evidence.
func TestPayloadsOfTaskEvents(t *testing.T) {
	t.Parallel()
	context := `{"customer": {"email": "ann@example.org", "id": 7}, "password": "hunter2"}`
	for _, tt := range []struct {
		name             string
		result, context  bool
		bytes            int
		wantCtx, wantRes string
	}{
		{"none", false, false, 1024, ``, ``},
		{"context", false, true, 1024, `{"customer":{"id":7,"email":"[redacted]"},"password":"[redacted]"}`, ``},
		{"result", true, false, 1024, ``, `{"token":"[redacted]","total":12}`},
		{"both too large", true, true, 10, `{"omitted":true,"read_at":"/v1/tasks/TASK/context","stored_bytes":N}`, `{"omitted":true,"read_at":"/v1/tasks/TASK/results/book","stored_bytes":N}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := subscribed(t, tasker.TaskSubscription{
				Topics: []string{tasker.TaskCompletedTopic}, IncludeResult: tt.result, IncludeContext: tt.context, MaxBytes: tt.bytes,
			})
			h.Exec(`UPDATE tasker.redaction SET paths = '[["task", "context", "customer", "email"], ["steps", "7", "results", "result", "iban"]]'`)
			task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "settle", Context: json.RawMessage(context)})
			h.Accepted(enginetest.Success(h.ClaimOne("charge"), `{"inner": 1}`))
			h.Accepted(enginetest.Success(h.ClaimOne("book"), `{"total": 12, "token": "t0k3n"}`))
			d := h.wantTopics(task, tasker.TaskCompletedTopic)[0].Data
			if got := plain(task, d.Context); got != tt.wantCtx {
				t.Errorf("the context is %s, want %s", got, tt.wantCtx)
			}
			if got := plain(task, d.Results["book"]); got != tt.wantRes || len(d.Results) > 1 {
				t.Errorf("the results are %s of %d, want %s", got, len(d.Results), tt.wantRes)
			}
		})
	}
}

// plain replaces what differs between runs.
func plain(task tasker.ID, doc json.RawMessage) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.NewReplacer(" ", "", task.String(), "TASK").Replace(string(doc)), ",") {
		if rest, ok := strings.CutPrefix(part, `"stored_bytes":`); ok {
			part = `"stored_bytes":N` + strings.TrimLeft(rest, "0123456789")
		}
		b.WriteString("," + part)
	}
	return strings.TrimPrefix(b.String(), ",")
}

// A path of the redaction may name a step by its number in a snapshot, which an event does not have.
func TestNumberedPathsHideResultsOfTaskEvents(t *testing.T) {
	t.Parallel()
	s := all()
	s.IncludeResult = true
	h := subscribed(t, s)
	h.Exec(`UPDATE tasker.redaction SET paths = '[["steps", "5", "results", "result", "iban"]]'`)
	task := h.Create("settle")
	h.Accepted(enginetest.Success(h.ClaimOne("charge"), `1`))
	h.Accepted(enginetest.Success(h.ClaimOne("book"), `{"iban": "DE1"}`))
	if got := string(h.wantTopics(task, tasker.TaskCompletedTopic)[0].Data.Results["book"]); strings.Contains(got, "DE1") {
		t.Errorf("the result is %s", got)
	}
}

func TestARollbackWritesNoTaskEvent(t *testing.T) {
	t.Parallel()
	h := subscribed(t, all())
	task := h.Create("settle")
	rolledBack := errors.New("rolled back")
	err := h.DB.InTx(t.Context(), func(tx *postgres.Tx) error {
		by := postgres.Cancellation{Operator: postgres.Operator{Actor: "ann", Reason: "r"}, Event: core.CancelTask}
		if err := tx.CancelTasks(t.Context(), []postgres.TaskTarget{{TaskUUID: task, State: h.State(task)}}, by); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM tasker.outbox WHERE topic = 'task.cancelled'`).Scan(&n); err != nil || n != 1 {
			t.Errorf("the transaction wrote %d events, %v", n, err)
		}
		return rolledBack
	})
	if !errors.Is(err, rolledBack) {
		t.Fatal(err)
	}
	h.wantTopics(task)
}

// Sinks receive the events of a task in order, together with those of its investigation.
func TestTaskEventsAreDeliveredInOrder(t *testing.T) {
	t.Parallel()
	h := subscribed(t, all())
	r := newReceiver(t)
	webhook, err := sink.NewWebhook(sink.WebhookOptions{URL: r.URL, AllowPrivate: true})
	h.Must(err)
	h.relay(h.DB, nil, webhook)
	h.Eventually("the sink is registered", func() bool { return h.Count(`SELECT count(*) FROM tasker.emission_sinks`) == 1 })
	task := h.Create("settle")
	h.fail(task, 2)
	h.Abandon(task)
	h.Eventually("all events are delivered", func() bool { return len(r.all()) >= 5 })
	var types []string
	for _, e := range r.all() {
		if e.TaskUUID != task.String() {
			t.Errorf("event %s of task %s", e.Type, e.TaskUUID)
		}
		types = append(types, strings.TrimPrefix(e.Type, "tasker."))
	}
	at := func(topic string) int { return slices.Index(types, topic) }
	if at("step.failed") != 0 || at("task.failed") > at("dlq.entry.resolved") || types[len(types)-1] == "dlq.entry.created" {
		t.Errorf("events arrived as %v", types)
	}
}

// Events of tasks that ended long ago are removed with the tasks. Events of investigations stay.
func TestRetentionRemovesTaskEvents(t *testing.T) {
	t.Parallel()
	h := subscribed(t, all())
	h.Exec(`INSERT INTO tasker.emission_sinks (sink) VALUES ('webhook')`)
	old := h.Create("settle")
	h.Complete("charge", "book")
	failed := h.Create("settle")
	h.fail(failed, 2)
	h.Cancel(failed)
	if _, err := h.DB.TakeEvents(t.Context(), "webhook", 100); err != nil {
		t.Fatal(err)
	}
	h.wantTopics(failed, tasker.StepFailedTopic, tasker.TaskFailedTopic, tasker.TaskCancelledTopic)
	h.Exec(`UPDATE tasker.tasks SET updated_at = updated_at - interval '25 hours'`)
	for _, state := range []tasker.TaskState{tasker.TaskComplete, tasker.TaskCancelled} {
		_, err := h.DB.PruneTasks(t.Context(), state, tasker.ID{}, 0, postgres.PruneBounds{Tasks: 100, Steps: 1000})
		h.Must(err)
	}
	h.wantTopics(old)
	h.wantTopics(failed, tasker.StepFailedTopic, tasker.TaskFailedTopic, tasker.TaskCancelledTopic)
	h.WantCount(0, `SELECT count(*) FROM tasker.emissions WHERE task_uuid = $1`, old)
	if _, err := h.Admin().Exec(t.Context(), `
		WITH sent AS (DELETE FROM tasker.emissions WHERE task_uuid = $1) DELETE FROM tasker.outbox WHERE task_uuid = $1`, failed); err == nil || !strings.Contains(err.Error(), "are not removed") {
		t.Errorf("removing events of an investigated task: %v", err)
	}
}
