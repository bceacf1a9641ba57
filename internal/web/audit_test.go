package web_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// audit puts an event on record.
func (h *harness) audit(actor, action, subject, data string) {
	h.Helper()
	h.Must(h.DB.Audit(h.Context(), actor, action, subject, json.RawMessage(data)))
}

func TestTheAuditLog(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sees(h.get("/ui/audit"), "The audit log is empty")
	h.audit("ann", "dlq.re_emit", "positions 1 to 7", `{"reason": "the <b>receiver</b> is back"}`)
	h.audit("tasker", "dlq.set_aside", "event 7", `{}`)
	r := h.get("/ui/audit")
	h.sees(r, "ann", "dlq.re_emit", "positions 1 to 7", "the &lt;b&gt;receiver&lt;/b&gt; is back", `href="/ui/audit?action=dlq.set_aside"`, "Append-only.")
	if strings.Index(r.text, "positions 1 to 7") < strings.Index(r.text, "event 7") {
		t.Error("the newest is not the first")
	}
	r = h.get("/ui/audit?action=dlq.re_emit")
	h.sees(r, "positions 1 to 7", `value="dlq.re_emit"`, `<a href="/ui/audit">All</a>`)
	h.lacks(r, "event 7")
	for _, action := range []string{"dlq", "DLQ.RE_EMIT", "%", "'; --", strings.Repeat("x", 128)} {
		r := h.get("/ui/audit?action=" + url.QueryEscape(action))
		if h.sees(r, "No event of this action"); r.status != http.StatusOK {
			t.Errorf("%q: %d", action, r.status)
		}
	}
	for _, action := range []string{"a\x00b", "\xff"} {
		r := h.get("/ui/audit?action=" + url.QueryEscape(action))
		if h.sees(r, "must be valid UTF-8 without NUL"); r.status != http.StatusBadRequest {
			t.Errorf("%q: %d", action, r.status)
		}
	}
}

func TestAuditLogIsPaged(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Exec(`INSERT INTO tasker.audit_events (actor, action, subject) SELECT 'ann', CASE n % 2 WHEN 0 THEN 'even & more' ELSE 'odd' END, 'subject ' || n FROM generate_series(1, 203) n`)
	for path, want := range map[string]struct {
		rows        int
		first, next string
	}{
		"/ui/audit":                         {100, "subject 203<", "/ui/audit?before=104"},
		"/ui/audit?before=104":              {100, "subject 103<", "/ui/audit?before=4"},
		"/ui/audit?before=4":                {3, "subject 3<", ""},
		"/ui/audit?before=9007199254740992": {100, "subject 203<", "/ui/audit?before=104"},
		"/ui/audit?action=even+%26+more":    {100, "subject 202<", "/ui/audit?action=even+%26+more&before=4"},
		"/ui/audit?action=odd&before=4":     {2, "subject 3<", ""},
	} {
		r := h.get(path)
		if n := strings.Count(r.text, "<tr data-row"); n != want.rows {
			t.Errorf("%s has %d rows, want %d", path, n, want.rows)
		}
		h.sees(r, want.first)
		if link := fmt.Sprintf(`href="%s" rel="next"`, want.next); strings.Contains(r.text, `rel="next"`) != (want.next != "") || want.next != "" && !strings.Contains(html.UnescapeString(r.text), link) {
			t.Errorf("%s does not go on with %q", path, want.next)
		}
	}
}

func TestAuditLogRefusesInvalidParameters(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for query, want := range map[string]string{
		"action=" + strings.Repeat("x", 129): "up to 128 bytes",
		"before=x":                           "Invalid before",
		"before=0":                           "must be a number from 1",
		"before=-1":                          "Invalid before",
		"before=9007199254740993":            "Invalid before",
		"before=99999999999999999999":        "Invalid before",
	} {
		h.refused(h.get("/ui/audit?"+query), http.StatusBadRequest, want)
	}
}
