package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/hold"
)

// A hold is begun, found, extended, probed and released over the API.
func TestHolds(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	h.stuck(worker)
	c := want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases", nil).Cases[0]

	first := want[tasker.Hold](h, http.StatusCreated, "POST", "/v1/holds", apiv1.BeginHold{Namespace: "shop", Handler: "run", ForSeconds: 3600, Owner: "bo", Reason: "PSP outage"})
	if first.State != "active" || first.Kind != "manual" || !first.Blocks || first.Owner != "bo" || first.Handler != "run" || first.EndsAt.Sub(first.BeganAt).Round(time.Second) != time.Hour {
		t.Errorf("%+v", first)
	}
	p := h.wantError(http.StatusConflict, "CONFLICT", "already has this scope", "POST", "/v1/holds", apiv1.BeginHold{Namespace: "shop", Handler: "run", ForSeconds: 60, By: "bo", Reason: "again"})
	if got := string(p.Error.Details); got != `{"hold_uuid":"`+first.UUID.String()+`"}` {
		t.Errorf("the details of the conflict are %s", got)
	}
	until := time.Now().Add(2 * time.Hour)
	second := want[tasker.Hold](h, http.StatusCreated, "POST", "/v1/holds", apiv1.BeginHold{CaseID: c.ID.String(), Until: &until, By: "anna", Reason: "of a case"})
	if second.Namespace != "shop" || second.TaskName != c.TaskName || second.StepName != c.StepName || second.CaseID == nil || *second.CaseID != c.ID || second.Owner != "anna" {
		t.Errorf("%+v", second)
	}
	other := want[tasker.Hold](h, http.StatusCreated, "POST", "/v1/holds", apiv1.BeginHold{Namespace: "attic", ForSeconds: 60, By: "bo", Reason: "r"})

	listed := func(query, names string) apiv1.HoldList {
		t.Helper()
		l := want[apiv1.HoldList](h, http.StatusOK, "GET", "/v1/holds?"+query, nil)
		text := map[string]string{first.UUID.String(): "first", second.UUID.String(): "second", other.UUID.String(): "other"}
		got := []string{}
		for _, x := range l.Holds {
			got = append(got, text[x.UUID.String()])
		}
		if fmt.Sprint(got) != names {
			t.Errorf("%q lists %v, want %s", query, got, names)
		}
		return l
	}
	listed("", "[other second first]")
	listed("namespace=attic", "[other]")
	page := listed("limit=2", "[other second]").Pagination
	if !page.HasMore || page.Count != 2 || page.NextBefore == nil {
		t.Fatalf("%+v", page)
	}
	if page = listed("limit=2&before="+*page.NextBefore, "[first]").Pagination; page.HasMore || page.NextBefore != nil {
		t.Errorf("%+v", page)
	}

	path := "/v1/holds/" + first.UUID.String()
	extended := want[tasker.Hold](h, http.StatusOK, "POST", path+"/extend", apiv1.ExtendHold{ForSeconds: 7200, Owner: "anna", By: "bo", Reason: "it takes longer"})
	if extended.Owner != "anna" || !extended.EndsAt.After(first.EndsAt) {
		t.Errorf("%+v", extended)
	}
	h.wantError(http.StatusConflict, "CONFLICT", "has no parked steps", "POST", path+"/probe", apiv1.ProbeHold{By: "bo"})
	released := want[tasker.Hold](h, http.StatusOK, "POST", path+"/release", apiv1.ReleaseHold{Waves: &[]int{2, 5}, By: "anna", Reason: "it is back"})
	if released.State != "releasing" || fmt.Sprint(released.Waves) != "[2 5]" {
		t.Errorf("%+v", released)
	}
	h.wantError(http.StatusConflict, "CONFLICT", "releasing", "POST", path+"/extend", apiv1.ExtendHold{ForSeconds: 60, By: "bo", Reason: "r"})
	h.wantError(http.StatusConflict, "CONFLICT", "releasing", "POST", path+"/probe", apiv1.ProbeHold{By: "bo"})
	h.wantError(http.StatusConflict, "CONFLICT", "already", "POST", path+"/release", apiv1.ReleaseHold{By: "bo", Reason: "r"})
	d := want[tasker.HoldDetail](h, http.StatusOK, "GET", path, nil)
	if len(d.History) != 3 || d.History[0].Event != tasker.HoldReleaseBegan || d.History[0].Actor != "anna" || *d.History[0].Reason != "it is back" ||
		d.History[2].Event != tasker.HoldBegan || d.History[2].Actor != "bo" || len(d.Releases) != 0 {
		t.Errorf("%+v", d)
	}
	h.Exec(`UPDATE tasker.holds SET state = 'ended', blocks = false, ended_at = now() WHERE hold_uuid = $1::uuid`, first.UUID.String())
	listed("open=true", "[other second]")
	listed("open=true&namespace=shop", "[second]")
}

