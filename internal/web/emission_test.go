package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/web"
)

// sinks makes sinks known, which are told of all that happens from then on.
func (h *harness) sinks(names ...string) {
	h.Helper()
	for _, name := range names {
		h.Must(h.DB.OpenSink(h.Context(), name))
	}
}

// investigated makes so many investigations, puts their events on the lists of the
// sinks, and returns the events, the oldest first.
func (h *harness) investigated(count int, sinks ...string) (events []tasker.Event) {
	h.Helper()
	h.Template("order", step("charge"))
	h.fail("order", "charge", "declined", count)
	for _, name := range sinks {
		n, err := h.DB.TakeEvents(h.Context(), name, 1000)
		h.Must(err)
		if n != count {
			h.Fatalf("%s has %d events, want %d", name, n, count)
		}
	}
	rows, err := h.Admin().Query(h.Context(), `SELECT event_uuid FROM tasker.outbox ORDER BY position`)
	h.Must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[tasker.ID])
	h.Must(err)
	for _, id := range ids {
		e, err := h.DB.Event(h.Context(), id)
		h.Must(err)
		events = append(events, e)
	}
	return events
}

// settle notes what became of an event at a sink: it is published if nothing went
// wrong, set aside if the sink refused it.
func (h *harness) settle(sink string, e tasker.Event, refused bool, problem string) {
	h.Helper()
	_, err := h.DB.SettleEmissions(h.Context(), sink, []postgres.Emitted{
		{Position: e.Position, Attempts: 1, Published: problem == "", Refused: refused, Error: problem},
	}, 1)
	h.Must(err)
}

// state is what became of an event at a sink; empty if it is not meant for it.
func (h *harness) state(e tasker.Event, sink string) tasker.EmissionState {
	h.Helper()
	list, err := h.DB.EmissionsOf(h.Context(), e.UUID)
	h.Must(err)
	for _, em := range list {
		if em.Sink == sink {
			return em.State
		}
	}
	return ""
}

// reEmitted is what the audit log has of sending again, the newest first, without when it was.
func (h *harness) reEmitted() (lines []string) {
	h.Helper()
	list, _, err := h.DB.AuditEvents(h.Context(), "dlq.re_emit", 0, 100)
	h.Must(err)
	for _, a := range list {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", a.Actor, a.Subject, a.Data))
	}
	return lines
}

// sendAgain sends the form, which may name several sinks.
func (h *harness) sendAgain(path, actor, reason string, sinks ...string) reply {
	h.Helper()
	return h.postRaw(path, url.Values{"token": {h.token()}, "actor": {actor}, "reason": {reason}, "sinks": sinks}.Encode())
}

func eventPath(e tasker.Event) string { return "/ui/emissions/" + e.UUID.String() }

