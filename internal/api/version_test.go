package api_test

import (
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// A task is brought to another version of its template after a dry run that changes nothing;
// what cannot be done is a conflict with all reasons.
func TestATaskIsBroughtToAnotherVersion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const version = "namespace_name: shop\nname: order\nversion: %\nsteps:\n  - {name: charge, handler: {callable: run}}\n"
	for v, more := range map[string]string{"1.0.0": "", "1.1.0": "  - {name: ship, handler: {callable: run}, dependencies: [charge]}\n", "2.0.0": ""} {
		doc := strings.Replace(version, "%", v, 1) + more
		if v == "2.0.0" {
			doc = strings.Replace(doc, "charge", "pay", 1)
		}
		h.register(doc)
	}
	task := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", `{"namespace": "shop", "name": "order", "version": "1.0.0"}`)
	path := "/v1/tasks/" + task.UUID.String() + "/change_version"
	plan := want[tasker.VersionChange](h, http.StatusOK, "POST", path, `{"to_version": "1.1.0", "dry_run": true}`)
	if plan.Changed || plan.From != "1.0.0" || len(plan.Refusals) != 0 || len(plan.Added) != 1 || plan.Added[0] != "ship" || len(plan.Kept) != 1 {
		t.Errorf("the plan is %+v", plan)
	}
	if got := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String(), nil); got.Version != "1.0.0" || got.Total != 1 {
		t.Errorf("after a dry run: %+v", got)
	}
	h.wantError(http.StatusBadRequest, "INVALID", "reason", "POST", path, `{"to_version": "1.1.0"}`)
	h.wantError(http.StatusBadRequest, "INVALID", "to_version", "POST", path, `{"reason": "x"}`)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not found", "POST", path, `{"to_version": "3.0.0", "reason": "x"}`)
	h.wantError(http.StatusConflict, "CONFLICT", "not 1.0.1", "POST", path, `{"to_version": "1.1.0", "from_version": "1.0.1", "reason": "x"}`)
	h.wantError(http.StatusConflict, "CONFLICT", `"code":"begun_step_missing","step":"charge"`, "POST", path, `{"to_version": "2.0.0", "reason": "x"}`)
	for i := range 2 {
		if got := want[tasker.VersionChange](h, http.StatusOK, "POST", path, `{"to_version": "1.1.0", "from_version": "", "reason": "x"}`); got.Changed != (i == 0) {
			t.Errorf("changed: %+v", got)
		}
	}
	if got := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String(), nil); got.Version != "1.1.0" || got.Total != 2 {
		t.Errorf("the task is %+v", got)
	}
}

// The open tasks of a version are brought to another one part by part, and those that cannot
// be are counted by the reason.
func TestTheTasksOfAVersionAreBroughtToAnother(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register("namespace_name: shop\nname: order\nversion: 1.0.0\nsteps:\n  - {name: charge, handler: {callable: run}}\n")
	h.register("namespace_name: shop\nname: order\nversion: 1.1.0\nsteps:\n  - {name: charge, handler: {callable: other}}\n")
	h.register("namespace_name: shop\nname: order\nversion: 2.0.0\nsteps:\n  - {name: pay, handler: {callable: run}}\n")
	for range 5 {
		want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", `{"namespace": "shop", "name": "order", "version": "1.0.0"}`)
	}
	const path = "/v1/templates/shop/order/1.0.0/change_tasks"
	plan := want[apiv1.ChangedTasks](h, http.StatusOK, "POST", path, `{"to_version": "1.1.0", "dry_run": true}`)
	if plan.Looked != 5 || plan.Changed != 5 || plan.Refused != 0 || plan.Next != nil {
		t.Errorf("the plan is %+v", plan)
	}
	if refused := want[apiv1.ChangedTasks](h, http.StatusOK, "POST", path, `{"to_version": "2.0.0", "reason": "x"}`); refused.Refused != 5 || refused.Reasons["begun_step_missing"] != 5 || len(refused.Sample) != 5 {
		t.Errorf("refused: %+v", refused)
	}
	for bad, says := range map[string]string{
		`{"to_version": "1.1.0"}`: "reason", `{"to_version": "1.0.0", "reason": "x"}`: "the tasks already have version", `{"to_version": "1.1.0", "before": "x", "reason": "x"}`: "before",
		`{"to_version": "1.1.0", "limit": 101, "reason": "x"}`: "limit",
	} {
		h.wantError(http.StatusBadRequest, "INVALID", says, "POST", path, bad)
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not found", "POST", "/v1/templates/shop/order/0.1.0/change_tasks", `{"to_version": "1.1.0", "reason": "x"}`)
	changed, before := 0, ""
	for parts := 0; ; parts++ {
		got := want[apiv1.ChangedTasks](h, http.StatusOK, "POST", path, `{"to_version": "1.1.0", "limit": 2, "reason": "x"`+before+`}`)
		changed += got.Changed
		if got.Next == nil {
			if parts != 2 {
				t.Errorf("it ended after %d parts", parts+1)
			}
			break
		}
		before = `, "before": "` + *got.Next + `"`
	}
	if changed != 5 {
		t.Errorf("%d tasks changed, want 5", changed)
	}
}
