package web

import (
	"math"
	"strings"
	"testing"
)

func TestThresholdBar(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value, threshold float64
		want             bar
	}{
		{0, 60, bar{0, "good", 0}},
		{-5, 60, bar{0, "good", 0}},
		{30, 60, bar{50, "good", 50}},
		{47.9, 60, bar{80, "good", 79}},
		{48, 60, bar{80, "warn", 80}},
		{59.99, 60, bar{100, "warn", 99}}, // not called full too early
		{60, 60, bar{100, "bad", 100}},
		{66, 60, bar{110, "bad", 110}},
		{600, 60, bar{fullBar, "bad", 1000}},
		{1, 0, bar{100, "bad", 100}},
		{1, -1, bar{100, "bad", 100}},
		{math.Inf(1), 60, bar{fullBar, "bad", math.MaxInt32}},
		{1e300, 1e-300, bar{fullBar, "bad", math.MaxInt32}},
	} {
		if got := newBar(tt.value, tt.threshold); got != tt.want {
			t.Errorf("%v of %v is %+v, want %+v", tt.value, tt.threshold, got, tt.want)
		}
	}
}

func TestSpansAreInOneUnitWhenBothAreShort(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value, threshold float64
		want             string
	}{
		{52.9, 60, "52 of 60 min"},
		{1, 60, "1 of 60 min"},
		{0.5, 60, "30 s of 1 h 0 min"},
		{179, 179, "179 of 179 min"},
		{180, 60, "3 h 0 min of 1 h 0 min"},
		{30, 1440, "30 min of 1 d 0 h"},
		{4320, 1440, "3 d 0 h of 1 d 0 h"},
	} {
		if got := formatSpan(tt.value, tt.threshold); got != tt.want {
			t.Errorf("%v of %v reads %q, want %q", tt.value, tt.threshold, got, tt.want)
		}
	}
}

// twoKinds are the series of the dashboard.
var twoKinds = []series{{"opened", "bad"}, {"ended", "good"}}

func TestPlotColumns(t *testing.T) {
	t.Parallel()
	p := drawPlot("Today", twoKinds, []point{
		{Name: "10:00 UTC", Label: "10:00", Values: []int64{1500, 1}},
		{Name: "11:00 UTC", Values: []int64{0, 2000}},
	})
	if p.Label != "Today, 1,500 opened, 2,001 ended" {
		t.Errorf("it says %q", p.Label)
	}
	if len(p.Columns) != 3 || len(p.Labels) != 1 || p.Labels[0] != (axisLabel{p.Columns[0].X, "10:00"}) {
		t.Fatalf("%+v", p)
	}
	opened, least, ended := p.Columns[0], p.Columns[1], p.Columns[2]
	if opened.Title != "10:00 UTC: 1,500 opened" || opened.Look != "bad" || ended.Title != "11:00 UTC: 2,000 ended" || ended.Look != "good" {
		t.Errorf("they say %+v", p.Columns)
	}
	if least.X != opened.X+opened.Width || least.Height != 1 {
		t.Errorf("the least is %+v, beside %+v", least, opened)
	}
	if ended.Y != plotTop || ended.Height != plotBottom-plotTop {
		t.Errorf("the highest is %+v", ended)
	}
	var lines []string
	for _, l := range p.Lines {
		lines = append(lines, l.Text)
	}
	if got := strings.Join(lines, " "); got != "0 1,000 2,000" || p.Lines[0].Y != plotBottom || p.Lines[2].Y != plotTop {
		t.Errorf("the lines are %+v", p.Lines)
	}
}

// However many there are and whatever their values, columns stay in the picture and
// apart from each other.
func TestPlotColumnsStayInThePicture(t *testing.T) {
	t.Parallel()
	for count := 1; count <= 60; count++ {
		var points []point
		for n := range count {
			points = append(points, point{Values: []int64{int64(n * n), math.MaxInt32 >> (n % 31)}})
		}
		p := drawPlot("Many", twoKinds, points)
		end := p.Left
		for _, c := range p.Columns {
			if c.X < end || c.Y < plotTop || c.Y+c.Height != plotBottom || c.Height < 1 || c.Width < 1 || c.X+c.Width > plotWidth {
				t.Fatalf("of %d points, a column is %+v after %d", count, c, end)
			}
			end = c.X + c.Width
		}
	}
}
