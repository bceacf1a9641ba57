package measure

import (
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/internal/pgtest"
)

// The figures are the machine's; that there is one of each, compared with the same
// at the smallest size, is ours.
func TestGrowthReportIsComplete(t *testing.T) {
	t.Parallel()
	report, err := Growth(t.Context(), Options{DatabaseURL: pgtest.New(t).AdminURL, Runs: 1, Tasks: 100, Out: t.Output()}, GrowthOptions{
		Steps: []int{4, 7}, TotalSteps: 14, Payloads: []int{1_000, 100_000}, Backlog: []int{100, 300}, Waiting: []int{1, 5}, Namespaces: 5, Servers: []int{1, 3},
		Hold: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	seen, compared := map[string]int{}, map[string]int{}
	for _, f := range report.Figures {
		seen[f.Group]++
		if f.Median <= 0 {
			t.Errorf("%s: %v", f.Name, f.Values)
		}
		if f.Baseline != "" {
			compared[f.Group]++
			if f.Ratio <= 0 {
				t.Errorf("%s is not compared with %q", f.Name, f.Baseline)
			}
		}
	}
	// Of each graph: create; and claim and report, three ways; a snapshot, two ways.
	const ofGraph = 1 + 3*2 + 2
	for name, want := range map[string]int{
		"tasks": len(graphs) * ofGraph * 2, "payloads": 4, "backlog": 2, "waiting workers": 2, "namespaces and handlers": 2, "servers": 2, "open transaction": 3,
	} {
		if seen[name] != want {
			t.Errorf("group %s has %d figures, want %d", name, seen[name], want)
		}
		if want := map[string]int{"tasks": want / 2, "payloads": 2, "open transaction": 2}[name]; compared[name] != max(want, 1) {
			t.Errorf("group %s compares %d figures, want %d", name, compared[name], max(want, 1))
		}
	}
	var text strings.Builder
	if err := report.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
}

func TestGraphsAreWhatTheyAreCalled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		graph graph
		step  int
		want  string
	}{
		{graphs[0], 3, "s0002"}, {graphs[1], 3, "s0000"},
		{graphs[2], 1, "s0000"}, {graphs[2], 2, "s0000"}, {graphs[2], 3, "s0001 s0002"}, {graphs[2], 4, "s0003"}, {graphs[2], 6, "s0004 s0005"},
	} {
		if got := strings.Join(tt.graph.template(10).Steps[tt.step].Dependencies, " "); got != tt.want {
			t.Errorf("step %d of a %s depends on %q, want %q", tt.step, tt.graph.name, got, tt.want)
		}
	}
}

func TestAPayloadIsAsLongAsItSays(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		if got := len(payloadOf(n)); got < n*9/10 || got > n {
			t.Errorf("a payload of %d bytes has %d", n, got)
		}
	}
}
