package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/testtool"
)

func order(n int) map[string]any {
	return map[string]any{"namespace": "shop", "name": "order", "context": map[string]any{"order": n}, "initiator": "test"}
}

func (h *harness) createTask(n int) tasker.Task {
	h.Helper()
	return want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", order(n))
}

func TestTemplatesAreRetired(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates", chain, "Content-Type: application/yaml")
	const path, body = "/v1/templates/shop/order/1.0.0/", `{"reason": "ships twice", "by": "ann"}`
	h.wantError(http.StatusBadRequest, "INVALID", "reason", "POST", path+"retire", `{"by": "ann"}`)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not found", "POST", "/v1/templates/shop/order/2.0.0/retire", body)
	for range 2 {
		if got := want[apiv1.Template](h, http.StatusOK, "POST", path+"retire", body); got.RetiredAt == nil || got.RetiredBy != "ann" || got.RetiredReason != "ships twice" {
			t.Errorf("retired: %+v", got)
		}
	}
	task := `{"namespace": "shop", "name": "order", "version": "1.0.0", "context": {"order": 1}}`
	h.wantError(http.StatusConflict, "CONFLICT", "by ann: ships twice", "POST", "/v1/tasks", task)
	if list := want[apiv1.TemplateList](h, http.StatusOK, "GET", "/v1/templates", nil); list.Templates[0].RetiredAt == nil {
		t.Errorf("the list says %+v", list.Templates)
	}
	for range 2 {
		if got := want[apiv1.Template](h, http.StatusOK, "POST", path+"unretire", body); got.RetiredAt != nil || got.RetiredReason != "" {
			t.Errorf("retired still: %+v", got)
		}
	}
	want[any](h, http.StatusCreated, "POST", "/v1/tasks", task)
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	if got := h.send("GET", "/v1/templates", nil); !strings.Contains(got.text, `"templates":[]`) {
		t.Errorf("no templates: %s", got.text)
	}
	made := want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates", chain, "Content-Type: application/yaml; charset=utf-8")
	if !made.Created || made.StepCount != 2 || made.Checksum == "" {
		t.Errorf("created %+v", made)
	}
	again := want[apiv1.RegisteredTemplate](h, http.StatusOK, "POST", "/v1/templates", chain, "Content-Type: text/yaml")
	if again.Created || again.Checksum != made.Checksum {
		t.Errorf("again %+v", again)
	}
	asJSON := `{"namespace":"shop","name":"order","version":"1.1.0","steps":[{"name":"a","handler":{"callable":"run"}}]}`
	want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates", asJSON)
	list := want[apiv1.TemplateList](h, http.StatusOK, "GET", "/v1/templates?namespace=shop&limit=1", nil)
	if len(list.Templates) != 1 || !list.Pagination.HasMore || list.Templates[0].Version != "1.1.0" {
		t.Errorf("list %+v", list)
	}
	one := want[apiv1.TemplateDetail](h, http.StatusOK, "GET", "/v1/templates/shop/order/1.0.0", nil)
	if one.Source != chain || !strings.Contains(string(one.Configuration), `"charge"`) || one.Description != "two steps" {
		t.Errorf("one %+v", one)
	}
	h.createTask(1) // the newest is 1.1.0, which nobody has used before
	foreign := `{"namespace":"shop","name":"order","version":"2.0.0","metadata":{"author":"me"},"loaded_from":"a.yaml","steps":[{"name":"a","handler":{"callable":"run"}}]}`
	h.wantError(http.StatusBadRequest, "INVALID", "loaded_from: has no effect", "POST", "/v1/templates?strict=true", foreign)
	warned := want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates?strict=false", foreign)
	if len(warned.Warnings) != 1 || warned.Warnings[0].Path != "loaded_from" || len(made.Warnings) != 0 {
		t.Errorf("warnings %+v", warned.Warnings)
	}
	if one := want[apiv1.TemplateDetail](h, http.StatusOK, "GET", "/v1/templates/shop/order/2.0.0", nil); !strings.Contains(string(one.Configuration), `"author"`) {
		t.Errorf("the metadata is not shown: %s", one.Configuration)
	}
	changed := strings.Replace(asJSON, `"name":"a"`, `"name":"b"`, 1)
	h.wantError(http.StatusConflict, "CONFLICT", "as a new version", "POST", "/v1/templates", changed)
}

