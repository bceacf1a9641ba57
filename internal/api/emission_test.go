package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/postgres"
)

const reEmitPath = "/v1/dlq/emissions/re-emit"

// sinks makes sinks known and gives them all events there are.
func (h *harness) sinks(names ...string) {
	h.Helper()
	for _, name := range names {
		h.Must(h.DB.OpenSink(h.Context(), name))
	}
	if _, err := h.DB.ReEmit(h.Context(), postgres.ReEmission{Sinks: names, Of: postgres.Span{To: 1 << 50}, By: postgres.Operator{Actor: "test", Reason: "test"}}, 1000); err != nil {
		h.Fatal(err)
	}
}

func TestEmissionsAreListed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	if got := h.send("GET", "/v1/dlq/emissions", nil); got.status != http.StatusOK || !strings.Contains(got.text, `"emissions":[]`) || !strings.Contains(got.text, `"next_before":null`) {
		t.Errorf("nothing was sent: %+v", got)
	}
	if got := h.send("GET", "/v1/dlq/sinks", nil); got.text != "[]\n" {
		t.Errorf("no sinks: %s", got.text)
	}
	entries := h.investigate(5)
	h.sinks("webhook", "log", "rabbitmq")
	settled, err := h.DB.SettleEmissions(t.Context(), "webhook", []postgres.Emitted{
		{Position: 1, Attempts: 2, Published: true}, {Position: 2, Attempts: 1, Refused: true, Error: "400 no"}, {Position: 3, Attempts: 1, Error: "500 later"},
	}, 1)
	if err != nil || len(settled) != 1 {
		t.Fatal(settled, err)
	}

	// Pages give each emission once, the newest event first.
	for _, query := range []string{"limit=1", "limit=4", "limit=16", "limit=4&topic=dlq.entry.created"} {
		var all []string
		path := "/v1/dlq/emissions?" + query
		var limit int
		if _, err := fmt.Sscanf(query, "limit=%d", &limit); err != nil {
			t.Fatal(err)
		}
		for next := path; next != ""; {
			list := want[apiv1.EmissionList](h, http.StatusOK, "GET", next, nil)
			for _, e := range list.Emissions {
				all = append(all, fmt.Sprint(e.Position, e.Sink))
			}
			next = ""
			if p := list.Pagination; p.HasMore != (p.NextBefore != nil) || p.Count != len(list.Emissions) || p.Limit != limit || p.Count < min(limit, 1) {
				t.Fatalf("limit %d: %+v", limit, p)
			} else if p.HasMore {
				next = fmt.Sprintf("%s&before=%d", path, *p.NextBefore)
			}
		}
		const all15 = "5log 5rabbitmq 5webhook 4log 4rabbitmq 4webhook 3log 3rabbitmq 3webhook 2log 2rabbitmq 2webhook 1log 1rabbitmq 1webhook"
		if got := strings.Join(all, " "); got != all15 {
			t.Errorf("%s: %s", query, got)
		}
	}
	for query, count := range map[string]int{
		"": 15, "?sink=log": 5, "?state=pending": 13, "?state=published": 1, "?state=set_aside": 1, "?state=set_aside&sink=log": 0, "?sink=webhook&state=pending&before=4": 1,
		"?sink=nothing": 0, "?topic=task.failed": 0, "?topic=dlq.entry.created&sink=log&before=4": 3, "?before=1": 0, "?before=3&limit=1000": 6,
	} {
		list := want[apiv1.EmissionList](h, http.StatusOK, "GET", "/v1/dlq/emissions"+query, nil)
		if len(list.Emissions) != count || list.Pagination.HasMore {
			t.Errorf("%s: %d of them", query, len(list.Emissions))
		}
	}

	aside := want[apiv1.EmissionList](h, http.StatusOK, "GET", "/v1/dlq/emissions?state=set_aside", nil).Emissions[0]
	if aside.Position != 2 || aside.Refusals != 1 || aside.Attempts != 1 || *aside.LastError != "400 no" || aside.LastAttemptAt == nil || aside.NextAttemptAt != nil ||
		aside.PublishedAt != nil || aside.DLQEntryUUID != entries[1] || aside.Topic != "dlq.entry.created" || aside.OccurredAt.IsZero() {
		t.Errorf("%+v", aside)
	}
	one := want[apiv1.EmittedEvent](h, http.StatusOK, "GET", "/v1/dlq/emissions/"+aside.EventUUID, nil)
	if one.Position != 2 || len(one.Emissions) != 3 || one.Emissions[2].State != "set_aside" || !strings.Contains(string(one.Data), `"manual_dlq"`) {
		t.Errorf("%+v", one)
	}
	sinks := want[[]tasker.SinkState](h, http.StatusOK, "GET", "/v1/dlq/sinks", nil)
	if len(sinks) != 3 || sinks[2].Sink != "webhook" || sinks[2].Pending != 3 || sinks[2].Undeliverable != 1 || sinks[2].OldestPending == nil || sinks[2].Status != "up" {
		t.Errorf("%+v", sinks)
	}
	h.Exec(`UPDATE tasker.emission_sinks SET failing_since = now(), last_error = 'refused' WHERE sink = 'webhook'`)
	sinks = want[[]tasker.SinkState](h, http.StatusOK, "GET", "/v1/dlq/sinks", nil)
	if sinks[2].Status != "failing" || *sinks[2].LastError != "refused" {
		t.Errorf("%+v", sinks[2])
	}
}

