package web_test

import (
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
)

const answerSchema = `{"type": "object", "title": "Refund <b>", "description": "More than 100.", "required": ["approved", "amount"], "properties": {
	"approved": {"type": "boolean", "title": "Approve"}, "amount": {"type": "number", "maximum": 100, "default": 7}, "count": {"type": "integer"},
	"note": {"type": "string", "maxLength": 1000}, "name": {"type": "string", "title": "<i>Name"}, "day": {"type": "string", "format": "date"},
	"size": {"enum": ["small", "large", 3], "default": "small"}, "more": {"type": "array", "items": {"type": "integer"}}}}`

// A step that a person answers is in the inbox, is assigned, and answered by a form that is made of
// its schema.
func TestAHumanStepIsAnswered(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.shows(h.get("/ui/inbox"), http.StatusOK, "No waiting steps")
	answer := tasker.StepTemplate{Name: "approve", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), Assignee: "group:finance", Form: []byte(answerSchema)}
	plain := tasker.StepTemplate{Name: "ask", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), Dependencies: []string{"approve"}}
	h.Template("refund", answer, plain)
	task := h.create("refund", `{"customer": "<eve>"}`)
	h.tick()
	steps := h.steps(task)
	page := "/ui/tasks/" + task.String() + "/steps/" + steps[0].UUID.String()
	later := "/ui/tasks/" + task.String() + "/steps/" + steps[1].UUID.String()

	h.shows(h.get("/ui/inbox"), http.StatusOK, `href="`+page+`/answer"`, "group:finance", "refund")
	h.shows(h.get("/ui/inbox?of=unassigned"), http.StatusOK, "No waiting steps")
	h.shows(h.get("/ui/inbox?of=mine"), http.StatusOK, "No waiting steps")
	h.shows(h.get("/ui/inbox?assignee=group:finance&template=refund&after=~"+steps[0].UUID.String()[:8]), http.StatusBadRequest, "the cursor of the previous page")
	h.shows(h.get("/ui/tasks/"+task.String()), http.StatusOK, "assigned to <bdi>group:finance</bdi>", page+"/answer", page+"/assign")

	h.shows(h.get(page+"/assign"), http.StatusOK, "task assign-step "+task.String()+" approve", "--to group:finance")
	h.shows(h.post(page+"/assign", "actor=bo", "assignee=a b"), http.StatusBadRequest, "contains a space", `value="a b"`)
	h.shows(h.post(page+"/assign", "actor=bo", "assignee=bo", "reason=holiday"), http.StatusOK, "is assigned to bo")
	h.shows(h.get("/ui/inbox?of=mine"), http.StatusOK, page+"/answer")
	h.shows(h.get(page+"/assign"), http.StatusOK, "holiday", "by <bdi>bo</bdi>")
	h.shows(h.get(later+"/answer"), http.StatusConflict, "does not wait for an answer")

	got := h.get(page + "/answer")
	h.shows(got, http.StatusOK, "Refund <b>", "More than 100.", `name="f.approved" value="true"`, `name="f.approved" value="false"`, "Approve: yes", `<button disabled hidden>`,
		`type="number" step="any" value="7" required`, `type="number" step="1"`, `<textarea id="f.note"`, `type="date"`, "<i>Name", `<option value=""small"" selected>`,
		`<textarea id="f.more"`, "<eve>", "task answer-step")
	if strings.Contains(got.text, "<i>Name") || strings.Contains(got.text, "<eve>") {
		t.Error("the page has what it shows as it was written")
	}
	h.shows(h.post(page+"/answer", "actor=bo", "f.approved=true", "f.amount=900", "f.count=1.5", "f.day=tomorrow", "f.note=<u>", "f.more=[1"), http.StatusBadRequest,
		`id="f.amount-problem">Maximum: got 900`, `id="f.count-problem">Must be of type integer`, `id="f.day-problem">`, `id="f.more-problem">`, "<u></textarea>", `value="900"`)
	h.shows(h.post(page+"/answer", "actor=bo", "f.amount=7"), http.StatusBadRequest, `id="f.approved-problem">Is missing`)
	h.shows(h.post(page+"/answer", "actor=bo", "f.approved=true", "f.amount=7", "f.count=3", "f.size=\"large\"", "f.more=[1, 2]", "f.name= x "), http.StatusOK, "Step approve was answered.")
	step, err := h.DB.Step(t.Context(), task, steps[0].UUID)
	h.Must(err)
	if want := `{"more": [1, 2], "name": " x ", "size": "large", "count": 3, "amount": 7, "approved": true}`; !strings.Contains(string(step.Results), want) {
		t.Errorf("the result is %s", step.Results)
	}
	h.shows(h.get(page+"/answer"), http.StatusConflict, "The step is complete and does not wait")

	h.shows(h.get(later+"/answer"), http.StatusOK, `<textarea id="result"`)
	h.shows(h.post(later+"/answer", "actor=bo", "result="), http.StatusBadRequest, "The answer is missing")
	h.shows(h.post(later+"/answer", "actor=", "result=1"), http.StatusBadRequest, "Your name is missing")
	h.shows(h.post(later+"/answer", "actor=bo", "result={"), http.StatusBadRequest, "JSON")
	h.shows(h.post(later+"/answer", "actor=bo", `result={"ok": true}`), http.StatusOK, "was answered")
	h.shows(h.get("/ui/inbox"), http.StatusOK, "No waiting steps")
}
