package scale

import (
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The time is the machine's; the pages are ours. They may grow by the height of
// an index, not with what is in it.
func TestScaleReportIsCompleteAndFlat(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sizes := []int{1_000, 5_000} // fewer share their pages, which hides what a page costs
	report, err := Run(t.Context(), Options{
		DatabaseURL: db.AdminURL, Sizes: sizes, Due: 50, Pending: 300, Ended: 1_000, Runs: 1, Plans: true, Out: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	points := map[string][]Point{}
	for _, f := range report.Figures {
		points[f.Name] = f.Points
	}
	for _, name := range []string{quietSweep, sweepBatch, wholeSweep, sweepPass, queuePage, quietMonitor, dueMonitor, stats, taskPage, stepList} {
		list := points[name]
		if len(list) != len(sizes) || list[0].Tasks != sizes[0] || list[1].Tasks != sizes[1] {
			t.Errorf("%s: points %v, want one for each of the sizes %v", name, list, sizes)
		}
	}
	if n := len(points[endedStats]); n != 1 {
		t.Errorf("%s: %d points, want 1, at the last size", endedStats, n)
	}
	for name, list := range points {
		if slices.ContainsFunc(list, func(p Point) bool { return p.Milliseconds <= 0 || p.Buffers <= 0 && name != sweepPass }) {
			t.Errorf("%s costs nothing: %v", name, list)
		}
	}
	if t.Failed() {
		return
	}
	for _, name := range []string{quietSweep, sweepBatch, queuePage, dueMonitor, quietMonitor, taskPage, stepList} {
		small, large := points[name][0].Buffers, points[name][1].Buffers
		if most := small + small/5 + 50; large > most {
			t.Errorf("%s: %d pages with %d tasks, %d with %d; want at most %d", name, small, sizes[0], large, sizes[1], most)
		}
	}
	// A task that the sweep moves costs so many pages at most, and looking at the
	// head of a list so many a line: counted, so the same on every machine. One of those of a
	// task that is due looks whether a step of it is held.
	for name, most := range map[string]int64{
		quietSweep: 100, sweepBatch: 50 * 190, queuePage: 100 * 7, dueMonitor: 100 * 8, quietMonitor: 100 * 6, taskPage: 100 * 40, stepList: 100 * 10,
	} {
		if pages := points[name][1].Buffers; pages > most {
			t.Errorf("%s reads %d pages, want at most %d", name, pages, most)
		}
	}
	var text strings.Builder
	if err := report.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	for name := range points {
		want := 2
		if name == sweepPass {
			want = 1 // its pages are not counted
		}
		if n := strings.Count(text.String(), "| "+name+" |"); n != want {
			t.Errorf("the table has %d lines of %s, want %d: time, and pages", n, name, want)
		}
	}
	for _, e := range explained {
		i := slices.IndexFunc(report.Plans, func(p Plan) bool { return p.Name == e.name })
		if i < 0 || !strings.Contains(strings.Join(report.Plans[i].Plans, "\n"), "Buffers: ") {
			t.Errorf("no plan of %s: %v", e.name, report.Plans)
		}
	}
	t.Log("\n" + text.String())
}

// What has ended costs nothing: what is live and open is found beside ten times
// as much that is not.
func TestHistoryCostsNoPages(t *testing.T) {
	t.Parallel()
	report, err := Run(t.Context(), Options{
		DatabaseURL: pgtest.New(t).AdminURL, Sizes: []int{1_000}, Due: 50, Pending: 300, Ended: 50, History: 10, Runs: 1, Out: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Figures {
		if f.Name == endedStats {
			continue
		}
		if len(f.Points) != 2 || f.Points[1].Finished != 13_000 {
			t.Errorf("%s: points %v, want one with history", f.Name, f.Points)
			continue
		}
		if alone, beside := f.Points[0].Buffers, f.Points[1].Buffers; beside > alone+alone/2+50 { // indexes are a level deeper
			t.Errorf("%s: %d pages, with history %d", f.Name, alone, beside)
		}
	}
	var text strings.Builder
	if err := report.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "| 1000 | 1000, 13000 finished besides |") {
		t.Error(text.String())
	}
	t.Log("\n" + text.String())
}

func TestScaleRefusesSizesThatShrink(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Options{DatabaseURL: "unused", Sizes: []int{5_000, 2_000}})
	if err == nil || !strings.Contains(err.Error(), "2000 after 5000") {
		t.Errorf("error %v, want one that names the sizes", err)
	}
}
