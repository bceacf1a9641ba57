package measure

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/bench/internal/figures"
)

// A Report contains the results of a run.
type Report struct {
	Settings []Setting `json:"settings"`
	Runs     int       `json:"runs"` // of each figure
	Figures  []Figure  `json:"figures"`
	Notes    []string  `json:"notes,omitempty"` // omitted measurements with the reason
}

// A Setting is a property of the machine or the server that affects figures.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A Figure is a measured quantity with one value per run.
type Figure struct {
	Group    string    `json:"group"`
	Name     string    `json:"name"`
	Unit     string    `json:"unit"`
	Median   float64   `json:"median"`
	Min      float64   `json:"min"`
	Max      float64   `json:"max"`
	Values   []float64 `json:"values"`             // of each run, in order
	Baseline string    `json:"baseline,omitempty"` // name of the baseline figure
	Ratio    float64   `json:"ratio,omitempty"`    // of the median to that of the baseline
}

// A figure identifies a measured quantity: its name, its unit and its baseline, if any.
type figure struct {
	name, unit, baseline string
}

// note records the value of a figure in one run.
func (b *bench) note(f figure, value float64) {
	for i := range b.report.Figures {
		if known := &b.report.Figures[i]; known.Name == f.name {
			known.Values = append(known.Values, value)
			return
		}
	}
	b.report.Figures = append(b.report.Figures, Figure{
		Group: b.group, Name: f.name, Unit: f.unit, Baseline: f.baseline, Values: []float64{value},
	})
}

// conclude computes the medians and the ratios.
func (r *Report) conclude() {
	medians := map[string]float64{}
	for i := range r.Figures {
		f := &r.Figures[i]
		f.Median, f.Min, f.Max = figures.Median(f.Values), slices.Min(f.Values), slices.Max(f.Values)
		medians[f.Name] = f.Median
	}
	for i := range r.Figures {
		if f := &r.Figures[i]; medians[f.Baseline] != 0 {
			f.Ratio = f.Median / medians[f.Baseline]
		}
	}
}

// settings returns the settings that affect the figures.
func (b *bench) settings(ctx context.Context) ([]Setting, error) {
	rows, err := b.db.Pool().Query(ctx, `
		SELECT name, current_setting(name)
		FROM unnest(ARRAY['server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'wal_level']) AS name`)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Setting])
	return append([]Setting{
		{"CPUs", fmt.Sprint(runtime.NumCPU())},
		{"Go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
	}, list...), err
}

// Markdown writes the report with a table per group.
func (r Report) Markdown(out io.Writer) error {
	var b strings.Builder
	for i, s := range r.Settings {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", s.Name, s.Value)
	}
	fmt.Fprintf(&b, ".\nEach figure is the median of %d runs; the ratio is to the baseline's median.\n", r.Runs)
	group := ""
	for _, f := range r.Figures {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(&b, "\n## %s\n\n| figure | median | min–max | unit | baseline | ratio |\n|---|---:|---:|---|---|---:|\n", group)
		}
		ratio := ""
		if f.Ratio != 0 {
			ratio = fmt.Sprintf("%.2f", f.Ratio)
		}
		fmt.Fprintf(&b, "| %s | %s | %s–%s | %s | %s | %s |\n",
			f.Name, short(f.Median), short(f.Min), short(f.Max), f.Unit, f.Baseline, ratio)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// short formats a value with at least three digits, such as 17 900 or 0.017.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.4f", v)
	}
}
