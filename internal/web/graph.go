package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"tasker.example/tasker"
)

// Sizes of a graph, in pixels.
const (
	nodeWidth, nodeHeight = 168, 46
	layerGap, rowGap      = 56, 18
	graphMargin           = 10
	nodeText              = nodeWidth - 24 // width of the text
)

// graph shows steps in layers from left to right, each after its dependencies, for the template
// "graph".
type graph struct {
	Width, Height int
	Nodes         []node
	Edges         []edge
}

// node is a step of a graph.
type node struct {
	X, Y        int
	Name, Shown string // full and truncated
	State       tasker.StepState
	Line        string // below the name
	Href        string // link; optional
	Marked      bool   // the step that the page is about
}

// nodeKinds are the names of special step types.
var nodeKinds = map[tasker.StepType]string{
	tasker.DecisionStep: "decision", tasker.ExternalStep: "external", tasker.WaitStep: "wait", tasker.ChildStep: "child task",
}

// edge leads from a step to a dependent step.
type edge struct {
	Path string // SVG path
	Done bool   // the first step is done
}

// withoutItems removes the items of map steps. If the marked step is an item, it returns the
// item's map step as marked instead.
func withoutItems(steps []tasker.Step, marked *tasker.ID) ([]tasker.Step, *tasker.ID) {
	list := make([]tasker.Step, 0, len(steps))
	for _, s := range steps {
		switch {
		case s.MapStepUUID == nil:
			list = append(list, s)
		case marked != nil && *marked == s.UUID:
			marked = s.MapStepUUID
		}
	}
	return list, marked
}

// drawGraph draws the graph of the steps. marked may be nil; href returns the link for a step.
func drawGraph(steps []tasker.Step, marked *tasker.ID, href func(tasker.Step) string) graph {
	steps, marked = withoutItems(steps, marked)
	layers := computeLayers(steps)
	at := map[tasker.ID]node{}
	g := graph{Width: 2*graphMargin + len(layers)*(nodeWidth+layerGap) - layerGap}
	tallest := 0
	for _, layer := range layers {
		tallest = max(tallest, len(layer))
	}
	g.Height = 2*graphMargin + tallest*(nodeHeight+rowGap) - rowGap
	for i, layer := range layers {
		top := (g.Height - len(layer)*(nodeHeight+rowGap) + rowGap) / 2
		for j, s := range layer {
			n := node{
				X: graphMargin + i*(nodeWidth+layerGap), Y: top + j*(nodeHeight+rowGap), Name: s.Name, Shown: truncateToWidth(s.Name, nodeText), State: s.State,
				Line: formatWords(s.State), Marked: marked != nil && *marked == s.UUID,
			}
			if s.Attempts > 1 || s.State == tasker.StepError {
				n.Line += fmt.Sprintf(" · %d of %d", s.Attempts, s.MaxAttempts)
			}
			if kind := nodeKinds[s.Type]; kind != "" {
				n.Line = kind + " · " + n.Line
			}
			if s.Items != nil {
				n.Line = fmt.Sprintf("%d of %s done", s.Items.Total-s.Items.Open(), formatCount(s.Items.Total, "item"))
			}
			if href != nil {
				n.Href = href(s)
			}
			at[s.UUID] = n
			g.Nodes = append(g.Nodes, n)
		}
	}
	for _, s := range steps {
		for _, p := range s.Parents {
			from, ok := at[p]
			if !ok {
				continue
			}
			to := at[s.UUID]
			x1, y1, x2, y2 := from.X+nodeWidth, from.Y+nodeHeight/2, to.X, to.Y+nodeHeight/2
			bend := max((x2-x1)/2, layerGap/2)
			g.Edges = append(g.Edges, edge{
				Path: fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2-1, y2),
				Done: from.State.Done(),
			})
		}
	}
	return g
}

// computeLayers places each step in a layer after its dependencies. It orders the steps of a layer
// by their parents to avoid crossing edges.
func computeLayers(steps []tasker.Step) [][]tasker.Step {
	depth := computeDepths(steps)
	var layers [][]tasker.Step
	for _, s := range steps {
		for len(layers) <= depth[s.UUID] {
			layers = append(layers, nil)
		}
		layers[depth[s.UUID]] = append(layers[depth[s.UUID]], s)
	}
	layers = slices.DeleteFunc(layers, func(l []tasker.Step) bool { return len(l) == 0 })
	place := map[tasker.ID]float64{}
	for _, layer := range layers {
		want := map[tasker.ID]float64{}
		for i, s := range layer {
			want[s.UUID] = computeCenter(s.Parents, place, float64(i)/float64(len(layer)))
		}
		slices.SortStableFunc(layer, func(a, b tasker.Step) int { return cmp.Compare(want[a.UUID], want[b.UUID]) })
		for i, s := range layer {
			place[s.UUID] = (float64(i) + 0.5) / float64(len(layer))
		}
	}
	return layers
}

// computeDepths returns the length of the longest path to each step. It terminates even if the
// steps form a cycle.
func computeDepths(steps []tasker.Step) map[tasker.ID]int {
	depth := map[tasker.ID]int{}
	for _, s := range steps {
		depth[s.UUID] = 0
	}
	deeper := func(s tasker.Step) (moved bool) {
		for _, p := range s.Parents {
			if d, known := depth[p]; known && depth[s.UUID] <= d && d+1 < len(steps) {
				depth[s.UUID], moved = d+1, true
			}
		}
		return moved
	}
	for range steps {
		moved := false
		for _, s := range steps {
			moved = deeper(s) || moved
		}
		if !moved {
			break
		}
	}
	return depth
}

// computeCenter returns the mean position of the ids, or fallback if none of them has a position.
func computeCenter(ids []tasker.ID, place map[tasker.ID]float64, fallback float64) float64 {
	sum, n := 0.0, 0
	for _, id := range ids {
		if at, ok := place[id]; ok {
			sum += at
			n++
		}
	}
	if n == 0 {
		return fallback
	}
	return sum / float64(n)
}

// truncateToWidth shortens bold text to at most most pixels. It estimates the width for the widest
// common font.
func truncateToWidth(s string, most int) string {
	width := 0
	cut := -1 // end of the text before an ellipsis
	for i, r := range s {
		if cut < 0 && width+wide > most-wide {
			cut = i
		}
		if width += runeWidth(r); width > most {
			return s[:max(cut, 0)] + "…"
		}
	}
	return s
}

// Widths of characters in bold text of 13 pixels.
const narrow, usual, wide = 5, 8, 14

func runeWidth(r rune) int {
	switch {
	case strings.ContainsRune("iljft.,:;'|!()[]{}-/ I", r):
		return narrow
	case strings.ContainsRune("mwMW@%", r), r > unicode.MaxLatin1:
		return wide
	case unicode.IsUpper(r):
		return usual + 2
	default:
		return usual
	}
}

// truncate shortens s to at most most characters.
func truncate(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
