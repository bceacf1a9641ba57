package ctl

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

const (
	maxCell = 60   // characters of a text in a table
	maxNote = 120  // characters of a text that is only hinted at
	minCell = 12   // columns that a text keeps on a narrow terminal; no header is wider
	gap     = "  " // between two columns
)

// prose are the columns that are cut on a narrow terminal. The others are not: a
// part of an id, a number, a time or a state is of no use.
var prose = []string{
	"actor", "dead letter", "description", "detail", "last failure", "name", "namespace", "namespaces", "notes", "reason", "step", "template",
}

// table prints rows under a header, without borders, so that awk can read them. On
// a terminal that is too narrow, spare columns are left out before any is cut.
func (p *program) table(header []string, rows [][]string, spare ...string) {
	w := table.NewWriter()
	w.SetStyle(table.Style{
		Box:    table.BoxStyle{PaddingRight: gap},
		Format: table.FormatOptions{Header: text.FormatUpper},
	})
	grid := [][]string{header}
	for _, r := range rows {
		grid = append(grid, cells(r))
	}
	if most := p.columns(); most > 0 {
		grid = leaveOut(grid, most, spare)
		fit(grid, most)
	}
	w.AppendHeader(tableRow(grid[0]))
	for _, r := range grid[1:] {
		w.AppendRow(tableRow(r))
	}
	for line := range strings.Lines(w.Render() + "\n") {
		fmt.Fprintln(p.out, strings.TrimRight(line, " \n"))
	}
}

func tableRow(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, t := range texts {
		row[i] = t
	}
	return row
}

func cells(texts []string) []string {
	list := make([]string, len(texts))
	for i, t := range texts {
		list[i] = cell(t)
	}
	return list
}

// cell returns s as one short piece of a line.
func cell(s string) string { return short(s, maxCell) }

// short returns s as a piece of a line of at most this many characters.
func short(s string, most int) string {
	s = clean(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// columns returns the columns that a table may take; 0 is no bound, for programs
// read what is written to a file or a pipe.
func (p *program) columns() int {
	file, ok := p.out.(*os.File)
	if p.width > 0 || !ok || !term.IsTerminal(int(file.Fd())) {
		return p.width
	}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		return width
	}
	width, err := strconv.Atoi(p.env["COLUMNS"])
	if err != nil {
		return 0
	}
	return max(width, 0)
}

// measure returns the widths of the columns of a table and of all together.
func measure(grid [][]string) (widths []int, total int) {
	widths = make([]int, len(grid[0]))
	total = -len(gap)
	for i := range widths {
		for _, row := range grid {
			widths[i] = max(widths[i], text.StringWidthWithoutEscSequences(row[i]))
		}
		total += widths[i] + len(gap)
	}
	return widths, total
}

// leaveOut drops spare columns, in their order, while a table is wider than most.
func leaveOut(grid [][]string, most int, spare []string) [][]string {
	for _, name := range spare {
		_, total := measure(grid)
		at := slices.Index(grid[0], name)
		if total <= most || at < 0 {
			continue
		}
		less := make([][]string, len(grid))
		for i, row := range grid {
			less[i] = slices.Concat(row[:at], row[at+1:])
		}
		grid = less
	}
	return grid
}

// fit cuts the widest prose of a table, whose first row is its header, until the
// table is at most so many columns wide, or no prose has more than it needs.
func fit(grid [][]string, most int) {
	widths, total := measure(grid)
	for ; total > most; total-- {
		widest := -1
		for i, name := range grid[0] {
			if slices.Contains(prose, name) && widths[i] > minCell && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	for _, row := range grid[1:] {
		for i := range row {
			row[i] = text.Snip(row[i], widths[i], "…")
		}
	}
}
