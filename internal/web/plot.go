package web

import (
	"fmt"
	"math"
	"strconv"
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
