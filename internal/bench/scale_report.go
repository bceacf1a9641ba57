package bench

import (
	"fmt"
	"io"
	"strings"
)

// Ratio is the median time and the buffers at the last size, as multiples of
// those at the first. It is 0 for a figure of one size.
func (f ScaleFigure) Ratio() (time, buffers float64) {
	if len(f.Points) < 2 {
		return 0, 0
	}
	first, last := f.Points[0], f.Points[len(f.Points)-1]
	return last.Milliseconds / max(first.Milliseconds, 0.001), float64(last.Buffers) / float64(max(first.Buffers, 1))
}

// Markdown writes the report as a table, and the plans below it.
func (r ScaleReport) Markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Live tasks, %d of them due; %d open investigations, and %d ended ones for the last line.\n", r.Due, r.Pending, r.Ended)
	b.WriteString("Median time, and pages of 8 KiB hit or read.\n\n| figure | unit |")
	for _, n := range r.Sizes {
		fmt.Fprintf(&b, " %d |", n)
	}
	b.WriteString(" last/first |\n|---|---|" + strings.Repeat("---:|", len(r.Sizes)+1) + "\n")
	for _, f := range r.Figures {
		time, buffers := f.Ratio()
		r.row(&b, f, "ms", time, func(p ScalePoint) string { return fmt.Sprintf("%.2f", p.Milliseconds) })
		r.row(&b, f, "pages", buffers, func(p ScalePoint) string { return fmt.Sprint(p.Buffers) })
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

func (r ScaleReport) row(b *strings.Builder, f ScaleFigure, unit string, ratio float64, value func(ScalePoint) string) {
	fmt.Fprintf(b, "| %s | %s |", f.Name, unit)
	at := map[int]string{}
	for _, p := range f.Points {
		at[p.Tasks] = value(p)
	}
	for _, n := range r.Sizes {
		fmt.Fprintf(b, " %s |", at[n])
	}
	if ratio == 0 {
		b.WriteString(" |\n")
		return
	}
	fmt.Fprintf(b, " %.2f |\n", ratio)
}