func TestEmissions(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *web.Options) { o.Sinks = []string{"webhook"} })
	h.sees(h.get("/ui/emissions"), "No sink configured", "emission.sinks", "data-live")
	h.lacks(h.get("/ui/emissions"), "<h2>Events</h2>")
	h.sinks("log", "webhook")
	h.sees(h.get("/ui/emissions"), "No investigation has changed since")
	events := h.investigated(3, "log", "webhook")
	h.settle("webhook", events[0], false, "")
	h.settle("webhook", events[1], true, "400 <no>")
	h.settle("webhook", events[2], false, "500 later")
	h.Exec(`UPDATE tasker.emission_sinks SET failing_since = now() - interval '7 minutes', last_error = 'cannot <connect>', next_try_at = now() + interval '3 minutes' WHERE sink = 'log'`)
	r := h.get("/ui/emissions")
	h.sees(r, `<strong>log</strong> <span class="hint">not used by this server</span>`, `<strong>webhook</strong></td>`,
		`<span class="chip bad">failing</span>`, "7 min ago", "next attempt", "cannot &lt;connect&gt;", `<span class="chip good">up</span>`,
		`href="/ui/emissions?sink=log&amp;state=pending">3</a>`, `href="/ui/emissions?sink=webhook&amp;state=set_aside">1</a>`,
		`<span class="chip bad">undeliverable</span>`, `<span class="chip good">published</span>`, "400 &lt;no&gt;", "500 later", eventPath(events[2]), "dlq.entry.created")
	if strings.Index(r.text, eventPath(events[2])) > strings.Index(r.text, eventPath(events[0])) {
		t.Error("the newest event is not the first")
	}
	for query, want := range map[string]int{
		"": 6, "?sink=log": 3, "?state=pending": 4, "?state=published": 1, "?state=set_aside&sink=webhook": 1, "?state=set_aside&sink=log": 0,
		fmt.Sprintf("?before=%d", events[1].Position): 2, fmt.Sprintf("?before=%d", events[0].Position): 0, "?sink=&state=&before=": 6,
	} {
		r := h.get("/ui/emissions" + query)
		if n := strings.Count(r.text, "<tr data-row"); r.status != http.StatusOK || n != want {
			t.Errorf("%q: %d with %d rows, want %d", query, r.status, n, want)
		}
		if nothing := strings.Contains(r.text, "No event matches"); nothing != (want == 0) {
			t.Errorf("%q: says that there are none: %v", query, nothing)
		}
	}
	h.sees(h.get("/ui/emissions?sink=log&state=set_aside"), "<option selected>log</option>", `<option value="set_aside" selected>undeliverable</option>`, ">Clear<")
}

func TestEmissionsArePaged(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sinks("log", "webhook")
	events := h.investigated(61, "log", "webhook")
	r := h.get("/ui/emissions")
	next := regexp.MustCompile(`href="(/ui/emissions\?before=\d+)" rel="next"`).FindStringSubmatch(r.text)
	if n := strings.Count(r.text, "<tr data-row"); n != 100 || next == nil {
		t.Fatalf("%d rows, then %q", n, next)
	}
	r = h.get(next[1])
	if n := strings.Count(r.text, "<tr data-row"); n != 22 || strings.Contains(r.text, `rel="next"`) || !strings.Contains(r.text, eventPath(events[0])) {
		t.Errorf("the last page has %d rows, or goes on", n)
	}
	h.sees(h.get("/ui/emissions?sink=log"), ">61</a>")
}

func TestEmissionRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sinks("log")
	e := h.investigated(1, "log")[0]
	for query, want := range map[string]string{
		"sink=mail": "Invalid sink", "sink=LOG": "Invalid sink", "state=lost": "Invalid state", "before=x": "Invalid before",
		"before=0": "must be a number from 1", "before=-1": "Invalid before", "before=9007199254740993": "Invalid before",
	} {
		h.refused(h.get("/ui/emissions?"+query), http.StatusBadRequest, want)
	}
	nobody := "/ui/emissions/" + tasker.NewID().String()
	for _, path := range []string{nobody, nobody + "/re-emit"} {
		h.refused(h.get(path), http.StatusNotFound, "not found")
	}
	h.refused(h.get("/ui/emissions/7"), http.StatusNotFound, "must be a UUID")
	h.refused(h.get("/ui/emissions/7/re-emit"), http.StatusNotFound, "must be a UUID")
	h.refused(h.sendAgain(nobody+"/re-emit", "ann", "x", "log"), http.StatusNotFound, "not found")
	h.refused(h.sendAgain("/ui/emissions/7/re-emit", "ann", "x", "log"), http.StatusNotFound, "must be a UUID")
	h.refused(h.post(eventPath(e)), http.StatusNotFound, "not found: /")
}

func TestAnEmission(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sinks("log", "webhook")
	e := h.investigated(1, "log", "webhook")[0]
	h.settle("webhook", e, true, "400 <no>")
	r := h.get(eventPath(e))
	h.sees(r, "Event dlq.entry.created", e.UUID.String(), fmt.Sprintf("<dd>%d</dd>", e.Position), "/ui/investigations/"+e.EntryUUID.String(), "/ui/tasks/"+e.TaskUUID.String(),
		`<span class="chip idle">pending</span>`, `<span class="chip bad">undeliverable</span>`, "400 &lt;no&gt;", "max_retries_exceeded", eventPath(e)+"/re-emit", "data-live")
}