func TestTasks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.createTask(7)
	if task.State != "steps_in_process" || len(task.Steps) != 2 || task.Total != 2 || string(task.Context) != `{"order":7}` {
		t.Errorf("created %+v", task)
	}
	got := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String(), nil)
	if got.UUID != task.UUID || len(got.Steps) != 2 || got.Steps[1].Parents[0] != got.Steps[0].UUID {
		t.Errorf("got %+v", got)
	}
	h.createTask(8)
	list := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?status=steps_in_process&namespace=shop&name=order&dead_lettered=false&limit=1", nil)
	if len(list.Tasks) != 1 || !list.Pagination.HasMore || list.Tasks[0].UUID == task.UUID {
		t.Errorf("list %+v", list)
	}
	next := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?limit=1&offset=1", nil)
	if len(next.Tasks) != 1 || next.Pagination.HasMore || next.Tasks[0].UUID != task.UUID || next.Tasks[0].Steps != nil {
		t.Errorf("second page %+v", next)
	}
	if none := h.send("GET", "/v1/tasks?dead_lettered=true", nil); !strings.Contains(none.text, `"tasks":[]`) {
		t.Errorf("dead-lettered: %s", none.text)
	}
	path := "/v1/tasks/" + task.UUID.String()
	for range 2 {
		gone := want[tasker.Task](h, http.StatusOK, "DELETE", path+"?reason=no+stock&cancelled_by=ann", nil)
		if gone.State != "cancelled" || gone.Steps[0].State != "cancelled" {
			t.Errorf("cancelled %+v", gone)
		}
	}
	history := want[[]tasker.Transition](h, http.StatusOK, "GET", path+"/transitions", nil)
	last := history[len(history)-1]
	if last.To != "cancelled" || last.Actor != "ann" || last.Reason != "no stock" {
		t.Errorf("history ends with %+v", last)
	}
	if page := want[[]tasker.Transition](h, http.StatusOK, "GET", path+"/transitions?limit=1&offset=1", nil); page[0].ID != history[1].ID {
		t.Errorf("page %+v", page)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	req := order(1)
	req["idempotency_key"] = "k1"
	first := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", req)
	again := want[tasker.Task](h, http.StatusOK, "POST", "/v1/tasks", req)
	if again.UUID != first.UUID {
		t.Errorf("another task: %s", again.UUID)
	}
	req["reason"] = "other"
	p := h.wantError(http.StatusConflict, "CONFLICT", "k1", "POST", "/v1/tasks", req)
	if !strings.Contains(string(p.Error.Details), first.UUID.String()) {
		t.Errorf("details %s", p.Error.Details)
	}
}

func TestBulk(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	var list []any
	for i := range 1000 {
		req := order(i)
		req["idempotency_key"] = fmt.Sprint(i)
		list = append(list, req)
	}
	made := want[apiv1.CreatedTasks](h, http.StatusCreated, "POST", "/v1/tasks/bulk", list)
	if len(made.Tasks) != 1000 || !made.Tasks[999].Created {
		t.Fatalf("%d tasks", len(made.Tasks))
	}
	again := want[apiv1.CreatedTasks](h, http.StatusOK, "POST", "/v1/tasks/bulk", list[:2])
	if again.Tasks[1].Created || again.Tasks[1].TaskUUID != made.Tasks[1].TaskUUID {
		t.Errorf("again %+v", again)
	}
	before := h.fingerprint()
	wrong := []any{order(1), map[string]any{"namespace": "shop", "name": "order", "context": map[string]any{"order": "x"}}}
	h.wantError(http.StatusBadRequest, "INVALID", "tasks[1]", "POST", "/v1/tasks/bulk", wrong)
	h.wantError(http.StatusBadRequest, "INVALID", "1001 elements; the limit is 1000", "POST", "/v1/tasks/bulk", append(list, order(1)))
	h.wantError(http.StatusBadRequest, "INVALID", "the minimum is 1", "POST", "/v1/tasks/bulk", []any{})
	if h.fingerprint() != before {
		t.Error("a refused batch changed something")
	}
}

