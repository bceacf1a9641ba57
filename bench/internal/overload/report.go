package overload

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker/bench/internal/figures"
)

// A Report contains the results of a run.
type Report struct {
	Bulk           int     // tasks per request of the flood
	Capacity       float64 // requests of the flood that the server handles per second
	Flood          Flood
	Lines          []Line
	Lost           int // attempts
	Investigations int
	Recovered      float64 // seconds after the flood; -1 if it did not recover
}

// A Line contains the latencies of requests of one kind.
type Line struct {
	Kind                  string
	Idle, Flooded, After  Part
	RatioP99, RatioMedian float64 // with the flood compared with before
}

// A Part contains the requests of one phase.
type Part struct {
	Count, Failed int
	P50MS, P99MS  float64
}

func partOf(list []sample) Part {
	p := Part{Count: len(list)}
	var took []time.Duration
	for _, s := range list {
		if s.failed {
			p.Failed++
			continue
		}
		took = append(took, s.took)
	}
	if len(took) > 0 {
		p.P50MS, p.P99MS = figures.Quantile(took, 0.5), figures.Quantile(took, 0.99)
	}
	return p
}

// summarize divides the samples of the steady load into phases.
func (r *Report) summarize(o Options, st *steady, before, begun, ended time.Time) {
	st.mu.Lock()
	list := slices.Clone(st.list)
	st.mu.Unlock()
	during := func(k kind, from, to time.Time) (some []sample) {
		for _, s := range list {
			if s.kind == k && !s.at.Before(from) && s.at.Before(to) {
				some = append(some, s)
			}
		}
		return some
	}
	for _, k := range []kind{heartbeats, reports, creates, operations, reads} {
		l := Line{
			Kind: string(k), Idle: partOf(during(k, before, begun)), Flooded: partOf(during(k, begun, ended)),
			After: partOf(during(k, ended, ended.Add(o.After))),
		}
		if l.Idle.P99MS > 0 {
			l.RatioP99, l.RatioMedian = l.Flooded.P99MS/l.Idle.P99MS, l.Flooded.P50MS/l.Idle.P50MS
		}
		r.Lines = append(r.Lines, l)
	}
	r.Recovered = -1
	for at := ended; at.Before(ended.Add(o.After - 5*time.Second)); at = at.Add(time.Second) {
		if r.usual(at, during) {
			r.Recovered = at.Sub(ended).Seconds()
			return
		}
	}
}

// usual reports whether, for five seconds, all kinds of requests take at most twice as long as
// before the flood and none fails.
func (r *Report) usual(from time.Time, during func(kind, time.Time, time.Time) []sample) bool {
	return !slices.ContainsFunc(r.Lines, func(l Line) bool {
		p := partOf(during(kind(l.Kind), from, from.Add(5*time.Second)))
		return p.Failed > 0 || p.Count == 0 || p.P50MS > 2*l.Idle.P50MS || p.P99MS > 2*l.Idle.P99MS
	})
}

// Markdown writes the report.
func (r Report) Markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The server can take %.0f requests a second that create %d tasks each. Of the flood %d were to be sent and %d were; %d were served, %d were refused with 503 and %d with 429, %d had no answer. ",
		r.Capacity, r.Bulk, r.Flood.Wanted, r.Flood.Sent, r.Flood.ByStatus[http.StatusCreated], r.Flood.ByStatus[http.StatusServiceUnavailable],
		r.Flood.ByStatus[http.StatusTooManyRequests], r.Flood.ByStatus[0])
	fmt.Fprintf(&b, "Those served took %.0f ms (p99 %.0f), a refusal %.0f ms at p99. All refusals have Retry-After: %v. All answers: %v.\n\n",
		r.Flood.P50MS, r.Flood.P99MS, r.Flood.RefusedP99MS, r.Flood.AllSayWhen, r.Flood.ByStatus)
	fmt.Fprintf(&b, "| request | without: p50, p99 ms | with the flood | ratio of p50, p99 | refused | afterwards |\n|---|---|---|---|---|---|\n")
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "| %s | %.1f, %.1f | %.1f, %.1f | %.2f, %.2f | %d of %d | %.1f, %.1f |\n", l.Kind, l.Idle.P50MS, l.Idle.P99MS,
			l.Flooded.P50MS, l.Flooded.P99MS, l.RatioMedian, l.RatioP99, l.Flooded.Failed, l.Flooded.Count, l.After.P50MS, l.After.P99MS)
	}
	fmt.Fprintf(&b, "\nAttempts lost: %d. Investigations: %d. As before %.0f s after the flood (-1: not while it was watched).\n", r.Lost, r.Investigations, r.Recovered)
	_, err := io.WriteString(out, b.String())
	return err
}
