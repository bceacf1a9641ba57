package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// Every workload runs, ends and is complete; how fast is not asserted.
func TestEveryWorkloadRuns(t *testing.T) {
	r, err := measure(t.Context(), options{
		Tasks: 250, Workflows: 20, Singles: 3, Runs: 2, CommitsFor: 10 * time.Millisecond, Out: io.Discard,
		River:   riverSettings{Workers: 10, Conns: 5, Cooldown: time.Millisecond, Poll: time.Millisecond},
		DBOS:    dbosSettings{Workers: 10, Conns: 5, Poll: time.Millisecond},
		Durable: durableSettings{Workers: 10, Conns: 5, Poll: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Figures {
		if len(f.Runs) != 2 || f.Value <= 0 || (f.Versus != "" && f.Versus != f.Name && f.Ratio <= 0) {
			t.Errorf("figure is not complete: %+v", f)
		}
	}
	if n := len(r.Figures); n != 27 {
		t.Errorf("%d figures, want 27", n)
	}
	var markdown, document bytes.Buffer
	if err := r.Markdown(&markdown); err != nil {
		t.Error(err)
	}
	if err := r.JSON(&document); err != nil || !json.Valid(document.Bytes()) {
		t.Errorf("JSON is not valid: %v", err)
	}
	for _, f := range r.Figures {
		if !strings.Contains(markdown.String(), "| "+f.Name+" |") || !strings.Contains(document.String(), `"`+f.Name+`"`) {
			t.Errorf("the report lacks %q", f.Name)
		}
	}
}

func TestRatiosAreOfMedians(t *testing.T) {
	t.Parallel()
	r := newReport(options{Runs: 3})
	for _, v := range []float64{100, 900, 200} {
		r.add("base", "steps/s", v, "")
		r.addScaled("other", "workflows/s", v/10, "base", 4)
	}
	if f := r.Figures[1]; f.Value != 20 || f.Ratio != 0.4 {
		t.Errorf("value %v and ratio %v, want 20 and 0.4", f.Value, f.Ratio)
	}
}

func TestSenselessSizesAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-runs", "0"}, {"-tasks", "-1"}, {"-o", "xml"}, {"more"}, {"-commits-for", "0s"}, {"-dbos-poll", "0s"}, {"-durabletask-workers", "0"}} {
		if err := command(t.Context(), args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
