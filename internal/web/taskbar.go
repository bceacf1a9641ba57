package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
)

// Sizes of the bars of the steps, in pixels.
const (
	barWidth, barHeight = 220, 16
	leastBar            = 2 // however short something was, it is seen
)

// An axis is the time that the bars of a task's steps have in common: from when it
// was created until it ended, or now.
type axis struct {
	From, To time.Time
	Length   string
}

// A stepBar is what a step did when: thin while it waited, thick while it ran, a
// tick where an attempt failed.
type stepBar struct {
	Spans  []barSpan
	Failed []float64 // where
	Words  string
}

// A barSpan is a stretch of a bar.
type barSpan struct {
	X, Y, Width, Height float64
	Kind                string
}

// axisOf is the axis of a task. history is newest first.
func axisOf(t tasker.Task, history []tasker.Transition, now time.Time) axis {
	a := axis{From: t.CreatedAt, To: now}
	if t.State == tasker.TaskComplete || t.State == tasker.TaskCancelled {
		a.To = t.StateSince
	}
	if t.StartAt != nil && t.StartAt.After(a.From) && t.StartAt.Before(a.To) {
		a.From = *t.StartAt // what came before is a long nothing
	}
	if len(history) == maxHistory {
		a.From = history[len(history)-1].CreatedAt
	}
	if !a.To.After(a.From) {
		a.To = a.From.Add(time.Millisecond) // clocks differ
	}
	a.Length = briefly(a.To.Sub(a.From))
	return a
}

// at is where an instant lies on the axis.
func (a axis) at(t time.Time) float64 {
	x := barWidth * float64(t.Sub(a.From)) / float64(a.To.Sub(a.From))
	return min(max(x, 0), barWidth)
}

// bars draws what the steps did.
func (a axis) bars(steps []tasker.Step, history []tasker.Transition) map[tasker.ID]stepBar {
	moves := map[tasker.ID][]tasker.Transition{}
	for _, m := range slices.Backward(history) {
		if m.StepUUID != nil {
			moves[*m.StepUUID] = append(moves[*m.StepUUID], m)
		}
	}
	bars := make(map[tasker.ID]stepBar, len(steps))
	for _, s := range steps {
		bars[s.UUID] = a.bar(s, moves[s.UUID])
	}
	return bars
}

func (a axis) bar(s tasker.Step, moves []tasker.Transition) stepBar {
	var b stepBar
	lengths := map[string]time.Duration{}
	since := s.CreatedAt
	if since.Before(a.From) {
		since = a.From // what came before is not on the axis, nor in the words
	}
	for _, m := range moves {
		lengths[b.span(a, m.From, since, m.CreatedAt, true)] += m.CreatedAt.Sub(since)
		if m.To == string(tasker.StepError) {
			b.Failed = append(b.Failed, a.at(m.CreatedAt))
		}
		since = m.CreatedAt
	}
	lengths[b.span(a, string(s.State), since, a.To, s.NextRetryAt != nil)] += a.To.Sub(since)
	var said []string
	for _, kind := range []struct{ kind, verb string }{{"idle", "waited"}, {"busy", "ran"}, {"warn", "rested after failures"}} {
		if d := lengths[kind.kind]; d > 0 {
			said = append(said, kind.verb+" "+briefly(d))
		}
	}
	if n := len(b.Failed); n > 0 {
		said = append(said, count(n, "failed attempt"))
	}
	b.Words = strings.Join(said, ", ")
	return b
}

// span draws a stay in a state, and returns what kind of time it was. An error is
// time only when something comes after it.
func (b *stepBar) span(a axis, state string, from, to time.Time, goesOn bool) string {
	kind, height := "", 4.0
	switch tasker.StepState(state) {
	case tasker.StepEnqueued, tasker.StepEnqueuedForOrchestration:
		kind = "idle"
	case tasker.StepInProgress:
		kind, height = "busy", 12
	case tasker.StepError:
		if goesOn {
			kind = "warn"
		}
	default: // it waits for other steps, or has ended
	}
	if kind == "" {
		return ""
	}
	x := min(a.at(from), barWidth-leastBar)
	b.Spans = append(b.Spans, barSpan{
		X: x, Width: max(a.at(to)-x, leastBar), Y: (barHeight - height) / 2, Height: height, Kind: kind,
	})
	return kind
}

// briefly is a length that may be much shorter than a second.
func briefly(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return length(d)
	}
}
