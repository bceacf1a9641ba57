package web

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
)

// A bar shows a value against its threshold. The threshold stands at [barMark] of
// [fullBar], so that what lies beyond it can be seen as well.
type bar struct {
	Fill    int    // pixels
	Look    string // good, warn or bad
	Percent int    // rounded down, so that nothing is called full too early
}

// Sizes of a bar, in pixels of its picture.
const (
	fullBar  = 125
	barMark  = 100
	warnFrom = 80 // percent
)

// barOf draws value against threshold. What has no threshold is at its end.
func barOf(value, threshold float64) bar {
	share := 100.0
	if threshold > 0 {
		share = min(max(100*value/threshold, 0), math.MaxInt32)
	}
	b := bar{Percent: int(share), Fill: min(int(math.Round(share*barMark/100)), fullBar), Look: "good"}
	switch {
	case b.Percent >= 100:
		b.Look = "bad"
	case b.Percent >= warnFrom:
		b.Look = "warn"
	}
	return b
}

// A series is one kind of column in a plot: its name, and a look of the sheet.
type series struct{ Name, Look string }

// A point is what a plot shows at one place: a value of each series.
type point struct {
	Name   string // of the place, in full
	Label  string // below the axis; may be empty
	Values []int64
}

// A plot is a picture of columns, for the template "plot".
type plot struct {
	Width, Height int
	Bottom        int // where the columns stand
	Left          int // where the axis begins
	Says          string
	Series        []series
	Columns       []column
	Lines         []gridLine
	Labels        []axisLabel
	Points        []point
}

// A column is one value.
type column struct {
	X, Y, Width, Height int
	Look, Title         string
}

// A gridLine is at a round value.
type gridLine struct {
	Y    int
	Text string
}

type axisLabel struct {
	X    int
	Text string
}

// Sizes of a plot, in pixels.
const (
	plotWidth, plotHeight = 720, 150
	plotLeft, plotTop     = 44, 10
	plotDigit             = 12 // a character of a label, where they are largest
	plotBottom            = plotHeight - 20
)

// drawPlot draws the points from left to right, the series of one side by side.
// title begins what a reader hears who does not see it.
func drawPlot(title string, list []series, points []point) plot {
	p := plot{Width: plotWidth, Height: plotHeight, Bottom: plotBottom, Series: list, Points: points}
	most, sums := int64(0), make([]int64, len(list))
	for _, pt := range points {
		for i, v := range pt.Values {
			most = max(most, v)
			sums[i] += v
		}
	}
	top := roundUp(most)
	p.Left = max(plotLeft, len(count(top, ""))*plotDigit+plotDigit) // its label is the longest
	y := func(v int64) int { return plotBottom - int(math.Round(float64(v)/float64(top)*(plotBottom-plotTop))) }
	for _, v := range gridValues(top) {
		p.Lines = append(p.Lines, gridLine{Y: y(v), Text: count(v, "")})
	}
	slot := float64(plotWidth-p.Left) / float64(max(len(points), 1))
	width := max(int(slot*0.8)/max(len(list), 1), 1)
	for n, pt := range points {
		x := p.Left + int(slot*(float64(n)+0.1))
		if pt.Label != "" {
			p.Labels = append(p.Labels, axisLabel{X: x, Text: pt.Label})
		}
		for i, v := range pt.Values {
			if v <= 0 {
				continue
			}
			at := min(y(v), plotBottom-1) // the least can be seen
			p.Columns = append(p.Columns, column{
				X: x + i*width, Y: at, Width: width, Height: plotBottom - at, Look: list[i].Look,
				Title: fmt.Sprintf("%s: %s %s", pt.Name, count(v, ""), list[i].Name),
			})
		}
	}
	p.Says = title
	for i, s := range list {
		p.Says += fmt.Sprintf(", %s %s", count(sums[i], ""), s.Name)
	}
	return p
}

// roundUp is the next of 1, 2 and 5 with zeros that is not below v, and at least 2.
func roundUp(v int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, n := range []int64{2, 5, 10} {
			if n*unit >= v || n*unit >= math.MaxInt64/100 {
				return n * unit
			}
		}
	}
}

// gridValues are the values at which a line helps: none, half and all of top.
func gridValues(top int64) []int64 { return []int64{0, top / 2, top} }

// span spells a value and its threshold, which are minutes, in one unit if both are
// short.
func span(value, threshold float64) string {
	const most = 180
	if value < most && threshold < most && value >= 1 {
		return strconv.Itoa(int(value)) + " of " + strconv.Itoa(int(math.Round(threshold))) + " min"
	}
	return minutes(value) + " of " + minutes(threshold)
}

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
