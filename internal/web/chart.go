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

// bar shows a value relative to its threshold, which is drawn at [barMark].
type bar struct {
	Fill    int    // pixels
	Look    string // good, warn or bad
	Percent int    // rounded down
}

// Sizes of a bar, in pixels.
const (
	fullBar  = 125
	barMark  = 100
	warnFrom = 80 // percent
)

// newBar returns the bar for a value. If threshold is 0, the bar reaches the threshold.
func newBar(value, threshold float64) bar {
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

// series is one kind of column of a plot, with its CSS class.
type series struct{ Name, Look string }

// point has a value for each series.
type point struct {
	Name   string
	Label  string // below the axis; optional
	Values []int64
}

// plot is a column chart for the template "plot".
type plot struct {
	Width, Height int
	Bottom        int // of the columns
	Left          int // of the axis
	Label         string
	Series        []series
	Columns       []column
	Lines         []gridLine
	Labels        []axisLabel
	Points        []point
}

type column struct {
	X, Y, Width, Height int
	Look, Title         string
}

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
	plotDigit             = 12 // maximum width of a digit
	plotBottom            = plotHeight - 20
)

// drawPlot draws points from left to right. The text for screen readers begins with title.
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
	p.Left = max(plotLeft, len(formatCount(top, ""))*plotDigit+plotDigit) // the longest label
	y := func(v int64) int { return plotBottom - int(math.Round(float64(v)/float64(top)*(plotBottom-plotTop))) }
	for _, v := range []int64{0, top / 2, top} {
		p.Lines = append(p.Lines, gridLine{Y: y(v), Text: formatCount(v, "")})
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
			at := min(y(v), plotBottom-1) // at least one pixel
			p.Columns = append(p.Columns, column{
				X: x + i*width, Y: at, Width: width, Height: plotBottom - at, Look: list[i].Look,
				Title: fmt.Sprintf("%s: %s %s", pt.Name, formatCount(v, ""), list[i].Name),
			})
		}
	}
	p.Label = title
	for i, s := range list {
		p.Label += fmt.Sprintf(", %s %s", formatCount(sums[i], ""), s.Name)
	}
	return p
}

// roundUp rounds v up to 2, 5 or 10 times a power of ten.
func roundUp(v int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, n := range []int64{2, 5, 10} {
			if n*unit >= v || n*unit >= math.MaxInt64/100 {
				return n * unit
			}
		}
	}
}

// formatSpan formats a value and its threshold, which are in minutes. If both are short, the unit
// occurs once.
func formatSpan(value, threshold float64) string {
	const most = 180
	if value < most && threshold < most && value >= 1 {
		return strconv.Itoa(int(value)) + " of " + strconv.Itoa(int(math.Round(threshold))) + " min"
	}
	return formatMinutes(value) + " of " + formatMinutes(threshold)
}

// Sizes of the bars of the steps, in pixels.
const (
	barWidth, barHeight = 220, 16
	leastBar            = 2 // minimum width
)

// axis is the time range that the bars of all steps of a task share.
type axis struct {
	From, To time.Time
	Length   string
}

// stepBar shows the times of a step: thin while waiting, thick while running, and a tick for each
// failed attempt.
type stepBar struct {
	Spans  []barSpan
	Failed []float64 // positions of ticks
	Words  string
}

type barSpan struct {
	X, Y, Width, Height float64
	Kind                string
}

// newAxis returns the axis of a task. The history is newest first.
func newAxis(t tasker.Task, history []tasker.Transition, now time.Time) axis {
	a := axis{From: t.CreatedAt, To: now}
	if t.State == tasker.TaskComplete || t.State == tasker.TaskCancelled {
		a.To = t.StateSince
	}
	if t.StartAt != nil && t.StartAt.After(a.From) && t.StartAt.Before(a.To) {
		a.From = *t.StartAt // omits the time before the start
	}
	if len(history) == maxHistory {
		a.From = history[len(history)-1].CreatedAt
	}
	if !a.To.After(a.From) {
		a.To = a.From.Add(time.Millisecond) // clock skew
	}
	a.Length = formatBrief(a.To.Sub(a.From))
	return a
}

// position returns the horizontal position of a time.
func (a axis) position(t time.Time) float64 {
	x := barWidth * float64(t.Sub(a.From)) / float64(a.To.Sub(a.From))
	return min(max(x, 0), barWidth)
}

func (a axis) newBars(steps []tasker.Step, history []tasker.Transition) map[tasker.ID]stepBar {
	moves := map[tasker.ID][]tasker.Transition{}
	for _, m := range slices.Backward(history) {
		if m.StepUUID != nil {
			moves[*m.StepUUID] = append(moves[*m.StepUUID], m)
		}
	}
	bars := make(map[tasker.ID]stepBar, len(steps))
	for _, s := range steps {
		bars[s.UUID] = a.newBar(s, moves[s.UUID])
	}
	return bars
}

func (a axis) newBar(s tasker.Step, moves []tasker.Transition) stepBar {
	var b stepBar
	lengths := map[string]time.Duration{}
	since := s.CreatedAt
	if since.Before(a.From) {
		since = a.From // the words describe the axis only
	}
	for _, m := range moves {
		lengths[b.addSpan(a, m.From, since, m.CreatedAt, true)] += m.CreatedAt.Sub(since)
		if m.To == string(tasker.StepError) {
			b.Failed = append(b.Failed, a.position(m.CreatedAt))
		}
		since = m.CreatedAt
	}
	lengths[b.addSpan(a, string(s.State), since, a.To, s.NextRetryAt != nil)] += a.To.Sub(since)
	var words []string
	for _, kind := range []struct{ kind, verb string }{{"idle", "waited"}, {"busy", "ran"}, {"warn", "waited for retries"}} {
		if d := lengths[kind.kind]; d > 0 {
			words = append(words, kind.verb+" "+formatBrief(d))
		}
	}
	if n := len(b.Failed); n > 0 {
		words = append(words, formatCount(n, "failed attempt"))
	}
	b.Words = strings.Join(words, ", ")
	return b
}

// addSpan draws the time that a step spent in a state and returns the kind of span. It draws the
// time in state error only if the step continued afterwards.
func (b *stepBar) addSpan(a axis, state string, from, to time.Time, continues bool) string {
	kind, height := "", 4.0
	switch tasker.StepState(state) {
	case tasker.StepEnqueued, tasker.StepEnqueuedForOrchestration:
		kind = "idle"
	case tasker.StepInProgress:
		kind, height = "busy", 12
	case tasker.StepError:
		if continues {
			kind = "warn"
		}
	default: // pending or ended
	}
	if kind == "" {
		return ""
	}
	x := min(a.position(from), barWidth-leastBar)
	b.Spans = append(b.Spans, barSpan{
		X: x, Width: max(a.position(to)-x, leastBar), Y: (barHeight - height) / 2, Height: height, Kind: kind,
	})
	return kind
}

// formatBrief formats a duration with more precision below ten seconds.
func formatBrief(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return formatLength(d)
	}
}