// What a hold lets go as a probe is told with what became of it.
func TestProbesOfAHold(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	holds := hold.New(e.DB, e.Engine, hold.Options{})
	h := serve(t, e)
	e.Template("refund", enginetest.Once(enginetest.Step("charge")))
	worker := e.RegisterWorker("run")
	task := e.Create("refund")
	e.Create("refund")
	held := want[tasker.Hold](h, http.StatusCreated, "POST", "/v1/holds", apiv1.BeginHold{Namespace: enginetest.Namespace, ForSeconds: 3600, By: "bo", Reason: "PSP outage"})
	_, err := holds.ParkSteps(h.Context())
	h.Must(err)
	path := "/v1/holds/" + held.UUID.String()
	if d := want[tasker.HoldDetail](h, http.StatusOK, "GET", path, nil); d.Held != 2 || d.HeldIsAtLeast {
		t.Fatalf("it holds %d steps", d.Held)
	}
	asked := want[tasker.Hold](h, http.StatusOK, "POST", path+"/probe", apiv1.ProbeHold{By: "anna", Reason: "is it back?"})
	if asked.NextProbeAt == nil {
		t.Errorf("no probe is due: %+v", asked)
	}
	_, err = holds.AdvanceHolds(h.Context())
	h.Must(err)
	h.wantError(http.StatusConflict, "CONFLICT", "already running", "POST", path+"/probe", apiv1.ProbeHold{By: "anna"})
	list, err := h.Engine.Claim(h.Context(), worker, 10, 0)
	h.Must(err)
	if len(list) != 1 || list[0].TaskUUID != task {
		t.Fatalf("%d steps are handed out", len(list))
	}
	_, err = h.Engine.Report(h.Context(), worker, []tasker.Outcome{{Lease: list[0].Lease(), Failure: &tasker.Failure{Message: "HTTP 503", Type: "Gateway"}}}, 0)
	h.Must(err)
	_, err = holds.AdvanceHolds(h.Context())
	h.Must(err)
	d := want[tasker.HoldDetail](h, http.StatusOK, "GET", path, nil)
	if d.Probes != 1 || d.FailedProbes != 1 || len(d.Releases) != 1 || d.Releases[0].Outcome != "failed" || d.Releases[0].TaskUUID != task ||
		d.Releases[0].Failure == nil || *d.Releases[0].Failure != "HTTP 503" || d.Releases[0].Wave != 0 || d.Releases[0].JudgedAt == nil {
		t.Errorf("%+v", d)
	}
}

