package ctl

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"

	"tasker.example/tasker"
)

const (
	anID   = "0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f"
	aTime  = "2026-01-31T12:00:00Z"
	aState = "waiting_for_dependencies"
)

// printed returns a table as it is on a terminal of so many columns; 0 is no terminal.
func printed(width int, header []string, rows ...[]string) string {
	var out bytes.Buffer
	p := &program{out: &out, width: width, env: map[string]string{"COLUMNS": "20"}}
	p.printTable(header, rows)
	return out.String()
}

func TestTablesFitTheTerminal(t *testing.T) {
	header := []string{"entry", "template", "priority", "notes"}
	rows := [][]string{
		{anID, "orders/fulfil", "1035", strings.Repeat("gateway is down ", 10)},
		{anID, "billing/settlement-of-partners", "7", "注文の支払いが失敗した"},
		{anID, "a/b", "7", ""},
	}
	whole := []string{
		`ENTRY                                 TEMPLATE                        PRIORITY  NOTES`,
		anID + `  orders/fulfil                   1035      gateway is down gateway is down gateway is down gateway is …`,
		anID + `  billing/settlement-of-partners  7         注文の支払いが失敗した`,
		anID + `  a/b                             7`,
	}
	least := []string{
		`ENTRY                                 TEMPLATE      PRIORITY  NOTES`,
		anID + `  orders/fulf…  1035      gateway is …`,
		anID + `  billing/set…  7         注文の支払…`,
		anID + `  a/b           7`,
	}
	for _, tt := range []struct {
		width int
		want  []string
	}{
		{0, whole}, // for programs
		{200, whole},
		{140, whole}, // just so
		{100, []string{
			`ENTRY                                 TEMPLATE                   PRIORITY  NOTES`,
			anID + `  orders/fulfil              1035      gateway is down gateway …`,
			anID + `  billing/settlement-of-pa…  7         注文の支払いが失敗した`,
			anID + `  a/b                        7`,
		}},
		{74, least},
		{60, least}, // and it is too wide
	} {
		got := printed(tt.width, header, rows...)
		if diff := cmp.Diff(strings.Join(tt.want, "\n")+"\n", got); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", tt.width, diff)
		}
	}
}

// A spare column goes before another is cut.
func TestTablesLeaveOutWhatIsSpare(t *testing.T) {
	header := []string{"entry", "task?", "reason", "waiting"}
	row := []string{anID, anID, "max_retries_exceeded", "5s"}
	for _, tt := range []struct {
		width int
		want  string
	}{
		{0, anID + "  " + anID + "  max_retries_exceeded  5s"},
		{105, anID + "  " + anID + "  max_retries_exceeded  5s"},
		{104, anID + "  max_retries_exceeded  5s"},
		{67, anID + "  max_retries_exceeded  5s"},
		{66, anID + "  max_retries_exceed…  5s"},
	} {
		var out bytes.Buffer
		p := &program{out: &out, width: tt.width}
		p.printTable(header, [][]string{row})
		_, line, _ := strings.Cut(out.String(), "\n")
		if got := strings.Join(strings.Fields(line), "  "); got != tt.want {
			t.Errorf("%d columns: %q, want %q", tt.width, got, tt.want)
		}
	}
}

// Where there is room for what must stay whole, no line is wider than the terminal
// and nothing but prose is cut.
func TestTablesKeepWhatCountsWhole(t *testing.T) {
	long := strings.Repeat("x", 100)
	for width := 84; width < 260; width++ {
		got := printed(width, []string{"task", "reason", "state", "notes"}, []string{anID, long, aState, long})
		for line := range strings.Lines(got) {
			if n := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); n > max(width, 90) {
				t.Errorf("%d columns: a line has %d:\n%s", width, n, got)
			}
		}
		if !strings.Contains(got, anID) || !strings.Contains(got, aState) {
			t.Errorf("%d columns:\n%s", width, got)
		}
	}
}

func TestWhatIsNoTerminal(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p := &program{env: map[string]string{"TERM": "xterm", "COLUMNS": "20"}}
	if p.out = file; p.canUseColor(file) || p.terminalWidth() != 0 {
		t.Errorf("a file has colours or %d columns", p.terminalWidth())
	}
	if p.out = null; p.canUseColor(null) || p.terminalWidth() != 0 {
		t.Errorf("%s has colours or %d columns", os.DevNull, p.terminalWidth())
	}
	var buffer bytes.Buffer
	if p.out = &buffer; p.canUseColor(&buffer) || p.terminalWidth() != 0 {
		t.Errorf("a buffer has colours or %d columns", p.terminalWidth())
	}
	if p.printDone("done"); buffer.String() != "✓ done\n" {
		t.Errorf("printed %q", buffer.String())
	}
}

// Counts of ended investigations say when the server stopped counting.
func TestCappedCountsOfEndedInvestigations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ended map[tasker.ResolutionStatus]int64
		want  []field
	}{
		{nil, nil},
		{map[tasker.ResolutionStatus]int64{"cancelled": 2, "manually_resolved": 997}, []field{{"Ended as manually_resolved", "997"}, {"Ended as cancelled", "2"}}},
		{map[tasker.ResolutionStatus]int64{"cancelled": 3, "manually_resolved": 997}, []field{
			{"Ended as manually_resolved", "997 of the newest 1000"}, {"Ended as cancelled", "3 of the newest 1000"},
		}},
	} {
		if got := formatEnded(tt.ended); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.ended, got, tt.want)
		}
	}
}
