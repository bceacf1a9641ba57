package access_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker/internal/access"
)

// securityDoc has the roles in a table that is made from the code, so that it cannot be wrong.
const securityDoc = "../../docs/reference/security.md"

const (
	tableBegins = "<!-- made by: UPDATE_DOCS=1 go test ./internal/access -->\n"
	tableEnds   = "<!-- end -->\n"
)

// meanings say what each permission is for.
var meanings = map[access.Permission]string{
	access.ReadTasks:            "see tasks, steps, their histories and staleness",
	access.CreateTasks:          "create tasks",
	access.CancelTasks:          "cancel tasks",
	access.OperateSteps:         "reset, resolve and complete steps",
	access.CompleteSteps:        "report the outcome of external steps",
	access.ReadInvestigations:   "see investigations and cases",
	access.UpdateInvestigations: "open, update and end investigations",
	access.ReadPayloads:         "see contexts, results and error texts",
	access.ReadTemplates:        "see templates",
	access.WriteTemplates:       "register and retire templates",
	access.WriteSchedules:       "create, change and delete schedules",
	access.OperateSchedules:     "pause, resume, trigger and backfill schedules",
	access.ReadWorkers:          "see workers and queues",
	access.DrainWorkers:         "drain workers",
	access.ActAsWorker:          "register as a worker, claim, report",
	access.ReadEvents:           "follow events and see their deliveries",
	access.ResendEvents:         "deliver events again",
	access.ReadMetrics:          "scrape `/metrics`",
	access.ReadSystem:           "see readiness details and sinks",
	access.Administer:           "manage API keys, read the audit log",
}

func TestTheDocumentHasTheRoles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(securityDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), tableBegins)
	has, after, ended := strings.Cut(rest, tableEnds)
	if !found || !ended {
		t.Fatalf("docs/reference/security.md has no table between %q and %q", tableBegins, tableEnds)
	}
	want := rolesTable(t)
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.WriteFile(securityDoc, []byte(before+tableBegins+want+tableEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if has != want {
		t.Error("docs/reference/security.md does not have the roles as they are; run: UPDATE_DOCS=1 go test ./internal/access")
	}
}

func rolesTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| permission | to |")
	for _, r := range access.Roles() {
		fmt.Fprintf(&b, " %s |", r)
	}
	b.WriteString("\n|---|---|" + strings.Repeat(":-:|", len(access.Roles())) + "\n")
	for _, p := range access.Permissions() {
		if meanings[p] == "" {
			t.Errorf("nothing says what %s is for", p)
		}
		name := "`" + string(p) + "`"
		if p.IsInstallationWide() {
			name += " *"
		}
		fmt.Fprintf(&b, "| %s | %s |", name, meanings[p])
		for _, r := range access.Roles() {
			mark := " "
			if slices.Contains(r.Permissions(), p) {
				mark = " ✓ "
			}
			b.WriteString(mark + "|")
		}
		b.WriteString("\n")
	}
	return b.String()
}
