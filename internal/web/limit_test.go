package web_test

import (
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/auth"
)

// A limit is set, listed and shown with its keys, changed and deleted on its page.
func TestALimitOnItsPage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: "shop", Name: "order", Version: "1.0.0", Steps: []tasker.StepTemplate{step("charge")},
		Limits: []tasker.LimitTemplate{{Name: "customer", Key: "context.customer", MaxInProgress: 1}},
	}, "")
	h.Must(err)
	h.shows(h.get("/ui/limits"), http.StatusOK, "shop: customer", "1 in progress per key", "template", `href="/ui/set-limit"`)
	const byName = "/ui/limit?kind=name&name=customer&namespace=shop"
	h.shows(h.get(byName), http.StatusOK, "Not used yet", "none waiting", "Change…")
	first := h.create("order", `{"customer":"<acme>"}`)
	h.create("order", `{"customer":"<acme>"}`)
	list := h.claim(10)
	if len(list) != 1 {
		t.Fatalf("%d steps are handed out, want 1", len(list))
	}
	h.shows(h.get("/ui/limits?namespace=shop"), http.StatusOK, "Namespace <bdi>shop</bdi>", `<span class="chip warn">1</span>`)
	h.shows(h.get(byName), http.StatusOK, "1 waiting", "<bdi><acme></bdi>", `href="/ui/tasks/`+first.String()+`"`)
	h.shows(h.get("/ui/workers"), http.StatusOK, `<a href="/ui/limits?namespace=shop">1</a>`)
	r := h.get("/ui/delete-limit?kind=name&name=customer&namespace=shop")
	h.shows(r, http.StatusOK, "Waiting steps become claimable", "limit delete name --namespace shop --name customer")
	h.shows(h.post("/ui/delete-limit?kind=name&name=customer&namespace=shop", "kind=name", "namespace=shop", "name=customer", "actor=bo", "reason=x"), http.StatusConflict, "is used by templates")

	h.shows(h.get("/ui/set-limit?kind=name&name=customer&namespace=shop"), http.StatusOK, `name="max" value="1"`, "limit set name --namespace shop --name customer", "/v1/limits")
	set := func(fields ...string) reply {
		return h.post("/ui/set-limit", append([]string{"actor=bo", "reason=the provider asks"}, fields...)...)
	}
	for _, c := range []struct{ fields, words string }{
		{"", "nvalid limit kind"}, {"kind=handler&namespace=shop", "requires a namespace and a name"}, {"kind=namespace&namespace=shop", "max_in_progress or per_second"},
		{"kind=namespace&namespace=shop&max=many", "must be a whole number"}, {"kind=namespace&namespace=shop&rate=fast", "must be a number"},
		{"kind=namespace&namespace=shop&max=20000", "must be from 1 to 10000"}, {"kind=namespace&namespace=shop&max=2&burst=5", "requires per_second"},
	} {
		r := set(strings.Split(c.fields, "&")...)
		h.refused(r, http.StatusBadRequest, c.words, "the provider asks")
	}
	h.shows(set("kind=handler", "namespace=shop", "name=pay/card", "max=3", "rate=2.5", "burst=4"), http.StatusOK, "The limit is 3 in progress, 2.5/s, burst 4.", "shop: handler pay/card", "Delete…")
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'limit.set' AND actor = 'bo' AND subject = 'handler/shop/pay/card' AND data ->> 'reason' = 'the provider asks'`); n != 1 {
		t.Errorf("%d lines of the audit log say who set it", n)
	}
	const byHandler = "kind=handler&name=pay%2Fcard&namespace=shop"
	h.shows(h.get("/ui/set-limit?"+byHandler), http.StatusOK, `name="rate" value="2.5"`, `name="burst" value="4"`)
	h.shows(h.post("/ui/delete-limit?"+byHandler, "kind=handler", "namespace=shop", "name=pay/card", "actor=bo", "reason=done"), http.StatusOK, "is deleted")
	h.shows(h.get("/ui/limit?"+byHandler), http.StatusNotFound, "not found")
	h.shows(h.get("/ui/limit?kind=tasks"), http.StatusBadRequest, "nvalid limit kind")
	h.shows(h.get("/ui/limits?after=x"), http.StatusBadRequest, "nvalid limit kind")
}

// Operators set the limits of their namespaces. Keys are of the contexts of tasks: without
// payloads:read nobody sees them.
func TestWhoMaySetALimit(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	st := newStuck(t, askingWith(&a))
	_, _, err := st.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: "shop", Name: "limited", Version: "1.0.0", Steps: []tasker.StepTemplate{step("charge")},
		Limits: []tasker.LimitTemplate{{Name: "customer", Key: "context.customer", MaxInProgress: 1}},
	}, "")
	st.Must(err)
	st.create("limited", `{"customer":"secret-acme"}`)
	_ = st.claim(10)
	const page = "/ui/limit?kind=name&name=customer&namespace=shop"
	viewer, operator, root := st.signedIn("vera", "viewer@shop"), st.signedIn("olga", "operator@shop"), st.signedIn("root", "admin@*")
	if r := viewer.get(page); r.status != http.StatusOK || strings.Contains(r.text, "secret-acme") || !strings.Contains(r.text, "[hidden]") || strings.Contains(r.text, "set-limit") {
		t.Errorf("a viewer sees %d %.3000s", r.status, r.text)
	}
	st.shows(operator.get(page), http.StatusOK, "secret-acme", "set-limit")
	st.shows(st.signedIn("eve", "operator@bank").get(page), http.StatusNotFound, "not found")
	operator.refused(operator.post("/ui/set-limit", "kind=server", "max=5", "reason=r"), http.StatusForbidden, "Only administrators of all namespaces")
	operator.refused(operator.post("/ui/set-limit", "kind=namespace", "namespace=bank", "max=5", "reason=r"), http.StatusForbidden, "steps:operate in namespace bank")
	if strings.Contains(operator.get("/ui/set-limit").text, `value="server"`) || !strings.Contains(root.get("/ui/set-limit").text, `value="server"`) {
		t.Error("the form does not offer the limit of the server to those who may set it, and to nobody else")
	}
	if r := operator.post("/ui/set-limit", "kind=namespace", "namespace=shop", "max=5", "reason=r"); r.status != http.StatusSeeOther {
		t.Errorf("an operator sets the limit of a namespace: %d", r.status)
	}
	if r := root.post("/ui/set-limit", "kind=server", "max=5", "reason=r"); r.status != http.StatusSeeOther {
		t.Errorf("an administrator sets the limit of the server: %d", r.status)
	}
	if r := operator.get("/ui/limits"); strings.Contains(r.text, "the server") || !strings.Contains(r.text, "kind=namespace") {
		t.Errorf("an operator of a namespace sees %.3000s", r.text)
	}
	root.shows(root.get("/ui/limits"), http.StatusOK, "the server", "5 in progress")
}