func TestExternalStep(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(waiting)
	task := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{"namespace": "shop", "name": "approval"})
	path := "/v1/tasks/" + task.UUID.String() + "/workflow_steps/" + task.Steps[0].UUID.String() + "/completion"
	done := map[string]any{"success": true, "result": map[string]any{"by": "boss"}, "source": "desk"}
	for range 2 {
		step := want[tasker.Step](h, http.StatusOK, "POST", path, done)
		if step.State != "complete" || !strings.Contains(string(step.Results), `"boss"`) {
			t.Errorf("step %+v", step)
		}
	}
	if got := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String(), nil); got.State != "complete" || got.CompletionPercentage != 100 {
		t.Errorf("task %+v", got)
	}
	named := "/v1/tasks/" + task.UUID.String() + "/workflow_steps/" + task.Steps[0].Name + "/completion"
	if step := want[tasker.Step](h, http.StatusOK, "POST", named, done); step.UUID != task.Steps[0].UUID {
		t.Errorf("by its name %+v", step)
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", `has no step named \"nobody\"`, "POST", "/v1/tasks/"+task.UUID.String()+"/workflow_steps/nobody/completion", done)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "", "POST", "/v1/tasks/"+nobody+"/workflow_steps/"+task.Steps[0].Name+"/completion", done)
	h.wantError(http.StatusConflict, "CONFLICT", "", "POST", path, map[string]any{"success": false, "error": map[string]any{"message": "no"}})
	h.wantError(http.StatusBadRequest, "INVALID", "error: is missing", "POST", path, map[string]any{"success": false})
}

func TestCompensation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("namespace_name: shop\nname: ask\nversion: 1.0.0\nsteps:\n  - {name: approve, type: external, on_failure: {compensate: withdraw}}\n  - {name: more, type: external, dependencies: [approve]}\n")
	task := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{"namespace": "shop", "name": "ask"})
	path := "/v1/tasks/" + task.UUID.String()
	if task.Phase != "" || task.Outcome != "" || task.Steps[0].Undoes != "" {
		t.Errorf("at first %+v", task)
	}
	want[tasker.Step](h, http.StatusOK, "POST", path+"/workflow_steps/approve/completion", map[string]any{"success": true, "result": 1})
	for range 2 {
		got := want[tasker.Task](h, http.StatusOK, "DELETE", path+"?compensate=true&reason=late&cancelled_by=ann", nil)
		if got.State != "steps_in_process" || got.Phase != "compensating" || got.Outcome != "" || len(got.Steps) != 3 {
			t.Fatalf("asked to be undone: %+v", got)
		}
		if undo := got.Steps[2]; undo.Name != "undo:approve" || undo.Undoes != "approve" || undo.Handler != "withdraw" || undo.State != "enqueued" {
			t.Errorf("it undoes %+v", undo)
		}
	}
	for query, n := range map[string]int{"phase=compensating": 1, "phase=compensating&status=error": 0, "phase=compensating&status=steps_in_process": 1, "phase=compensating&namespace=other": 0} {
		if got := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?"+query, nil); len(got.Tasks) != n {
			t.Errorf("%s: %d tasks, want %d", query, len(got.Tasks), n)
		}
	}
	h.wantError(http.StatusBadRequest, "INVALID", "phase", "GET", "/v1/tasks?phase=forward", nil)
	got := want[tasker.Task](h, http.StatusOK, "DELETE", path+"?compensate=false", nil)
	if got.State != "cancelled" || got.Phase != "" || got.Outcome == "" || got.Outcome != "compensation_stopped" {
		t.Errorf("cancelled: %+v", got)
	}
	h.wantError(http.StatusConflict, "CONFLICT", "was cancelled during compensation", "DELETE", path+"?compensate=true", nil)
}

func TestEmptyListsAreNotNull(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, path := range []string{"/v1/dlq", "/v1/dlq/stats", "/v1/dlq/investigation-queue", "/v1/dlq/staleness"} {
		if got := h.send("GET", path, nil); got.status != http.StatusOK || got.text != "[]\n" {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
	if got := h.send("GET", "/v1/workers", nil); !strings.Contains(got.text, `"workers":[]`) {
		t.Errorf("workers: %s", got.text)
	}
}

func TestNullEqualsAbsent(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(waiting)
	want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", json.RawMessage(
		`{"namespace":"shop","name":"approval","version":null,"context":null,"priority":null,"tags":null,"start_at":null,"recreated_from":null}`))
	want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", json.RawMessage(
		`{"namespace":"shop","name":"approval","options":null,"requested_at":null}`))
	worker := h.worker()
	want[apiv1.ClaimedSteps](h, http.StatusOK, "POST", worker+"/claims", json.RawMessage(`{"max":1,"wait_ms":null,"hint":null}`))
	h.wantError(http.StatusBadRequest, "INVALID", "no events selected", "POST", "/v1/dlq/emissions/re-emit",
		json.RawMessage(`{"event_uuid":null,"actor":"ann","reason":"r"}`))
}

