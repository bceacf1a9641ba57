package web_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/web"
)

// Each page says why its subject is where it is, in the words that tasker-ctl explain prints.
func TestPagesExplainWaiting(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.Template("parcel", served("pack", "wrap/all"))
	failed := h.fail("order", "charge", "HTTP 503 <b>", 1)[0]
	waits := h.create("parcel", `{}`)
	e := h.Entry(failed)
	service := explain.New(h.DB, explain.Options{})
	same := func(path string, x tasker.Explanation, err error) {
		t.Helper()
		h.Must(err)
		unblocks, _, _ := strings.Cut(x.Remedy, " within ") // how long it is until then is another time on the page
		h.shows(h.get(path), http.StatusOK, "<strong>Why:</strong> <bdi>"+x.Message+"</bdi>", "Next: "+string(x.NextActor), "Unblocks: <bdi>"+unblocks,
			`Since <time datetime="`+x.Since.UTC().Format(time.RFC3339)+`"`)
	}
	of := func(id tasker.ID) (tasker.Explanation, error) { return service.Explain(t.Context(), id) }
	x, err := of(failed)
	same("/ui/tasks/"+failed.String(), x, err)
	if !strings.Contains(x.Message, "HTTP 503 <b>") {
		t.Errorf("%q", x.Message)
	}
	x, err = of(waits)
	same("/ui/tasks/"+waits.String(), x, err)
	x, err = of(e.UUID)
	same("/ui/investigations/"+e.UUID.String(), x, err)
	x, err = of(h.caseOf("order"))
	same(h.casePath("order"), x, err)
	for _, task := range []tasker.ID{failed, waits} {
		steps := h.steps(task)
		path := "/ui/tasks/" + task.String()
		asked := path + "?why=" + steps[0].UUID.String()
		h.shows(h.get(path), http.StatusOK, `<a class="hint" href="`+asked+`#why-step">Why?</a>`)
		h.lacks(h.get(path), `id="why-step"`)
		x, err = of(steps[0].UUID)
		same(asked, x, err)
		h.shows(h.get(asked), http.StatusOK, `id="why-step"`, "Step <a href=\"#step-"+steps[0].UUID.String()+`">`+steps[0].Name+"</a>:")
	}
	operation := h.planned("order")
	x, err = of(operation)
	same("/ui/operations/"+operation.String(), x, err)
	x, err = service.ExplainQueue(t.Context(), "shop", "wrap/all")
	same("/ui/queues/shop/wrap%2Fall", x, err)
	if x.Reason != tasker.ConditionNoWorker {
		t.Errorf("%+v", x)
	}
	h.shows(h.get("/ui/queues/shop/wrap%2Fall"), http.StatusOK, "<dt>Waiting</dt><dd>1 step</dd>", "<dt>Workers</dt><dd>0 alive, ")
	for _, from := range []string{"/ui/workers", "/ui/dashboard"} {
		h.shows(h.get(from), http.StatusOK, `href="/ui/queues/shop/wrap%2Fall"`)
	}
	h.work(func(tasker.Assignment) error { return errors.New("again") })
}

// Without payloads:read no message is in the reason, and without the permission to read tasks
// there is none.
func TestWhyShowsWhatTheCallerMaySee(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	h.Template("order", step("charge"))
	failed := h.fail("order", "charge", "the secret is out", 1)[0]
	e := h.Entry(failed)
	operator, viewer := h.signedIn("one", "operator@shop"), h.signedIn("viewer", "viewer@shop")
	for _, path := range []string{"/ui/tasks/" + failed.String(), "/ui/investigations/" + e.UUID.String(), h.casePath("order")} {
		operator.sees(operator.get(path), "<strong>Why:</strong>", "the secret is out")
		viewer.sees(viewer.get(path), "<strong>Why:</strong>")
		viewer.lacks(viewer.get(path), "the secret is out")
	}
}

// A page is there when the reason is not there in time.
func TestPageDoesNotWaitForTheExplanation(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *web.Options) { o.PartTimeout = 0 })
	h.Template("parcel", served("pack", "wrap"))
	task := h.create("parcel", `{}`)
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	defer func() { h.Must(tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE tasker.operation_items`)
	h.Must(err)
	h.shows(h.get("/ui/tasks/"+task.String()), http.StatusOK, "The database did not answer within 1s. Run tasker-ctl explain "+task.String(), "pack")
}

// A page explains steps of its own task only, and does not offer it for a step that has ended.
func TestUnfinishedStepsAreExplained(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	h.Template("order", step("charge"), step("ship", "charge"), step("bill", "ship"))
	failed := h.fail("order", "ship", "the secret is out", 1)[0]
	other := h.create("order", `{}`)
	operator, viewer := h.signedIn("one", "operator@shop"), h.signedIn("viewer", "viewer@shop")
	path := "/ui/tasks/" + failed.String()
	steps := h.steps(failed)
	for _, st := range steps {
		link := path + "?why=" + st.UUID.String() + "#why-step"
		if offered := strings.Contains(viewer.get(path).text, link); offered != (st.Name != "charge") {
			t.Errorf("the step %s is offered an explanation: %v", st.Name, offered)
		}
		asked := path + "?why=" + st.UUID.String()
		h.shows(viewer.get(asked), http.StatusOK, `id="why-step"`, ">"+st.Name+"</a>:")
		if st.Name == "ship" {
			operator.sees(operator.get(asked), "the secret is out")
			viewer.lacks(viewer.get(asked), "the secret is out")
		}
	}
	others := h.steps(other)
	h.shows(operator.get(path+"?why="+others[0].UUID.String()), http.StatusNotFound, "The task has no step")
	h.shows(operator.get(path+"?why=x"), http.StatusBadRequest, "Invalid why")
}
