package engine_test

import (
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

// version registers a version of the template order.
func (h *harness) version(v string, steps ...tasker.StepTemplate) tasker.TemplateVersion {
	h.Helper()
	h.RegisterTemplate(tasker.Template{Namespace: h.Space, Name: "order", Version: v, Steps: steps})
	return tasker.TemplateVersion{Namespace: h.Space, Name: "order", Version: v}
}

func (h *harness) retire(v tasker.TemplateVersion, retired bool) tasker.StoredTemplate {
	h.Helper()
	t, err := h.DB.RetireTemplate(h.Context(), v, retired, postgres.Operator{Actor: "ann", Reason: "ships twice"})
	h.Must(err)
	return t
}

// wantVersion expects a task that names a version, or none, to be made of one.
func (h *harness) wantVersion(asked, want string) tasker.ID {
	h.Helper()
	id := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Version: asked})
	t := h.Task(id)
	require(h, t.Version == want, "the task is of version %s, want %s", t.Version, want)
	return id
}

func TestRetiredVersionGetsNoNewTasks(t *testing.T) {
	h := newHarness(t)
	other := &harness{h.Copy(t)}
	old, newer := h.version("1.0.0", enginetest.Step("one")), h.version("1.1.0", enginetest.Step("one"), enginetest.Step("two", "one"))
	open := h.wantVersion("", "1.1.0")
	other.wantVersion("", "1.1.0")
	other.wantVersion("1.1.0", "1.1.0")
	r := h.retire(newer, true).Retired
	check(t, r != nil && r.By == "ann" && r.Reason == "ships twice", "retired: %+v", r)
	first := h.retire(newer, true).Retired.At // again changes nothing
	if again := h.retire(newer, true).Retired.At; !again.Equal(first) {
		t.Errorf("retired at %s and then at %s", first, again)
	}
	for _, server := range []*harness{h, other} {
		server.wantVersion("", "1.0.0")
		server.wantVersion("", "1.0.0") // remembered
		_, err := server.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "order", Version: "1.1.0"}})
		h.WantCode(err, tasker.Conflict, "order 1.1.0 does not accept new tasks", "by ann: ships twice", "unretire")
		_, err = server.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "order"}, {Namespace: h.Space, Name: "order", Version: "1.1.0"}})
		h.WantCode(err, tasker.Conflict, "tasks[1]")
	}
	h.retire(old, true)
	_, err := other.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "order"}})
	h.WantCode(err, tasker.NotFound, "no version of template", "the newest is 1.1.0")
	h.retire(newer, false)
	h.wantVersion("", "1.1.0")
	other.wantVersion("", "1.1.0")
	other.wantVersion("1.1.0", "1.1.0")
	h.WantCount(3, `SELECT count(*) FROM tasker.audit_events WHERE action IN ('template.retired', 'template.unretired') AND actor = 'ann' AND data ->> 'reason' = 'ships twice'`)
	for range 3 {
		h.succeedAll(h.Claim())
	}
	h.WantState(open, tasker.TaskComplete)
}

func TestUnknownVersionCannotBeRetired(t *testing.T) {
	h := newHarness(t)
	v := h.version("1.0.0", enginetest.Step("one"))
	for version, code := range map[string]tasker.Code{"2.0.0": tasker.NotFound, "": tasker.Invalid} {
		v.Version = version
		h.WantCode(errOf(h.DB.RetireTemplate(t.Context(), v, true, postgres.Operator{Actor: "ann", Reason: "x"})), code)
	}
}

func TestRegisteringARetiredVersionKeepsItRetired(t *testing.T) {
	h := newHarness(t)
	v := h.version("1.0.0", enginetest.Step("one"))
	h.wantVersion("", "1.0.0")
	h.retire(v, true)
	h.version("1.0.0", enginetest.Step("one"))
	_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "order"}})
	h.WantCode(err, tasker.NotFound, "no version of template")
	list, err := h.DB.Templates(t.Context(), h.Space, 10, 0)
	h.Must(err)
	if !slices.ContainsFunc(list, func(t tasker.StoredTemplate) bool {
		return t.Retired != nil && strings.Contains(t.Retired.Reason, "twice")
	}) {
		t.Errorf("the list says %+v", list)
	}
}