// TestNullableFieldsMatchTheDocument: what the check accepts is what the document allows.
func TestNullableFieldsMatchTheDocument(t *testing.T) {
	t.Parallel()
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Required   []string
				Properties map[string]struct {
					Type, Enum any
					AnyOf      []map[string]any
				}
			}
		}
	}
	if err := json.Unmarshal(document(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"CreateTask", "ClaimSteps", "ReEmit", "UpdateEntry", "Completion", "ResultError", "ReportResults", "ResetForRetry", "RegisterWorker"} {
		schema, ok := doc.Components.Schemas[body]
		if !ok {
			t.Errorf("no %s in the document", body)
		}
		for name, property := range schema.Properties {
			shown := fmt.Sprint(property.Type, property.Enum, property.AnyOf)
			if property.Type == nil && property.AnyOf == nil {
				continue // any JSON
			}
			if required := slices.Contains(schema.Required, name); strings.Contains(shown, "null") == required {
				t.Errorf("%s.%s, required: %v: %s", body, name, required, shown)
			}
			if property.Enum != nil && !strings.Contains(fmt.Sprint(property.Enum), "<nil>") && !slices.Contains(schema.Required, name) {
				t.Errorf("%s.%s may be null and its values are %v", body, name, property.Enum)
			}
		}
	}
}

// Every task is found by what it was created with, and by when.
func TestTasksAreFound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates", chain, "Content-Type: text/yaml")
	create := func(fields map[string]any) tasker.Task {
		t.Helper()
		fields["namespace"], fields["name"], fields["context"] = "shop", "order", map[string]any{"order": 1}
		return want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", fields)
	}
	plain := create(map[string]any{})
	vip := create(map[string]any{"tags": []string{"vip", "gift", "vip"}, "initiator": "ann", "source_system": "till"})
	gift := create(map[string]any{"tags": []string{"gift", "a & b"}, "correlation_id": "c-1", "idempotency_key": "k 1"})
	same := create(map[string]any{"correlation_id": "c-1", "initiator": "ann"})
	moment := func(task tasker.Task) string { return url.QueryEscape(task.CreatedAt.Format(time.RFC3339Nano)) }
	for query, found := range map[string][]tasker.Task{
		"":                                             {same, gift, vip, plain},
		"tag=gift":                                     {gift, vip},
		"tag=gift&tag=vip":                             {vip},
		"tag=a+%26+b":                                  {gift},
		"tag=vi":                                       nil,
		"tag=gift&limit=1&offset=1":                    {vip},
		"tag=gift&namespace=shop&name=order":           {gift, vip},
		"tag=gift&namespace=other":                     nil,
		"tag=gift&name=other":                          nil,
		"tag=gift&status=steps_in_process":             {gift, vip},
		"tag=gift&status=complete":                     nil,
		"tag=gift&dead_lettered=true":                  nil,
		"tag=gift&dead_lettered=false":                 {gift, vip},
		"correlation_id=c-1":                           {same, gift},
		"correlation_id=" + plain.CorrelationID:        {plain},
		"correlation_id=" + vip.UUID.String():          {vip},
		"correlation_id=" + gift.UUID.String():         nil,
		"correlation_id=c-1&tag=gift":                  {gift},
		"idempotency_key=k+1":                          {gift},
		"idempotency_key=k+1&initiator=ann":            nil,
		"initiator=ann":                                {same, vip},
		"initiator=ann&source_system=till":             {vip},
		"source_system=till":                           {vip},
		"created_after=" + moment(vip):                 {same, gift, vip},
		"created_before=" + moment(vip):                {plain},
		"tag=gift&created_after=" + moment(gift):       {gift},
		"tag=gift&created_before=" + moment(gift):      {vip},
		"namespace=shop&created_after=" + moment(same): {same},
		"status=steps_in_process&created_after=" + moment(gift) + "&created_before=" + moment(same): {gift},
		"created_after=2020-01-01T00:00:00%2B02:00&created_before=2020-01-02T00:00:00Z":             nil,
	} {
		list := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?"+query, nil)
		ids := func(tasks []tasker.Task) (list []string) {
			for _, task := range tasks {
				list = append(list, task.UUID.String())
			}
			return list
		}
		if diff := cmp.Diff(ids(found), ids(list.Tasks)); diff != "" {
			t.Errorf("%s finds others (-want +got):\n%s", query, diff)
		}
	}
	for query, wrong := range map[string]string{
		"tag=":                            "",
		strings.Repeat("&tag=a", 11):      "tag: is set 11 times; the limit is 10",
		"tag=" + letters(129):             "tag: has 129 characters; the limit is 128",
		"initiator=a&initiator=b":         "initiator: must be set only once",
		"created_after=yesterday":         "created_after: must be a time such as",
		"created_before=2026-01-31":       "created_before: must be a time such as",
		"correlation_id=" + letters(129):  "correlation_id: has 129 characters",
		"idempotency_key=" + letters(256): "idempotency_key: has 256 characters",
		"source_system=" + letters(256):   "source_system: has 256 characters",
	} {
		if wrong == "" {
			want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?"+query, nil)
			continue
		}
		h.wantError(http.StatusBadRequest, "INVALID", wrong, "GET", "/v1/tasks?"+query, nil)
	}
}

