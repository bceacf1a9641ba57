package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/notice"
)

// Incidents are listed newest first, a page at a time, by state and namespace; one is shown
// with its cases and with what became of each of its messages.
func TestIncidents(t *testing.T) {
	h := newHarness(t)
	shop, attic := h.tenant("shop"), h.tenant("attic")
	h.Exec(`UPDATE tasker.incidents SET began_at = began_at - interval '1 hour', ended_at = now(), unowned_since = NULL WHERE namespace = 'shop'`)
	h.Exec(`INSERT INTO tasker.message_emissions (sink, position, subject_id) SELECT 'log', position, subject_id FROM tasker.messages WHERE namespaces = '{attic}'`)
	for _, c := range []struct{ query, want string }{
		{"", "[attic shop] false"}, {"?state=open", "[attic] false"}, {"?state=ended", "[shop] false"}, {"?namespace=shop", "[shop] false"},
		{"?namespace=other", "[] false"}, {"?limit=1", "[attic] true"}, {"?limit=1&offset=1", "[shop] false"},
	} {
		l := want[apiv1.IncidentList](h, http.StatusOK, "GET", "/v1/incidents"+c.query, nil)
		names := []string{}
		for _, i := range l.Incidents {
			names = append(names, i.Namespace)
		}
		if got := fmt.Sprint(names, l.Pagination.HasMore); got != c.want {
			t.Errorf("%q: %s, want %s", c.query, got, c.want)
		}
	}
	h.wantError(http.StatusBadRequest, "INVALID", "state", "GET", "/v1/incidents?state=gone", nil)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not found", "GET", "/v1/incidents/"+shop.ids["case_id"], nil)

	d := want[tasker.IncidentDetail](h, http.StatusOK, "GET", attic.at("/v1/incidents/{incident_id}"), nil)
	if d.State != "open" || d.Entries != 1 || d.Cases != 1 || d.CasesOpen != 1 || d.UnownedCases != 1 || d.LeadCaseID.String() != attic.ids["case_id"] || d.Messages != 1 {
		t.Errorf("%+v", d.Incident)
	}
	if len(d.Members) != 1 || d.Members[0].ID.String() != attic.ids["case_id"] || d.Members[0].Entries != 1 {
		t.Errorf("%+v", d.Members)
	}
	if len(d.Notifications) != 1 || d.Notifications[0].Topic != "case.opened" || len(d.Notifications[0].Emissions) != 1 || d.Notifications[0].Emissions[0].State != "pending" {
		t.Errorf("%+v", d.Notifications)
	}
	h.Exec(`UPDATE tasker.cases SET owner = 'anna', owned_until = now() + interval '1 hour' WHERE namespace = 'attic'`)
	if d = want[tasker.IncidentDetail](h, http.StatusOK, "GET", attic.at("/v1/incidents/{incident_id}"), nil); fmt.Sprint(d.Owners, d.UnownedCases) != "[anna] 0" {
		t.Errorf("%v %d", d.Owners, d.UnownedCases)
	}
	if d = want[tasker.IncidentDetail](h, http.StatusOK, "GET", shop.at("/v1/incidents/{incident_id}"), nil); d.State != "ended" || d.Entries != 0 {
		t.Errorf("%+v", d.Incident)
	}
}

// A test of the routes goes to the sinks of the first that is for it, and says so; it is in
// the audit log.
func TestMessageRoutesCanBeTested(t *testing.T) {
	h := newHarness(t, func(o *api.Options) {
		list, err := notice.ParseRoutes("namespace=shop severity=high -> pager, chat; cause=503 -> duty; -> chat")
		if err != nil {
			t.Fatal(err)
		}
		o.Teller = emission.NewNotifier(emission.NotifierOptions{DB: o.DB, Installation: "prod", Routes: notice.Routes{List: list, Takes: map[string][]string{"pager": {"case.*"}}}})
	})
	for _, c := range []struct {
		body map[string]any
		want string
	}{
		{map[string]any{"namespace": "shop", "severity": "critical", "by": "ann"}, "[1 3] [chat]"}, // the pager takes no tests
		{map[string]any{"namespace": "shop"}, "[3] [chat]"},
		{map[string]any{"namespace": "other", "cause": "HTTP 503", "reason": "max_retries_exceeded"}, "[2 3] [duty]"},
	} {
		got := want[apiv1.TriedMessage](h, http.StatusOK, "POST", "/v1/messages/test", c.body)
		if text := fmt.Sprint(got.Routes, got.Sinks); text != c.want {
			t.Errorf("%v: %s, want %s", c.body, text, c.want)
		}
		if n := h.Count(`SELECT count(*) FROM tasker.messages m JOIN tasker.message_emissions e USING (position) WHERE m.subject_id = $1::uuid AND m.topic = 'message.test'`, got.SubjectID); n != 1 {
			t.Errorf("%v: %d on the lists of sinks", c.body, n)
		}
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'message.test'`); n != 3 {
		t.Errorf("%d in the audit log", n)
	}
	h.wantError(http.StatusBadRequest, "INVALID", "namespace", "POST", "/v1/messages/test", map[string]any{})
	h.wantError(http.StatusBadRequest, "INVALID", "severity", "POST", "/v1/messages/test", map[string]any{"namespace": "shop", "severity": "bad"})
}
