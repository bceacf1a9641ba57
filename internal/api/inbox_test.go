package api_test

import (
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/enginetest"
)

// What waits for people is listed, and assigned, over the API.
func TestInbox(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	e.Template("refund", tasker.StepTemplate{
		Name: "approve", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), Assignee: "ann", TimeoutSeconds: 3600, Form: []byte(`{"type":"object","required":["approved"]}`),
	})
	first, second := e.Create("refund"), e.Create("refund")
	_, err := e.Engine.Tick(t.Context())
	e.Must(err)
	h := serve(t, e)
	path := "/v1/tasks/" + first.String() + "/workflow_steps/approve"
	now := want[tasker.HumanStep](h, http.StatusOK, "PUT", path+"/assignee", apiv1.AssignStep{Assignee: "group:finance", Reason: "holiday", By: "bo"})
	if now.Assignee != "group:finance" || now.AssignedBy != "bo" || !now.Waiting || now.DueAt == nil {
		t.Errorf("%+v", now)
	}
	listed := func(query string, steps int) apiv1.Inbox {
		t.Helper()
		l := want[apiv1.Inbox](h, http.StatusOK, "GET", "/v1/inbox?"+query, nil)
		if len(l.Steps) != steps || l.Pagination.Count != steps {
			t.Errorf("%q lists %+v, want %d", query, l, steps)
		}
		return l
	}
	listed("", 2)
	listed("assignee=ann&assignee=carol", 1)
	listed("assignee=group:finance&unassigned=true", 1)
	listed("unassigned=true", 0)
	listed("overdue=true", 0)
	listed("due_before=2020-01-01T00:00:00Z", 0)
	listed("namespace=attic", 0)
	page := listed("limit=1&template=refund", 1)
	if !page.Pagination.HasMore || page.Steps[0].TaskUUID != first {
		t.Fatalf("%+v", page)
	}
	if page = listed("limit=1&after="+*page.Pagination.NextAfter, 1); page.Pagination.HasMore || page.Steps[0].TaskUUID != second {
		t.Errorf("%+v", page)
	}
	h.wantError(http.StatusBadRequest, "INVALID", "next_after of the previous page", "GET", "/v1/inbox?after=x", nil)
	h.wantError(http.StatusBadRequest, "INVALID", "requires authentication", "GET", "/v1/inbox?mine=true", nil)
	h.wantError(http.StatusBadRequest, "INVALID", "assignee", "PUT", path+"/assignee", apiv1.AssignStep{Assignee: "a b"})

	d := want[tasker.HumanStepDetail](h, http.StatusOK, "GET", path+"/assignee", nil)
	if string(d.Form) == "null" || len(d.History) != 1 || d.History[0].Reason != "holiday" || d.StepName != "approve" {
		t.Errorf("%+v", d)
	}
	if s := want[tasker.Step](h, http.StatusOK, "GET", path, nil); s.Assignee == "" || s.Assignee != "group:finance" {
		t.Errorf("%+v", s)
	}
	made := want[apiv1.NewAnswerLink](h, http.StatusCreated, "POST", path+"/answer_links", apiv1.CreateAnswerLink{By: "bo"})
	if made.Assignee != "group:finance" || made.State != "open" || made.CreatedBy != "bo" || made.URL != nil || made.Path != "/ui/answer/"+made.Token {
		t.Errorf("%+v", made)
	}
	links := h.send("GET", path+"/answer_links", "")
	if links.status != http.StatusOK || strings.Contains(links.text, made.Token[4:]) || !strings.Contains(links.text, made.UUID.String()) {
		t.Errorf("%d %s", links.status, links.text)
	}
	few := int64(5)
	h.wantError(http.StatusBadRequest, "INVALID", "expires_in_seconds", "POST", path+"/answer_links", apiv1.CreateAnswerLink{ExpiresInSeconds: &few})
	if l := want[tasker.AnswerLink](h, http.StatusOK, "DELETE", path+"/answer_links/"+made.UUID.String(), nil); l.State != "revoked" || l.RevokedAt == nil || l.RevokedBy == "" {
		t.Errorf("%+v", l)
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not found for this step", "DELETE", path+"/answer_links/"+first.String(), nil)
	h.wantError(http.StatusBadRequest, "INVALID", "link_uuid", "DELETE", path+"/answer_links/x", nil)
	h.wantError(http.StatusBadRequest, "INVALID", "does not match the form of the step", "POST", path+"/completion", apiv1.Completion{Success: true, Result: []byte(`{}`)})
	want[tasker.Step](h, http.StatusOK, "POST", path+"/completion", apiv1.Completion{Success: true, Result: []byte(`{"approved":true}`)})
	h.wantError(http.StatusConflict, "CONFLICT", "can no longer be changed", "POST", path+"/answer_links", apiv1.CreateAnswerLink{})
	h.wantError(http.StatusConflict, "CONFLICT", "can no longer be changed", "PUT", path+"/assignee", apiv1.AssignStep{Assignee: "bo"})
	listed("", 1)
}