func letters(n int) string { return strings.Repeat("x", n) }

// What a template declares is searched for by those who may read payloads, and listed.
// The open tasks of a filter are cancelled part by part by one route.
func TestTheTasksOfAFilterAreCancelled(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates", chain, "Content-Type: text/yaml")
	var ids []string
	for range 3 {
		ids = append(ids, want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{
			"namespace": "shop", "name": "order", "context": map[string]any{"order": 1}, "tags": []string{"a", "b"},
		}).UUID.String())
	}
	const path = "/v1/tasks/cancel"
	cancelled := func(query string, body map[string]any, cancelled int, more bool) tasker.CancelBatch {
		t.Helper()
		got := want[tasker.CancelBatch](h, http.StatusOK, "POST", path+query, body)
		if got.Cancelled != cancelled || got.HasMore != more || got.Failed != 0 {
			t.Errorf("%s %v: %+v", query, body, got)
		}
		return got
	}
	if got := cancelled("?tag=a&tag=b", map[string]any{"dry_run": true}, 3, false); got.Sample[0].UUID.String() != ids[2] || got.Sample[0].State != "steps_in_process" {
		t.Errorf("the first is %+v", got.Sample[0])
	}
	cancelled("?tag=a&tag=c", map[string]any{"dry_run": true}, 0, false)
	cancelled("?namespace=shop", map[string]any{"limit": 2, "reason": "off", "by": "kim"}, 2, true)
	cancelled("?namespace=shop&status=steps_in_process", map[string]any{"reason": "off", "by": "kim", "compensate": true}, 1, false)
	for _, id := range ids {
		if got := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+id, nil); got.State != "cancelled" {
			t.Errorf("the task is %s", got.State)
		}
	}
	for query, body := range map[string]map[string]any{
		"": {"dry_run": true}, "?namespace=shop": {}, "?namespace=shop&limit=3": {"dry_run": true}, "?tag=a": {"limit": 101, "dry_run": true}, "?status=odd&tag=a": {"dry_run": true}, "?attribute=x": {"dry_run": true},
	} {
		want[apiv1.Error](h, http.StatusBadRequest, "POST", path+query, body)
	}
}

func TestMissingAttributesAreInTheAnswer(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const searched = `{"namespace":"shop","name":"sale","version":"1.0.0","search":{"customer":{"type":"text","from":"context.customer"},"paid":{"type":"bool","from":"context.paid"}},
		"steps":[{"name":"a","handler":{"callable":"run"}}]}`
	want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates", searched)
	body := map[string]any{"namespace": "shop", "name": "sale", "context": map[string]any{"customer": 4711, "paid": "yes"}}
	missing := []tasker.Fault{{Path: "search.paid", Message: "the value is not of type bool"}}
	task := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", body)
	if diff := cmp.Diff(missing, task.Warnings); diff != "" || !slices.Equal(task.Attributes, []string{"customer:4711"}) {
		t.Errorf("attributes %q, warnings (-want +got):\n%s", task.Attributes, diff)
	}
	if diff := cmp.Diff(missing, want[apiv1.CreatedTasks](h, http.StatusCreated, "POST", "/v1/tasks/bulk", []any{body}).Tasks[0].Warnings); diff != "" {
		t.Errorf("warnings of a list (-want +got):\n%s", diff)
	}
	delete(body["context"].(map[string]any), "customer")
	body["context"].(map[string]any)["paid"] = true
	if w := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", body).Warnings; len(w) != 1 || w[0].Message != `column 8: missing key "customer", in: context.customer` {
		t.Errorf("warnings %+v", w)
	}
	if w := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String(), nil).Warnings; w != nil {
		t.Errorf("a task that is read has the warnings %+v", w)
	}
}

