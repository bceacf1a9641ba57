package ctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/payload"
)

const (
	maxLine  = 4 << 10 // bytes of a text that is shown in full
	maxShown = 50      // faults listed
)

// The colours of a terminal.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	plain  = "\x1b[0m"
)

// colourful reports whether w is a terminal that may be coloured.
func (p *program) colourful(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && p.env["NO_COLOR"] == "" && p.env["TERM"] != "dumb" && term.IsTerminal(int(file.Fd()))
}

func (p *program) paint(w io.Writer, colour, s string) string {
	if !p.colourful(w) {
		return s
	}
	return colour + s + plain
}

// done prints that something succeeded.
func (p *program) done(format string, args ...any) {
	fmt.Fprintln(p.out, p.paint(p.out, green, "✓"), fmt.Sprintf(format, args...))
}

// warn prints a warning.
func (p *program) warn(format string, args ...any) {
	fmt.Fprintln(p.err, p.paint(p.err, yellow, "⚠"), fmt.Sprintf(format, args...))
}

// hint prints a line below a warning or an error, such as a command that helps.
func (p *program) hint(format string, args ...any) {
	fmt.Fprintln(p.err, "  "+clean(fmt.Sprintf(format, args...)))
}

// A field is a line "  Label: value". One whose value is empty is left out.
type field struct{ label, value string }

func (p *program) fields(indent string, list ...field) {
	for _, f := range list {
		if value := clean(f.value); value != "" {
			fmt.Fprintf(p.out, "%s%s: %s\n", indent, f.label, value)
		}
	}
}

// json prints a document for programs. Characters that a terminal might take for a
// command are escaped, which JSON allows.
func (p *program) json(v any) error {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	_, err := io.WriteString(p.out, escape(doc.String()))
	return err
}

// show prints v as JSON if that is asked for, and otherwise calls asText.
func (p *program) show(v any, asText func()) error {
	if p.output == "json" {
		return p.json(v)
	}
	asText()
	return nil
}

// clean returns s as one line that does nothing to a terminal.
func clean(s string) string { return strings.Join(strings.Fields(cleanLine(s)), " ") }

// cleanLine is clean for a line whose spaces matter.
func cleanLine(s string) string {
	return strings.TrimRight(payload.CleanText(s, maxLine), "\n")
}

// escape escapes in JSON the characters that clean leaves out. They occur in
// strings only.
func escape(doc string) string {
	var b strings.Builder
	for _, r := range doc {
		if (r >= 0x7f && r < 0xa0) || payload.TurnsText(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// compact returns a document as one line; null is the empty line.
func compact(doc json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, doc) != nil || b.String() == "null" {
		return ""
	}
	return b.String()
}

// indented returns a document as lines, cleaned.
func indented(doc json.RawMessage, prefix string) string {
	var b bytes.Buffer
	if json.Indent(&b, doc, prefix, "  ") != nil {
		return clean(string(doc))
	}
	return escape(b.String())
}

// at formats an instant; none is the empty text.
func at(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// orDash returns an empty text as a cell that awk can count.
func orDash(s string) string { return cmp.Or(s, "-") }

// atLeast formats a number that may be larger.
func atLeast(n int, more bool) string {
	if more {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// more prints on stderr how to see the next page of a list.
func (p *program) more(page apiv1.Pagination) {
	if page.HasMore {
		fmt.Fprintf(p.err, "There are more: --offset %d shows the next.\n", page.Offset+page.Count)
	}
}

// goesOn prints on stderr how to see the rest of a list that goes on by position.
func (p *program) goesOn(page apiv1.Continuation) {
	if page.NextBefore != nil {
		fmt.Fprintf(p.err, "There are more: --before %d shows the next.\n", *page.NextBefore)
	}
}

// cutShort prints on stderr that a list without pages has reached its limit.
func (p *program) cutShort(shown, limit int) {
	if shown < limit {
		return
	}
	line := fmt.Sprintf("%d shown", shown)
	if limit < maxLimit {
		line += fmt.Sprintf("; --limit shows more (at most %d)", maxLimit)
	} else {
		line += ", there may be more"
	}
	fmt.Fprintln(p.err, line+".")
}

// mayGoOn prints on stderr that a list may go on, of which the server does not
// count the rest.
func (p *program) mayGoOn(shown int, page client.Page) {
	if shown >= page.Limit {
		fmt.Fprintf(p.err, "%d shown, there may be more: --offset %d shows the next.\n", shown, page.Offset+shown)
	}
}

// An advised is an error with lines for a person in place of its details: which
// commands help.
type advised struct {
	error
	lines []string
}

// Unwrap returns the error.
func (a advised) Unwrap() error { return a.error }

// complain prints the error of a command. Scripts that read JSON get it in the
// API's shape.
func (p *program) complain(command string, err error) {
	if err == nil || errors.As(err, new(cli.Exit)) {
		return
	}
	var advice advised
	if errors.As(err, &advice) {
		err = advice.error
	}
	body := apiv1.ErrorBody{Code: string(tasker.CodeOf(err)), Message: err.Error()}
	var known *tasker.Error
	switch {
	case cli.IsUsage(err):
		body.Code = "USAGE"
	case errors.As(err, &known):
		body.Details = known.Details
		if error(known) == err { //nolint:errorlint // wrapped, the text around it counts
			body.Message = known.Message
		}
	}
	if p.output == "json" {
		if doc, err := json.Marshal(apiv1.Error{Error: body}); err == nil {
			fmt.Fprintln(p.err, escape(string(doc)))
			return
		}
	}
	fmt.Fprintln(p.err, p.paint(p.err, red, "Error:"), clean(body.Message))
	lines := advice.lines
	if lines == nil {
		lines = append(detailLines(body.Details), p.accessAdvice(body)...)
	}
	for _, line := range lines {
		if !strings.Contains(clean(body.Message), clean(line)) {
			p.hint("%s", line)
		}
	}
	if body.Code == "USAGE" {
		fmt.Fprintln(p.err, cli.HelpHint(command))
	}
}

// detailLines returns the details of an error as lines: a list of faults, or an
// object.
func detailLines(details any) []string {
	doc, err := json.Marshal(details)
	if err != nil || details == nil {
		return nil
	}
	var faults []struct {
		File string `json:"file"`
		tasker.Fault
	}
	if json.Unmarshal(doc, &faults) == nil {
		var lines []string
		for _, f := range faults {
			line := f.String()
			if f.File != "" {
				line = f.File + ": " + line
			}
			lines = append(lines, line)
		}
		return lines[:min(len(lines), maxShown)]
	}
	var object map[string]any
	if json.Unmarshal(doc, &object) != nil {
		return []string{string(doc)}
	}
	var lines []string
	for name, value := range object {
		lines = append(lines, name+": "+spell(value))
	}
	slices.Sort(lines)
	return lines[:min(len(lines), maxShown)]
}

// spell writes a value of JSON on one line without braces.
func spell(value any) string {
	var parts []string
	switch v := value.(type) {
	case nil:
		return "none"
	case string:
		return v
	case []any:
		for _, element := range v {
			parts = append(parts, spell(element))
		}
		return strings.Join(parts, "; ")
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+" "+spell(v[name]))
		}
		return strings.Join(parts, ", ")
	default:
		doc, _ := json.Marshal(v) // it came from JSON
		return string(doc)
	}
}

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
