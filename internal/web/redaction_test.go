package web_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/redact"
)

// redacts stores the default rules, as a server does when it starts.
func (h *harness) redacts() {
	h.Helper()
	r, err := redact.New(redact.DefaultKeys, "")
	h.Must(err)
	h.Must(h.DB.SetRedaction(h.Context(), postgres.Redaction{
		KeyPattern: r.Pattern(), Document: r.Document(), TextPatterns: r.Texts(), Paths: r.Paths(),
	}))
}

// The live step, the notes and the metadata of an investigation hide what its evidence
// hides, on its page and on those that lead from it.
func TestAnInvestigationHidesWhatItsEvidenceHides(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.redacts()
	h.Template("order", step("charge"))
	task := h.create("order", `{"n": 1}`)
	list := h.claim(1)
	h.report(tasker.Outcome{Lease: list[0].Lease(), Failure: &tasker.Failure{
		Message: "connect to postgres://app:S3CR3T@db failed", Type: "test", Context: json.RawMessage(`{"card.pin": "S3CR3T", "host": "db-7"}`),
	}})
	e := h.Entry(task)
	note := "tried with password=S3CR3T"
	_, _, err := h.DLQ.Update(t.Context(), e.UUID, tasker.EntryUpdate{
		Notes: &note, Metadata: json.RawMessage(`{"api.key": "S3CR3T", "ticket": "INC-7"}`), Actor: "ann",
	})
	h.Must(err)
	page := "/ui/investigations/" + e.UUID.String()
	for _, path := range []string{
		page, page + "/update", "/ui/tasks/" + task.String() + "/steps/" + list[0].StepUUID.String() + "/reset?entry=" + e.UUID.String(), "/ui/?view=entries",
	} {
		if r := h.get(path); r.status != 200 || strings.Contains(r.text, "S3CR3T") {
			t.Errorf("%s answers %d and shows the secret: %v", path, r.status, strings.Contains(r.text, "S3CR3T"))
		}
	}
	for _, shown := range []string{"postgres://app:[redacted]@db failed", "db-7", "password=[redacted]", "INC-7"} {
		if !strings.Contains(h.get(page).text, shown) {
			t.Errorf("the page does not show %q", shown)
		}
	}
}
