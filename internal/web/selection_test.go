package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

// Everything that fits the filter of a list is one operation, also from a terminal.
func TestAPlanOfAFilter(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.Template("refund", step("pay"))
	h.fail("order", "charge", "declined", 3)
	h.fail("refund", "pay", "closed", 2)
	h.FindCases()
	for path, link := range map[string]string{
		"/ui/?namespace=shop":                   `href="/ui/plan?all=1&namespace=shop" data-key="r" data-does="plan an operation on all that match the filter">Retry all 5…`,
		"/ui/?template=order":                   `href="/ui/plan?all=1&template=order" data-key="r" data-does="plan an operation on all that match the filter">Retry all 3…`,
		"/ui/?view=entries&text=closed&limit=1": `href="/ui/plan?all=1&text=closed&view=entries" data-key="r" data-does="plan an operation on all that match the filter">Retry all 2…`,
		"/ui/?namespace=shop&reason=max_retries_exceeded&state=error&recovered=false&age=0s": `href="/ui/plan?all=1&namespace=shop&reason=max_retries_exceeded&recovered=false&state=error"`,
		"/ui/?case=" + h.caseOf("refund").String():                                           `href="/ui/plan?all=1&case=` + h.caseOf("refund").String() + `" data-key="r" data-does="plan an operation on all that match the filter">Retry all 2…`,
	} {
		h.shows(h.get(path), http.StatusOK, link)
	}
	for _, path := range []string{"/ui/", "/ui/?view=entries", "/ui/?namespace=bank", "/ui/?namespace=shop&unowned=true", "/ui/?template=order&case_state=new", "/ui/?text=nowhere"} {
		h.lacks(h.get(path), "/ui/plan?all=1")
	}
	path := "/ui/plan?all=1&template=order&text=charge&state=error&recovered=false&view=entries"
	form := h.get(path)
	h.shows(form, http.StatusOK, "Plan: <bdi>all that match: template order, task state error, text “charge”, not recovered", "3 open investigations match the filter.", "The most urgent 3 of 3",
		"They can have different causes", `href="/ui/?recovered=false&state=error&template=order&text=charge&view=entries"`)
	abort := func() {
		t.Helper()
		_, err := h.ops.Abort(t.Context(), h.newestOperation().UUID, "ann")
		h.Must(err)
	}
	fields := []string{"actor=ann", "reason=the bank is back", "waves=1", "tolerate=2%", "key=k"}
	r := h.post(path, fields...)
	h.shows(r, http.StatusOK, "Start with 1 step", "3 steps are frozen")
	o := h.newestOperation()
	f := o.Selection.Filter
	if f.Name != "order" || f.Text != "charge" || f.State != tasker.TaskError || f.Recovered == nil || *f.Recovered || o.Items != 3 {
		t.Errorf("planned %+v", o)
	}
	if again := h.post(path, fields...); again.url != r.url {
		t.Errorf("the same form again goes on to %s, not to %s", again.url, r.url)
	}
	h.shows(h.post("/ui/plan?all=1&namespace=shop", append(fields, "key=other")...), http.StatusConflict, "includes 3 of the selected steps", ">the bank is back</textarea>")
	page := "/ui/operations/" + o.UUID.String()
	h.fail("order", "charge", "declined", 1)
	h.shows(h.get(page), http.StatusOK, "template order, task state error, text “charge”, not recovered", "1 investigation opened since the plan",
		`<a href="/ui/plan?all=1&recovered=false&state=error&template=order&text=charge">Plan it</a>`)
	abort()
	h.Exec(`ALTER TABLE tasker.tasks_dlq DISABLE TRIGGER entry_evidence_never_changes`)
	h.Exec(`UPDATE tasker.tasks_dlq SET dlq_timestamp = dlq_timestamp - interval '2 minutes', created_at = created_at - interval '2 minutes', priority_at = priority_at - interval '2 minutes'`)
	h.Exec(`ALTER TABLE tasker.tasks_dlq ENABLE TRIGGER entry_evidence_never_changes`)
	cli, curl := h.calls(h.get(path + "&age=30s&namespace=shop&reason=max_retries_exceeded"))
	if line := strings.Join(cli, " "); !strings.Contains(line, "--min-age 1m ") || !strings.Contains(line, "--recovered=false ") {
		t.Errorf("the command is %q", cli)
	}
	for _, send := range []func(){func() { h.ctl(cli) }, func() { h.curl(curl) }} {
		before := o.UUID
		send()
		o = h.newestOperation()
		if f := o.Selection.Filter; o.UUID == before || o.Items != 4 || f.Age != time.Minute || f.Namespace != "shop" || f.Reason != tasker.MaxRetriesExceeded || f.Text != "charge" {
			t.Errorf("planned %+v", o)
		}
		abort()
	}
	for path, says := range map[string]string{
		"/ui/plan?all=1": "The filter is empty", "/ui/plan?all=1&owner=ann&namespace=shop": "Invalid owner", "/ui/plan?all=1&id=" + newID().String(): "Invalid id", "/ui/plan?all=1&age=long": "Invalid age",
		"/ui/plan?all=1&failed_since=now": "Invalid failed_since", "/ui/plan?all=perhaps": "Invalid all", "/ui/plan?all=1&state=odd": "Invalid state",
	} {
		h.shows(h.get(path), http.StatusBadRequest, says)
	}
	h.shows(h.get("/ui/plan?all=1&template=parcel"), http.StatusConflict, "The filter matches no open investigation on which you have permission to operate")
}

