package web_test

import (
	"net/http"
	"testing"

	"tasker.example/tasker"
)

// The page of a task offers another version of its template if there is one, says what would
// become of the steps or why it cannot be done, and does it.
func TestTheVersionOfATaskIsChanged(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("reserve"), step("charge", "reserve"))
	task := h.create("order", `{}`)
	path := pageOf(task) + "/version"
	h.lacks(h.get(pageOf(task)), path)
	h.refused(h.get(path), http.StatusConflict, "no other version for new tasks")
	for version, steps := range map[string][]tasker.StepTemplate{
		"1.1.0": {step("reserve"), step("charge", "reserve"), step("ship", "charge")}, "0.9.0": {step("charge")},
	} {
		_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: h.Space, Name: "order", Version: version, Steps: steps}, "")
		h.Must(err)
	}
	h.sees(h.get(pageOf(task)), `href="`+path+`"`)
	r := h.get(path + "?to=0.9.0")
	h.refused(r, http.StatusConflict, "cannot move to version 0.9.0")
	h.sees(r, "the new version has no step reserve", "begun_step_missing", `href="?to=1.1.0"`)
	h.refused(h.get(path+"?to=7.0.0"), http.StatusConflict, "not found")
	h.sees(h.get(path+"?to=1.1.0"), "Unchanged: reserve, charge.", "Added: ship.", "task change-version "+task.String(), "--to 1.1.0", "/change_version")
	h.refused(h.post(path, "actor=Kim", "to=1.1.0"), http.StatusBadRequest, "The reason is missing")
	h.refused(h.post(path, "actor=Kim", "from=0.9.0", "to=1.1.0", "reason=it ships now"), http.StatusConflict, "has version 1.0.0, not 0.9.0")
	h.sees(h.get(path+"?to=1.1.0"), `name="from" value="1.0.0"`)
	r = h.post(path, "actor=Kim", "from=1.0.0", "to=1.1.0", "reason=it ships now")
	h.at(r, pageOf(task))
	h.sees(r, "The task has version 1.1.0.", "ship", "Kim")
	h.refused(h.post(path, "actor=Kim", "to=1.1.0", "reason=again"), http.StatusConflict, "already has version 1.1.0")
}