func TestReEmit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.investigate(3)
	h.wantError(http.StatusConflict, "CONFLICT", "no sinks exist", "POST", reEmitPath, `{"from_position":1,"to_position":2,"actor":"a","reason":"r"}`)
	h.sinks("webhook", "log")
	if _, err := h.DB.SettleEmissions(t.Context(), "webhook", []postgres.Emitted{{Position: 2, Attempts: 1, Refused: true, Error: "no"}}, 1); err != nil {
		t.Fatal(err)
	}
	event := want[apiv1.EmissionList](h, http.StatusOK, "GET", "/v1/dlq/emissions?state=set_aside", nil).Emissions[0].EventUUID
	got := want[apiv1.ReEmitted](h, http.StatusOK, "POST", reEmitPath, `{"event_uuid":"`+event+`","sinks":["webhook","webhook"],"actor":" ann ","reason":"fixed"}`)
	if got.Events != 1 || got.Emissions != 1 || len(got.Sinks) != 1 || got.NextFromPosition != nil {
		t.Errorf("%+v", got)
	}
	again := want[apiv1.EmissionList](h, http.StatusOK, "GET", "/v1/dlq/emissions?sink=webhook&state=pending&before=3&limit=1", nil).Emissions[0]
	if again.EventUUID != event || again.Refusals != 0 || again.Attempts != 1 {
		t.Errorf("%+v", again)
	}
	got = want[apiv1.ReEmitted](h, http.StatusOK, "POST", reEmitPath, `{"from_position":2,"to_position":9000,"actor":"ann","reason":"lost"}`)
	if got.Events != 2 || got.Emissions != 4 || len(got.Sinks) != 2 {
		t.Errorf("%+v", got)
	}
	got = want[apiv1.ReEmitted](h, http.StatusOK, "POST", reEmitPath, `{"from_position":100,"to_position":9000,"actor":"ann","reason":"lost"}`)
	if got.Events != 0 || got.Emissions != 0 || got.NextFromPosition != nil {
		t.Errorf("%+v", got)
	}

	// It is on record who did what and why, page by page.
	list := want[apiv1.AuditList](h, http.StatusOK, "GET", "/v1/audit?action=dlq.re_emit&limit=1", nil)
	if len(list.Events) != 1 || !list.Pagination.HasMore || list.Events[0].Actor != "ann" || !strings.Contains(string(list.Events[0].Data), `"lost"`) {
		t.Fatalf("%+v", list)
	}
	list = want[apiv1.AuditList](h, http.StatusOK, "GET", fmt.Sprintf("/v1/audit?action=dlq.re_emit&before=%d", *list.Pagination.NextBefore), nil)
	if len(list.Events) != 2 || list.Pagination.HasMore || list.Events[0].Actor != "ann" || list.Events[0].Subject != "positions 2 to 2" {
		t.Errorf("%+v", list)
	}
	if list = want[apiv1.AuditList](h, http.StatusOK, "GET", "/v1/audit?action=other", nil); len(list.Events) != 0 {
		t.Errorf("%+v", list)
	}
	if list = want[apiv1.AuditList](h, http.StatusOK, "GET", "/v1/audit?before=9007199254740992", nil); len(list.Events) != 3 {
		t.Errorf("%+v", list)
	}
}

// One request takes so many events and says where to go on.
func TestReEmitOfMany(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.note(h.investigate(1)[0], 10_500, 1)
	h.Must(h.DB.OpenSink(t.Context(), "webhook"))
	first := want[apiv1.ReEmitted](h, http.StatusOK, "POST", reEmitPath, `{"from_position":1,"to_position":10400,"actor":"ann","reason":"lost"}`)
	if first.Events != 10_000 || first.Emissions != 10_000 || first.NextFromPosition == nil || *first.NextFromPosition != 10_001 {
		t.Fatalf("%+v", first)
	}
	rest := want[apiv1.ReEmitted](h, http.StatusOK, "POST", reEmitPath, `{"from_position":10001,"to_position":10400,"actor":"ann","reason":"lost"}`)
	if rest.Events != 400 || rest.Emissions != 400 || rest.NextFromPosition != nil {
		t.Errorf("%+v", rest)
	}
	sinks := want[[]tasker.SinkState](h, http.StatusOK, "GET", "/v1/dlq/sinks", nil)
	if len(sinks) != 1 || sinks[0].Pending != 10_000 {
		t.Errorf("counting stops: %+v", sinks)
	}
}

func TestEmissionRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.investigate(1)
	h.sinks("webhook")
	const who = `,"actor":"a","reason":"r"}`
	before := h.fingerprint()
	for _, tt := range []struct {
		method, path string
		body         any
		status       int
		code, words  string
	}{
		{"GET", "/v1/dlq/emissions?state=lost", nil, 400, "INVALID", "set_aside"},
		{"GET", "/v1/dlq/emissions?before=-1", nil, 400, "INVALID", "before"},
		{"GET", "/v1/dlq/emissions?limit=1001", nil, 400, "INVALID", "from 1 to 1000"},
		{"GET", "/v1/dlq/emissions?offset=1", nil, 400, "INVALID", "known parameters are state, sink, topic, before, limit"},
		{"GET", "/v1/dlq/emissions/7", nil, 400, "INVALID", "event_uuid in the path must be a UUID"},
		{"GET", "/v1/dlq/emissions/" + nobody, nil, 404, "NOT_FOUND", "event " + nobody + " not found"},
		{"GET", "/v1/audit?limit=0", nil, 400, "INVALID", "from 1 to 1000"},
		{"DELETE", "/v1/audit", nil, 405, "NOT_SUPPORTED", "GET"},
		{"POST", reEmitPath, `{"from_position":1,"to_position":2}`, 400, "INVALID", "actor: is missing"},
		{"POST", reEmitPath, `{"from_position":1,"to_position":2,"actor":" ","reason":"r"}`, 400, "INVALID", "actor: is empty"},
		{"POST", reEmitPath, `{"from_position":1,"to_position":2,"actor":"a","reason":""}`, 400, "INVALID", "reason: is empty"},
		{"POST", reEmitPath, `{"actor":"a","reason":"r"}`, 400, "INVALID", "no events selected"},
		{"POST", reEmitPath, `{"from_position":1` + who, 400, "INVALID", "no events selected"},
		{"POST", reEmitPath, `{"from_position":0,"to_position":1` + who, 400, "INVALID", "at least 1"},
		{"POST", reEmitPath, `{"from_position":3,"to_position":2` + who, 400, "INVALID", "invalid from_position 3: must not be after to_position 2"},
		{"POST", reEmitPath, `{"event_uuid":"` + nobody + `","to_position":2` + who, 400, "INVALID", "too many selectors"},
		{"POST", reEmitPath, `{"event_uuid":"x"` + who, 400, "INVALID", "event_uuid"},
		{"POST", reEmitPath, `{"event_uuid":"` + nobody + `"` + who, 404, "NOT_FOUND", "not found"},
		{"POST", reEmitPath, `{"from_position":1,"to_position":2,"sinks":["webhook","mail"]` + who, 400, "INVALID", `unknown sink \"mail\": must be one of webhook`},
	} {
		h.wantError(tt.status, tt.code, tt.words, tt.method, tt.path, tt.body)
	}
	if h.fingerprint() != before {
		t.Error("something changed")
	}
}

// The same request under its key sends nothing again, whatever has become of the
// events and of the range.
func TestReEmitUnderAKey(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.sinks("webhook", "log")
	h.investigate(2)
	body := `{"from_position":1,"to_position":9000,"actor":"ann","reason":"lost"}`
	for i, emissions := range []int{4, 0} {
		got := want[apiv1.ReEmitted](h, http.StatusOK, "POST", reEmitPath, body, "Idempotency-Key: again")
		if got.Events != 2+i || got.Emissions != emissions {
			t.Errorf("request %d: %+v", i, got)
		}
		h.investigate(1)
	}
	h.wantError(http.StatusConflict, "CONFLICT", "was used for a different request", "POST", reEmitPath, strings.Replace(body, "lost", "gone", 1), "Idempotency-Key: again")
	for _, key := range []string{strings.Repeat("k", 256), "\xff"} {
		h.wantError(http.StatusBadRequest, "INVALID", "invalid Idempotency-Key", "POST", reEmitPath, body, "Idempotency-Key: "+key)
	}
	if list := want[apiv1.AuditList](h, http.StatusOK, "GET", "/v1/audit?action=dlq.re_emit", nil); len(list.Events) != 1 {
		t.Errorf("the audit log has %d lines, want 1", len(list.Events))
	}
}
