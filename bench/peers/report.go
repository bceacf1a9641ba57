package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker/bench/internal/figures"
)

// Names of the baselines.
var (
	commitMedian = "PostgreSQL, commit of one row, median"
	oneStepBound = single.name
	linearBound  = linear.name
)

// modules lists the libraries whose versions are reported.
var modules = []string{
	"github.com/dbos-inc/dbos-transact-golang", "github.com/jackc/pgx/v5", "github.com/microsoft/durabletask-go",
	"github.com/riverqueue/river",
}

// idle returns the name of the figure of a way on an idle system.
func idle(way string) string { return way + ", idle, p50" }

// A figure is a measured quantity with the median of its runs.
type figure struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Value  float64   `json:"value"`
	Runs   []float64 `json:"runs"` // in order
	Versus string    `json:"versus,omitempty"`
	Ratio  float64   `json:"ratio,omitempty"` // to the baseline
	scale  float64   // units of the baseline per unit of this figure
}

// A fact is a version or a setting.
type fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type report struct {
	Figures  []*figure `json:"figures"`
	Settings options   `json:"settings"`
	Server   []fact    `json:"server"`
	Modules  []fact    `json:"modules"`
	Go       string    `json:"go"`
	CPUs     int       `json:"cpus"`
	Load     string    `json:"load_before"` // load averages
	Started  time.Time `json:"started"`
}

func newReport(o options) *report {
	r := &report{Settings: o, Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		Load: load(), Started: time.Now().UTC().Truncate(time.Second)}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if slices.Contains(modules, m.Path) {
				r.Modules = append(r.Modules, fact{m.Path, m.Version})
			}
		}
	}
	return r
}

// load returns the load averages (Linux only).
func load() string {
	content, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(content)); err == nil && len(fields) >= 3 {
		return strings.Join(fields[:3], " ")
	}
	return "unknown"
}

// add records the value of one run with its baseline.
func (r *report) add(name, unit string, value float64, versus string) {
	r.addScaled(name, unit, value, versus, 1)
}

// quantiles records the durations of workflows on an idle system.
func (r *report) quantiles(way string, took []time.Duration) {
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.50}, {"p95", 0.95}, {"p99", 0.99}} {
		r.add(way+", idle, "+q.name, "ms", figures.Quantile(took, q.q), idle(linear.name))
	}
}

// addScaled is add for a value whose unit is scale units of the baseline.
func (r *report) addScaled(name, unit string, value float64, versus string, scale float64) {
	i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Name == name })
	if i < 0 {
		i = len(r.Figures)
		r.Figures = append(r.Figures, &figure{Name: name, Unit: unit, Versus: versus, scale: scale})
	}
	f := r.Figures[i]
	f.Runs = append(f.Runs, value)
	f.Value = figures.Median(f.Runs)
	r.compare()
}

// compare computes the ratios.
func (r *report) compare() {
	value := map[string]float64{}
	for _, f := range r.Figures {
		value[f.Name] = f.Value
	}
	for _, f := range r.Figures {
		if base := value[f.Versus]; f.Name == f.Versus || base == 0 {
			f.Ratio = 0
		} else {
			f.Ratio = f.Value * f.scale / base
		}
	}
}

// JSON writes the report as JSON.
func (r *report) JSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Markdown writes the report as Markdown.
func (r *report) Markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| figure | median of %d | unit | lowest–highest | ratio | to |\n|---|--:|---|--:|--:|---|\n", r.Settings.Runs)
	for _, f := range r.Figures {
		ratio, versus := "", ""
		if f.Ratio != 0 {
			ratio, versus = fmt.Sprintf("%.3g", f.Ratio), f.Versus
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s–%s | %s | %s |\n",
			f.Name, number(f.Value), f.Unit, number(slices.Min(f.Runs)), number(slices.Max(f.Runs)), ratio, versus)
	}
	s := r.Settings
	fmt.Fprintf(&b, "\n%s, %d CPUs, load before the run %s, %s.\n", r.Go, r.CPUs, r.Load, r.Started.Format(time.DateTime+" UTC"))
	fmt.Fprintf(&b, "%d one-step tasks, %d workflows, %d idle workflows per run.\n", s.Tasks, s.Workflows, s.Singles)
	fmt.Fprintf(&b, "PostgreSQL: %s.\nModules: %s.\n", list(r.Server), list(r.Modules))
	fmt.Fprintf(&b, "River: MaxWorkers %d, FetchCooldown %s, FetchPollInterval %s, pool of %d connections, LISTEN/NOTIFY on, all else as it comes.\n",
		s.River.Workers, s.River.Cooldown, s.River.Poll, s.River.Conns)
	fmt.Fprintf(&b, "DBOS: worker concurrency %d, base polling interval %s, pool of %d connections; a drain has 1/%d of the workflows.\n", s.DBOS.Workers, s.DBOS.Poll, s.DBOS.Conns, dbosShare)
	fmt.Fprintf(&b, "durabletask-go: %d work items at once of each kind, a look each %s while there is nothing, pool of %d connections; a drain has 1/%d of the workflows.\n",
		s.Durable.Workers, s.Durable.Poll, s.Durable.Conns, durableShare)
	fmt.Fprintf(&b, "Plain PostgreSQL: batches of %d, %d connections; idle: one connection.\n", batchSize, rawConns)
	_, err := io.WriteString(out, b.String())
	return err
}

func list(facts []fact) string {
	var words []string
	for _, f := range facts {
		words = append(words, f.Name+" "+f.Value)
	}
	return strings.Join(words, ", ")
}

// number formats a value with at least three significant digits.
func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