func TestEventOlderThanItsSinkIsDelivered(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	e := h.investigated(1)[0]
	h.sees(h.get(eventPath(e)), "No deliveries")
	r := h.get(eventPath(e) + "/re-emit")
	h.sees(r, "emission.sinks")
	h.lacks(r, "<button>Redeliver", "tasker-ctl")
	h.refused(h.sendAgain(eventPath(e)+"/re-emit", "ann", "x", "log"), http.StatusConflict, "emission.sinks")
	h.sinks("log")
	h.sees(h.get(eventPath(e)+"/re-emit"), `value="log" checked>`, ">not delivered<")
	h.sees(h.sendAgain(eventPath(e)+"/re-emit", "ann", "told late", "log"), "The event will be redelivered to log.")
	if got := h.state(e, "log"); got != tasker.EmissionPending {
		t.Errorf("it is %q at the sink", got)
	}
}

func TestEventIsRedelivered(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sinks("log", "mail", "webhook")
	events := h.investigated(2, "log", "mail", "webhook")
	e, path := events[0], eventPath(events[0])+"/re-emit"
	h.settle("log", e, false, "")
	h.settle("mail", e, false, "")
	h.settle("webhook", e, true, "400 no")
	h.settle("webhook", events[1], true, "400 no")
	// Those are chosen at first that have not got it.
	r := h.get(path)
	h.sees(r, "What will happen", `value="webhook" checked>`, `value="log">`, `value="mail">`, "--sink webhook", "&#34;sinks&#34;:[&#34;webhook&#34;]")
	h.lacks(r, "--sink log")
	h.Exec(`UPDATE tasker.emission_sinks SET next_try_at = now() + interval '1 hour'`)
	r = h.sendAgain(path, " ann ", "  the receiver is fixed\t", "webhook", "log", "webhook")
	h.at(r, eventPath(e))
	h.sees(r, "The event will be redelivered to log, webhook.")
	for sink, want := range map[string]tasker.EmissionState{"log": tasker.EmissionPending, "webhook": tasker.EmissionPending, "mail": tasker.EmissionPublished} {
		if got := h.state(e, sink); got != want {
			t.Errorf("it is %s at %s, want %s", got, sink, want)
		}
	}
	if got := h.state(events[1], "webhook"); got != tasker.EmissionSetAside {
		t.Errorf("the event after it is %s", got)
	}
	states, err := h.DB.SinkStates(t.Context(), []string{"log", "mail", "webhook"}, 10)
	h.Must(err)
	if states[0].NextTryAt != nil || states[2].NextTryAt != nil || states[1].NextTryAt == nil {
		t.Errorf("not those that were chosen are tried at once: %+v", states)
	}
	want := fmt.Sprintf(`ann: positions %d to %[1]d: {"to": %[1]d, "from": %[1]d, "sinks": ["log", "webhook"], "reason": "the receiver is fixed", "emissions": 2}`, e.Position)
	if got := h.reEmitted(); !slices.Equal(got, []string{want}) {
		t.Errorf("on record is %q, want %q", got, want)
	}
	h.sees(h.get("/ui/audit?action=dlq.re_emit"), "ann", "the receiver is fixed")
	// Once all have it, all are chosen; who was it is known.
	h.settle("log", e, false, "")
	h.settle("webhook", e, false, "")
	h.sees(h.get(path), `value="webhook" checked>`, `value="log" checked>`, `value="mail" checked>`, `name="actor" value="ann"`)
}