func TestTasksAreFoundByAttributes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const searched = `{"namespace":"shop","name":"sale","version":"1.0.0","search":{"customer":{"type":"text","from":"context.customer"},"risk":{"type":"number","from":"context.risk"}},
		"steps":[{"name":"a","handler":{"callable":"run"}}]}`
	want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates", searched)
	create := func(customer string, risk float64) string {
		task := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{
			"namespace": "shop", "name": "sale", "context": map[string]any{"customer": customer, "risk": risk},
		})
		if len(task.Attributes) != 2 {
			t.Errorf("a new task has the attributes %q", task.Attributes)
		}
		return task.UUID.String()
	}
	ann, bob := create("ann: a", 0.25), create("bob", 0.75)
	if got := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+ann, nil).Attributes; !slices.Equal(got, []string{"customer:ann: a", "risk:0.25"}) {
		t.Errorf("the task has the attributes %q", got)
	}
	for query, found := range map[string][]string{
		"attribute=customer:ann:+a": {ann}, "attribute=customer:bob&attribute=risk:%3E0.5": {bob}, "attribute=risk:%3C%3D0.75": {bob, ann}, "attribute=risk:%3E0.75": nil,
		"attribute=customer:bob&namespace=shop&name=sale&status=steps_in_process": {bob}, "attribute=customer:bob&status=complete": nil,
	} {
		var ids []string
		for _, task := range want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?"+query, nil).Tasks {
			ids = append(ids, task.UUID.String())
		}
		if diff := cmp.Diff(found, ids); diff != "" {
			t.Errorf("%s finds others (-want +got):\n%s", query, diff)
		}
	}
	// A list goes on before the last task of a page; one in the order of values by its offset.
	page := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?namespace=shop&limit=1", nil)
	if next := page.Pagination.NextBefore; !page.Pagination.HasMore || next == nil || *next != bob {
		t.Fatalf("the first page is %+v", page.Pagination)
	}
	for query, found := range map[string][]string{"namespace=shop": {ann}, "attribute=customer:ann:+a": {ann}, "attribute=customer:bob": nil, "": {ann}} {
		var ids []string
		for _, task := range want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?before="+bob+"&"+query, nil).Tasks {
			ids = append(ids, task.UUID.String())
		}
		if diff := cmp.Diff(found, ids); diff != "" {
			t.Errorf("before %s, %s (-want +got):\n%s", bob, query, diff)
		}
	}
	if page := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?attribute=risk:%3E0&limit=1", nil).Pagination; page.NextBefore != nil || !page.HasMore {
		t.Errorf("a page in the order of values is %+v", page)
	}
	h.wantError(http.StatusBadRequest, "INVALID", "use offset", "GET", "/v1/tasks?attribute=risk:%3E0&before="+bob, nil)
	for query, wrong := range map[string]string{
		"attribute=customer":                 "NAME:VALUE",
		"attribute=client:x":                 "must be one of customer, risk",
		"attribute=risk:high":                "attribute risk must be a number",
		"attribute=customer:b&namespace=x":   "no template declares search attributes",
		strings.Repeat("&attribute=a:b", 11): "attribute: is set 11 times; the limit is 10",
	} {
		h.wantError(http.StatusBadRequest, "INVALID", wrong, "GET", "/v1/tasks?"+query, nil)
	}
	// Investigations and operations are selected by the same.
	for query, n := range map[string]int{"tag=none": 0, "correlation_id=" + ann: 0, "attribute=customer:bob": 0} {
		if got := want[[]tasker.InvestigationQueueEntry](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue?"+query, nil); len(got) != n {
			t.Errorf("%s: %d investigations", query, len(got))
		}
	}
	h.wantError(http.StatusBadRequest, "INVALID", "must be one of customer, risk", "GET", "/v1/dlq/investigation-queue?attribute=client:x", nil)
	for selects, wrong := range map[string]string{
		`{"attributes": ["customer"]}`: "select.attributes: invalid attribute", `{"attributes": ["risk:high"]}`: "attribute risk must be a number",
	} {
		h.wantError(http.StatusBadRequest, "INVALID", wrong, "POST", "/v1/operations", json.RawMessage(`{"act": {"type": "reset_for_retry"}, "reason": "r", "planned_by": "ann", "select": `+selects+`}`))
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", "no open investigation", "POST", "/v1/operations",
		json.RawMessage(`{"act": {"type": "reset_for_retry"}, "reason": "r", "planned_by": "ann", "select": {"tags": ["a"], "correlation_id": "b", "attributes": ["risk:>0"]}}`))
	list := want[apiv1.AttributeList](h, http.StatusOK, "GET", "/v1/attributes?namespace=shop", nil)
	if diff := cmp.Diff([]tasker.Attribute{
		{Namespace: "shop", Name: "customer", Type: "text", Templates: []string{"sale"}}, {Namespace: "shop", Name: "risk", Type: "number", Templates: []string{"sale"}},
	}, list.Attributes); diff != "" {
		t.Error(diff)
	}
	other := strings.NewReplacer(`"sale"`, `"other"`, `"text"`, `"bool"`).Replace(searched)
	h.wantError(http.StatusConflict, "CONFLICT", "one type within a namespace", "POST", "/v1/templates", other)
}

func TestUniqueKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates", chain, "Content-Type: application/yaml")
	request := order(1)
	request["unique"], request["start_within_seconds"] = map[string]any{"key": "k"}, 60.5
	made := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", request)
	if made.UniqueKey == "" || made.UniqueKey != "k" || made.StartBy == nil || made.StartBy.Sub(made.CreatedAt) != 60500*time.Millisecond {
		t.Errorf("made %+v", made)
	}
	h.wantError(http.StatusConflict, "CONFLICT", made.UUID.String(), "POST", "/v1/tasks", request)
	request["unique"] = map[string]any{"key": "k", "on_conflict": "use_existing"}
	if got := want[tasker.Task](h, http.StatusOK, "POST", "/v1/tasks", request); got.UUID != made.UUID {
		t.Errorf("answered with %s", got.UUID)
	}
	merged := order(2)
	merged["debounce"] = map[string]any{"key": "d", "wait_seconds": 60}
	waits := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", merged)
	if got := want[tasker.Task](h, http.StatusOK, "POST", "/v1/tasks", merged); got.UUID != waits.UUID || got.MergedRequests != 1 || got.DebounceKey != "d" {
		t.Errorf("merged into %+v", got)
	}
	request["unique"] = map[string]any{"key": "k", "on_conflict": "perhaps"}
	h.wantError(http.StatusBadRequest, "INVALID", "on_conflict", "POST", "/v1/tasks", request)
}

// A due time comes with a request, is found, and is changed for a task and for a step.
func TestDueTimes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	want[apiv1.RegisteredTemplate](h, http.StatusCreated, "POST", "/v1/templates", chain, "Content-Type: application/yaml")
	request := order(1)
	request["due_after_seconds"] = 3600.5
	made := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", request)
	if d := made.Due; d == nil || d.DueAt.Sub(made.CreatedAt).Round(100*time.Millisecond) != 3600500*time.Millisecond || d.State != "ahead" || d.Overdue != "tell" || d.Source != "request" || d.SetBy != "" || made.FirstDeadline != "due" {
		t.Errorf("made %+v, due %+v", made, d)
	}
	path := "/v1/tasks/" + made.UUID.String() + "/due"
	at := made.CreatedAt.Add(2 * time.Hour).Truncate(time.Second)
	changed := want[tasker.Task](h, http.StatusOK, "PUT", path, map[string]any{"due_at": at, "reason": "agreed", "by": "ann"})
	if d := changed.Due; d == nil || !d.DueAt.Equal(at) || d.Source != "operator" || d.SetBy != "ann" {
		t.Errorf("changed: %+v", d)
	}
	step := made.Steps[0]
	for _, name := range []string{step.Name, step.UUID.String()} {
		changed = want[tasker.Task](h, http.StatusOK, "PUT", path, map[string]any{"due_at": at, "step": name})
		if d := changed.Steps[0].Due; d == nil || !d.DueAt.Equal(at) {
			t.Errorf("step %s: %+v", name, d)
		}
	}
	for query, n := range map[string]int{"overdue=true": 0, "due_before=" + at.Add(time.Second).Format(time.RFC3339): 1, "due_before=" + at.Format(time.RFC3339): 0} {
		if got := want[apiv1.TaskList](h, http.StatusOK, "GET", "/v1/tasks?"+query, nil); len(got.Tasks) != n || got.Pagination.NextBefore != nil {
			t.Errorf("%s: %+v", query, got)
		}
	}
	if changed = want[tasker.Task](h, http.StatusOK, "PUT", path, map[string]any{"due_at": nil}); changed.Due != nil {
		t.Errorf("it is still due: %+v", changed.Due)
	}
	h.wantError(http.StatusBadRequest, "INVALID", "due_at", "PUT", path, map[string]any{"reason": "no time"})
	h.wantError(http.StatusBadRequest, "INVALID", "must be in the future", "PUT", path, map[string]any{"due_at": "2020-01-01T00:00:00Z"})
	h.wantError(http.StatusNotFound, "NOT_FOUND", "no step named", "PUT", path, map[string]any{"due_at": at, "step": "none"})
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not found", "PUT", "/v1/tasks/0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f/due", map[string]any{"due_at": at})
	request["due_at"] = at
	h.wantError(http.StatusBadRequest, "INVALID", "due_after_seconds", "POST", "/v1/tasks", request)
}

func TestBlankKeysAreRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	before := h.fingerprint()
	for _, blank := range []string{" ", "\u200b", "\u00a0\u2060"} {
		for _, field := range []string{"idempotency_key", "correlation_id", "parent_correlation_id"} {
			task := order(1)
			task[field] = blank
			h.wantError(http.StatusBadRequest, "INVALID", field+": is blank", "POST", "/v1/tasks", task)
			h.wantError(http.StatusBadRequest, "INVALID", field+": is blank", "POST", "/v1/tasks/bulk", []any{order(2), task})
		}
		task := order(1)
		task["unique"] = map[string]any{"key": blank}
		h.wantError(http.StatusBadRequest, "INVALID", "unique.key", "POST", "/v1/tasks", task)
	}
	body := map[string]any{"act": map[string]any{"type": "reset_for_retry"}, "reason": "r", "planned_by": "ann", "select": map[string]any{"namespace": "shop"}}
	for _, key := range []string{"", "\u200b"} {
		h.wantError(http.StatusBadRequest, "INVALID", "Idempotency-Key", "POST", "/v1/operations", body, "Idempotency-Key: "+key)
	}
	if h.fingerprint() != before {
		t.Error("a refused request changed the database")
	}
}

// The curl commands of the documentation work as they are printed.
func TestCurlOfTheDocumentation(t *testing.T) {
	t.Parallel()
	bash := testtool.Find(t, "bash", "install bash")
	testtool.Find(t, "curl", "install curl")
	text, err := os.ReadFile("../../docs/reference/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^curl (?:.*\\\n)*.*$`).FindAllString(string(text), -1)
	if len(commands) != 1 {
		t.Fatalf("docs/reference/templates.md has the commands %q: this test knows one", commands)
	}
	h := newHarness(t)
	h.register(waiting)
	task := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{"namespace": "shop", "name": "approval"})
	command := exec.CommandContext(t.Context(), bash, "-c", commands[0])
	command.Env = append(os.Environ(), "SERVER="+h.server.URL, "TASK="+task.UUID.String(), "KEY=none")
	out, err := command.Output()
	if err != nil || !strings.Contains(string(out), `"current_state":"complete"`) {
		t.Errorf("%s: %v %s", commands[0], err, out)
	}
}

// A request that loses to others each time was not decided: it is to be sent again.
func TestCreationThatLosesEachTimeIsUnavailable(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.Exec(`CREATE FUNCTION tasker.lose() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = 'unique_violation', CONSTRAINT = TG_ARGV[0]; END $$`)
	for _, constraint := range []string{"task_idempotency_key_is_unique", "unique_task_has_its_key", "tasks_template_uuid_fkey"} {
		h.Exec(`CREATE TRIGGER lose BEFORE INSERT ON tasker.tasks FOR EACH ROW EXECUTE FUNCTION tasker.lose('` + constraint + `')`)
		task := order(1)
		task["idempotency_key"] = constraint
		h.wantError(http.StatusServiceUnavailable, "UNAVAILABLE", "send the request again", "POST", "/v1/tasks", task)
		h.wantError(http.StatusServiceUnavailable, "UNAVAILABLE", "send the request again", "POST", "/v1/tasks/bulk", []any{task})
		h.Exec(`DROP TRIGGER lose ON tasker.tasks`)
	}
}
