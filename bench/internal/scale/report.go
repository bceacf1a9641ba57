package scale

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Ratio returns the median time and the buffers at the last size relative to the first. It returns
// 0 for a figure with one size.
func (f Figure) Ratio() (time, buffers float64) {
	if len(f.Points) < 2 {
		return 0, 0
	}
	first, last := f.Points[0], f.Points[len(f.Points)-1]
	return last.Milliseconds / max(first.Milliseconds, 0.001), float64(last.Buffers) / float64(max(first.Buffers, 1))
}

// Markdown writes the report as a table, followed by the plans.
func (r Report) Markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Live tasks, %d of them due; %d open investigations, and %d ended ones for the last line.\n", r.Due, r.Pending, r.Ended)
	b.WriteString("Median time, and pages of 8 KiB hit or read.\n\n| figure | unit |")
	t := table{out: &b, columns: r.columns()}
	for _, c := range t.columns {
		fmt.Fprintf(&b, " %d", c.Tasks)
		if c.Finished > 0 {
			fmt.Fprintf(&b, ", %d finished besides", c.Finished)
		}
		b.WriteString(" |")
	}
	b.WriteString(" last/first |\n|---|---|" + strings.Repeat("---:|", len(t.columns)+1) + "\n")
	for _, f := range r.Figures {
		time, buffers := f.Ratio()
		t.row(f, "ms", time, func(p Point) string { return fmt.Sprintf("%.2f", p.Milliseconds) })
		if f.Points[0].Buffers == 0 {
			continue // not measured
		}
		t.row(f, "pages", buffers, func(p Point) string { return fmt.Sprint(p.Buffers) })
	}
	for _, p := range r.Plans {
		fmt.Fprintf(&b, "\n## %s\n", p.Name)
		for _, text := range p.Plans {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", text)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// columns returns the measured sizes in order.
func (r Report) columns() []Point {
	var out []Point
	for _, f := range r.Figures {
		for _, p := range f.Points {
			if size := p.size(); !slices.Contains(out, size) {
				out = append(out, size)
			}
		}
	}
	return out
}

// size returns the size of a point without its cost.
func (p Point) size() Point {
	return Point{Tasks: p.Tasks, Finished: p.Finished}
}

// A table has a row per figure and a column per size.
type table struct {
	out     *strings.Builder
	columns []Point
}

func (t table) row(f Figure, unit string, ratio float64, value func(Point) string) {
	fmt.Fprintf(t.out, "| %s | %s |", f.Name, unit)
	at := map[Point]string{}
	for _, p := range f.Points {
		at[p.size()] = value(p)
	}
	for _, c := range t.columns {
		fmt.Fprintf(t.out, " %s |", at[c])
	}
	if ratio == 0 {
		t.out.WriteString(" |\n")
		return
	}
	fmt.Fprintf(t.out, " %.2f |\n", ratio)
}