func TestRedeliveryRefusesInvalidInput(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sinks("log", "webhook")
	e := h.investigated(1, "log", "webhook")[0]
	h.settle("webhook", e, true, "400 no")
	path := eventPath(e) + "/re-emit"
	for _, tt := range []struct {
		name, actor, reason string
		sinks               []string
		says                string
	}{
		{"nobody", " ", "<b>why</b>", []string{"log"}, "Your name is missing"},
		{"no reason", "ann", " ", []string{"log"}, "The reason is missing"},
		{"no sink", "ann", "why", nil, "Select at least one sink"},
		{"an unknown sink", "ann", "why", []string{"log", "<i>mail</i>"}, "Unknown sink &#34;&lt;i&gt;mail&lt;/i&gt;&#34;"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &harness{Harness: h.Copy(t), server: h.server, client: h.client}
			r := h.sendAgain(path, tt.actor, tt.reason, tt.sinks...)
			h.refused(r, http.StatusBadRequest, tt.says, "What will happen", "<button>Redeliver")
			if kept := slices.Contains(tt.sinks, "log"); strings.Contains(r.text, `value="log" checked>`) != kept {
				t.Error("what was chosen is not kept")
			}
		})
	}
	h.sees(h.sendAgain(path, "", "kept <b>as typed</b>", "log"), `name="reason" value="kept &lt;b&gt;as typed&lt;/b&gt;"`, `value="log" checked>`, `value="webhook">`, "--sink log")
	if got := h.state(e, "webhook"); got != tasker.EmissionSetAside || h.reEmitted() != nil {
		t.Errorf("it is %s, and on record is %q", got, h.reEmitted())
	}
}

// What the page says to type in a terminal does the same as its button.
func TestShownCommandsRedeliver(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sinks("log", "mail's", "webhook")
	e := h.investigated(1, "log", "mail's", "webhook")[0]
	path := eventPath(e) + "/re-emit"
	const reason = "-it's \"back\", $HOME and `id` — ☠"
	send := map[string]func(){
		"page": func() { h.sees(h.sendAgain(path, "Ann O'Hara", reason, "log", "mail's"), "will be redelivered") },
	}
	// Refused for a sink that is not there, so that the page shows what was typed.
	r := h.sendAgain(path, "Ann O'Hara", reason, "log", "mail's", "nowhere")
	h.refused(r, http.StatusBadRequest, "Unknown sink")
	cli, curl := h.calls(r)
	send["tasker-ctl"] = func() { h.ctl(cli) }
	send["curl"] = func() { h.curl(curl) }
	for tool, send := range send {
		before := h.reEmitted()
		for _, sink := range []string{"log", "mail's", "webhook"} {
			h.settle(sink, e, false, "")
		}
		send()
		if h.state(e, "log") != tasker.EmissionPending || h.state(e, "mail's") != tasker.EmissionPending || h.state(e, "webhook") != tasker.EmissionPublished {
			t.Errorf("by %s it is not sent to those that were chosen", tool)
		}
		want := fmt.Sprintf(`Ann O'Hara: positions %d to %[1]d: {"to": %[1]d, "from": %[1]d, "sinks": ["log", "mail's"], "reason": %s, "emissions": 2}`, e.Position, quoteFailure(reason))
		if got := h.reEmitted(); len(got) != len(before)+1 || got[0] != want {
			t.Errorf("by %s there is on record %q, want %q", tool, got, want)
		}
	}
	// As it stands at first, with nothing typed.
	cli, curl = h.calls(h.get(path))
	h.ctl(cli)
	h.curl(curl)
	if got := h.reEmitted(); len(got) != 5 || got[0] != got[1] || !strings.Contains(got[0], "reason\": \"why") {
		t.Errorf("on record is %q", got)
	}
}

// quoteFailure spells a text as JSON does.
func quoteFailure(text string) string {
	b, _ := json.Marshal(text) // a string always is JSON
	return string(b)
}

// firstEvent returns the id of the oldest event.
func (h *harness) firstEvent() (id tasker.ID) {
	h.Helper()
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT event_uuid FROM tasker.outbox ORDER BY position LIMIT 1`).Scan(&id))
	return id
}