// What is wrong with a request about a hold is said, and changes nothing.
func TestHoldsRefuse(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	held := want[tasker.Hold](h, http.StatusCreated, "POST", "/v1/holds", apiv1.BeginHold{Namespace: "shop", ForSeconds: 60, By: "bo", Reason: "r"})
	path, gone := "/v1/holds/"+held.UUID.String(), "/v1/holds/"+tasker.NewID().String()
	before := h.fingerprint()
	soon := time.Now().Add(time.Hour)
	for _, c := range []struct {
		status       int
		method, path string
		body         any
		words        string
	}{
		{400, "POST", "/v1/holds", apiv1.BeginHold{ForSeconds: 60, By: "bo", Reason: "r"}, "namespace is missing"},
		{400, "POST", "/v1/holds", apiv1.BeginHold{Namespace: "a", By: "bo", Reason: "r"}, "needs an end"},
		{400, "POST", "/v1/holds", apiv1.BeginHold{Namespace: "a", ForSeconds: 60, Until: &soon, By: "bo", Reason: "r"}, "exactly one of until and for"},
		{400, "POST", "/v1/holds", apiv1.BeginHold{Namespace: "a", ForSeconds: 60, Reason: "r"}, "owner is missing"},
		{400, "POST", "/v1/holds", apiv1.BeginHold{Namespace: "a", ForSeconds: 60, By: "bo"}, "reason"},
		{400, "POST", "/v1/holds", apiv1.BeginHold{Namespace: "a", ForSeconds: 59, By: "bo", Reason: "r"}, "for_seconds"},
		{400, "POST", "/v1/holds", apiv1.BeginHold{Namespace: "a", ForSeconds: 86401, By: "bo", Reason: "r"}, "for_seconds"},
		{400, "POST", "/v1/holds", apiv1.BeginHold{CaseID: "x", ForSeconds: 60, By: "bo", Reason: "r"}, "case_id"},
		{400, "POST", "/v1/holds", apiv1.BeginHold{CaseID: tasker.NewID().String(), Namespace: "a", ForSeconds: 60, By: "bo", Reason: "r"}, "uses the scope of the case"},
		{404, "POST", "/v1/holds", apiv1.BeginHold{CaseID: tasker.NewID().String(), ForSeconds: 60, By: "bo", Reason: "r"}, "not found"},
		{400, "GET", "/v1/holds?before=x", nil, "before"},
		{400, "GET", "/v1/holds?open=x", nil, "open"},
		{400, "GET", "/v1/holds/x", nil, "hold_uuid"},
		{404, "GET", gone, nil, "not found"},
		{404, "POST", gone + "/probe", apiv1.ProbeHold{By: "bo"}, "not found"},
		{404, "POST", gone + "/extend", apiv1.ExtendHold{ForSeconds: 60, By: "bo", Reason: "r"}, "not found"},
		{404, "POST", gone + "/release", apiv1.ReleaseHold{By: "bo", Reason: "r"}, "not found"},
		{400, "POST", path + "/probe", apiv1.ProbeHold{}, "by is missing"},
		{400, "POST", path + "/extend", apiv1.ExtendHold{By: "bo", Reason: "r"}, "needs an end"},
		{400, "POST", path + "/release", apiv1.ReleaseHold{Reason: "r"}, "by is missing"},
		{400, "POST", path + "/release", apiv1.ReleaseHold{Waves: &[]int{0}, By: "bo", Reason: "r"}, "wave of 0"},
		{400, "POST", path + "/release", apiv1.ReleaseHold{Waves: new(make([]int, 21)), By: "bo", Reason: "r"}, "waves"},
	} {
		code := map[int]string{400: "INVALID", 404: "NOT_FOUND"}[c.status]
		h.wantError(c.status, code, c.words, c.method, c.path, c.body)
	}
	if h.fingerprint() != before {
		t.Error("a request that was refused has changed something")
	}
}

// Who begins or changes a hold may operate steps in its namespace, and is recorded as having
// done it. A hold, or a case, of another namespace does not exist.
func TestWhoMayHold(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t)
	shop := h.tenant("shop")
	both := h.bearer("both", "viewer@shop", "operator@attic")
	body := apiv1.BeginHold{Namespace: "attic", ForSeconds: 60, By: "bo", Reason: "r"}
	held := want[tasker.Hold](h, http.StatusCreated, "POST", "/v1/holds", body, both)
	if held.Owner != "key:both (bo)" {
		t.Errorf("the owner is %q", held.Owner)
	}
	d := want[tasker.HoldDetail](h, http.StatusOK, "GET", "/v1/holds/"+held.UUID.String(), nil, both)
	if d.History[0].Actor != "key:both (bo)" {
		t.Errorf("%q began it", d.History[0].Actor)
	}
	h.wantError(http.StatusForbidden, "FORBIDDEN", "steps:operate", "POST", "/v1/holds", apiv1.BeginHold{Namespace: "shop", ForSeconds: 60, Reason: "r"}, both)
	h.wantError(http.StatusForbidden, "FORBIDDEN", "steps:operate", "POST", "/v1/holds", apiv1.BeginHold{CaseID: shop.ids["case_id"], ForSeconds: 60, Reason: "r"}, both)
	h.wantError(http.StatusForbidden, "FORBIDDEN", "steps:operate", "POST", shop.at("/v1/holds/{hold_uuid}/release"), apiv1.ReleaseHold{Reason: "r"}, both)
	h.wantError(http.StatusForbidden, "FORBIDDEN", "steps:operate in namespace cellar", "POST", "/v1/holds", apiv1.BeginHold{Namespace: "cellar", ForSeconds: 60, Reason: "r"}, both)
	if l := want[apiv1.HoldList](h, http.StatusOK, "GET", "/v1/holds", nil, both); len(l.Holds) != 2 {
		t.Errorf("%d holds are listed", len(l.Holds))
	}
	if l := want[apiv1.HoldList](h, http.StatusOK, "GET", "/v1/holds", nil, h.bearer("alone", "operator@attic")); len(l.Holds) != 1 || l.Holds[0].UUID.String() != held.UUID.String() {
		t.Errorf("holds of another namespace are listed: %+v", l.Holds)
	}
}