// A plan may be of those steps only that failed on a version of workers, or since an instant.
func TestAPlanOfWhatFailedOnAVersion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(2)
	h.Exec(`UPDATE tasker.workers SET version = '1.6.0-rc'`)
	path := "/ui/plan?all=1&failed_on=1.6.0-rc"
	h.shows(h.get(path), http.StatusOK, `name="failed_on" value="1.6.0-rc"`, "operation plan --failed-on 1.6.0-rc --reset")
	fields := []string{"actor=ann", "reason=why", "waves=1", "tolerate=2%", "key=k"}
	h.shows(h.post("/ui/plan?all=1&namespace=shop", append(fields, "failed_on=1.5.0")...), http.StatusConflict, "No open investigation", `name="failed_on" value="1.5.0"`)
	h.shows(h.post("/ui/plan?all=1&namespace=shop", append(fields, "failed_since=2100-01-01T00:00:00Z")...), http.StatusConflict, "No open investigation")
	h.shows(h.post("/ui/plan?all=1&namespace=shop", append(fields, "failed_since=soon")...), http.StatusBadRequest, "Invalid time", `name="failed_since" value="soon"`)
	h.shows(h.post("/ui/plan?all=1&namespace=shop", append(fields, "failed_on="+strings.Repeat("x", 256))...), http.StatusBadRequest, "Invalid version")
	r := h.post(h.casePath("order")+"/run", append(fields, "failed_on=1.6.0-rc", "failed_since=2020-01-01T00:00:00Z")...)
	h.shows(r, http.StatusOK, "2 steps are frozen")
	h.shows(h.get(strings.TrimSuffix(r.url, "/start")), http.StatusOK, "the open investigations of a case</a>: <bdi>failed on workers of version 1.6.0-rc, failed since 2020-01-01 00:00:00 UTC")
}

// A plan says which workers take its steps, on the page and in the calls that it shows.
func TestAPlanSaysWhichWorkersTakeItsSteps(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(2)
	path := h.casePath("order") + "/run"
	fields := []string{"actor=ann", "reason=kept", "waves=1", "tolerate=2%", "key=k"}
	h.shows(h.post(path, append(fields, "worker_at_least=new")...), http.StatusBadRequest, "must be a semantic version", `name="worker_at_least" value="new"`, "--worker-at-least new", `"worker_at_least":"new"`)
	h.shows(h.post(path, append(fields, "worker_at_least=1.6.0", "act=resolve_manually")...), http.StatusBadRequest, "only allowed with reset_for_retry", ">kept</textarea>")
	r := h.post(path, append(fields, "worker_at_least=1.6.0")...)
	h.shows(r, http.StatusOK, "Only workers of version <bdi>1.6.0</bdi> or newer claim the steps.")
	page := strings.TrimSuffix(r.url, "/start")
	h.shows(h.get(page), http.StatusOK, "<dt>Workers</dt><dd>version <bdi>1.6.0</bdi> or newer")
	o := h.newestOperation()
	if o.Guards.WorkerAtLeast != "1.6.0" {
		t.Errorf("planned %+v", o.Guards)
	}
	_, err := h.ops.Abort(t.Context(), o.UUID, "ann")
	h.Must(err)
	r = h.post(path, append(fields, "key=l")...)
	h.lacks(r, "Only workers of version")
	h.shows(h.get(strings.TrimSuffix(r.url, "/start")), http.StatusOK, "<dt>Workers</dt><dd>any version")
}

// A plan of a filter is of the namespaces in which the caller may operate steps.
func TestAPlanOfAFilterStaysWhereTheCallerMayOperate(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asking)
	h.declined(2)
	both, other, operator := h.signedIn("both", "viewer@shop", "operator@bank"), h.signedIn("other", "operator@bank"), h.signedIn("one", "operator@shop")
	operator.sees(operator.get("/ui/?template=order"), "Retry all 2")
	r := both.get("/ui/?template=order")
	both.sees(r, "shop/order")
	both.lacks(r, "/ui/plan?all=1")
	h.shows(both.get("/ui/plan?all=1&namespace=shop"), http.StatusForbidden, "steps:operate")
	h.shows(both.get("/ui/plan?all=1&template=order"), http.StatusConflict, "The filter matches no open investigation on which you have permission to operate")
	h.shows(other.get("/ui/plan?all=1&namespace=shop"), http.StatusForbidden, "steps:operate in namespace shop")
	r = other.get("/ui/plan?all=1&template=order")
	h.shows(r, http.StatusConflict, "The filter matches no open investigation on which you have permission to operate")
	other.lacks(r, "declined")
}
