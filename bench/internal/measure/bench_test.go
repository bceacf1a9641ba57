package measure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(mqtest.Run(func() int { return pgtest.Run(m) })) }

// The figures are the machine's; that there is one of each, from every run, is ours.
func TestReportIsComplete(t *testing.T) {
	db := pgtest.New(t)
	dir := t.TempDir()
	const runs = 2
	report, err := Run(t.Context(), Options{
		DatabaseURL: db.AdminURL, Runs: runs, Tasks: 100, Workflows: 10, Single: 1, Backlog: 20, BrokerURL: mqtest.URL(t), Out: t.Output(),
		CPUProfile: filepath.Join(dir, "cpu"), MemProfile: filepath.Join(dir, "mem"),
	})
	if err != nil {
		t.Fatal(err)
	}
	groupsSeen, names := map[string]int{}, map[string]Figure{}
	for _, f := range report.Figures {
		groupsSeen[f.Group]++
		names[f.Name] = f
		if len(f.Values) != runs {
			t.Errorf("%s has %d values, want one of each of %d runs", f.Name, len(f.Values), runs)
		}
		if f.Min > f.Median || f.Median > f.Max || f.Median < 0 {
			t.Errorf("%s: median %v is not between %v and %v", f.Name, f.Median, f.Min, f.Max)
		}
	}
	for name, want := range map[string]int{
		"commit": 1, "drain": 1 + 2, "workflows": 2 + 2*2*2, "latency": 2 + 3*2*3, "transports": 2 * 5, "create": 3 + 2*3, "cost": 15, "history": 2, "map": 2 + 2*2*2 + 1, "tenants": 4 + 2 + 1, "limits": 2 * 5,
	} {
		if groupsSeen[name] != want {
			t.Errorf("group %s has %d figures, want %d", name, groupsSeen[name], want)
		}
	}
	for _, f := range report.Figures {
		if f.Baseline != "" && (f.Ratio <= 0 || names[f.Baseline].Group != f.Group) {
			t.Errorf("%s: ratio %v to %q, which must be of its group", f.Name, f.Ratio, f.Baseline)
		}
	}
	// Whatever the drain does, it claims and reports, and keeps the history of both.
	for _, name := range []string{"database round trips", "WAL", "rows inserted", "rows updated", "allocations"} {
		if f := names[name+" per step"]; f.Min <= 0 {
			t.Errorf("%s per step: %v, want more than nothing", name, f.Values)
		}
	}
	for _, name := range []string{"cpu", "mem"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("profile %s: %v, %v", name, info, err)
		}
	}
	var text strings.Builder
	if err := report.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	for name := range names {
		if !strings.Contains(text.String(), "| "+name+" |") {
			t.Errorf("the table lacks %s", name)
		}
	}
	t.Log("\n" + text.String())
}

func TestWithoutABrokerTheReportSaysWhatIsMissing(t *testing.T) {
	report, err := Run(t.Context(), Options{DatabaseURL: pgtest.New(t).AdminURL, Only: regexp.MustCompile(`^transports$`), Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	if len(report.Figures) != 0 || !strings.Contains(text.String(), BrokerEnv) {
		t.Error(text.String())
	}
}

// The length of a message may arrive in pieces.
func TestRelayCountsAnswersHoweverTheyArrive(t *testing.T) {
	t.Parallel()
	answer := []byte("D\x00\x00\x00\x06ZZ" + "Z\x00\x00\x00\x05I" + "1\x00\x00\x00\x04" + "Z\x00\x00\x00\x05I")
	for size := 1; size <= len(answer); size++ {
		a := answers{relay: &relay{}}
		for rest := answer; len(rest) > 0; {
			n := min(size, len(rest))
			if _, err := a.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if got := a.relay.trips.Load(); got != 2 {
			t.Errorf("in pieces of %d: %d answers, want 2", size, got)
		}
	}
}
