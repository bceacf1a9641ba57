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
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/payload"
)

const (
	maxLine  = 4 << 10 // bytes of a line
	maxShown = 50      // faults listed
)

const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	normal = "\x1b[0m"
)

func (p *program) canUseColor(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && p.env["NO_COLOR"] == "" && p.env["TERM"] != "dumb" && term.IsTerminal(int(file.Fd()))
}

func (p *program) paint(w io.Writer, color, s string) string {
	if !p.canUseColor(w) {
		return s
	}
	return color + s + normal
}

// printDone prints a success message.
func (p *program) printDone(format string, args ...any) {
	fmt.Fprintln(p.out, p.paint(p.out, green, "✓"), fmt.Sprintf(format, args...))
}

func (p *program) warn(format string, args ...any) {
	fmt.Fprintln(p.err, p.paint(p.err, yellow, "⚠"), fmt.Sprintf(format, args...))
}

// printHint prints a line below a warning or an error, such as a suggested command.
func (p *program) printHint(format string, args ...any) {
	fmt.Fprintln(p.err, "  "+clean(fmt.Sprintf(format, args...)))
}

// field is a line "Label: value". Fields with an empty value are omitted.
type field struct {
	label string
	value any
}

func (p *program) printFields(indent string, list ...field) {
	for _, f := range list {
		if value := clean(formatValue(f.value)); value != "" {
			fmt.Fprintf(p.out, "%s%s: %s\n", indent, f.label, value)
		}
	}
}

// printJSON prints v as JSON. Control characters that could affect a terminal are escaped.
func (p *program) printJSON(v any) error {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print response: %w", err)
	}
	_, err := io.WriteString(p.out, escape(doc.String()))
	return err
}

// show prints v with -o json, and otherwise calls asText.
func (p *program) show(v any, asText func()) error {
	if p.output == "json" {
		return p.printJSON(v)
	}
	asText()
	return nil
}

// clean returns s as one line without control characters.
func clean(s string) string { return strings.Join(strings.Fields(cleanLine(s)), " ") }

// cleanLine is like clean but preserves spaces.
func cleanLine(s string) string {
	return strings.TrimRight(payload.CleanText(s, maxLine), "\n")
}

// escape escapes the characters in a JSON document that clean would remove. They occur only in
// strings.
func escape(doc string) string {
	var b strings.Builder
	for _, r := range doc {
		if (r >= 0x7f && r < 0xa0) || payload.IsBidiControl(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// compact returns a document as one line, or "" for null.
func compact(doc json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, doc) != nil || b.String() == "null" {
		return ""
	}
	return b.String()
}

func indentJSON(doc json.RawMessage, prefix string) string {
	var b bytes.Buffer
	if json.Indent(&b, doc, prefix, "  ") != nil {
		return clean(string(doc))
	}
	return escape(b.String())
}

// formatTime formats a time. It returns "" for nil and for the zero time.
func formatTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// orDefault returns *p, or fallback if p is nil.
func orDefault[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

// orDash formats a value, or returns "-" if it is empty, so that awk counts the cell.
func orDash(v any) string { return cmp.Or(formatValue(v), "-") }

// formatValue formats the value of a cell or a field. It returns "" for nil and for the zero time.
func formatValue(v any) string {
	switch v := v.(type) {
	case time.Time:
		return formatTime(&v)
	case *time.Time:
		return formatTime(v)
	case *string:
		return orDefault(v, "")
	case *tasker.ID:
		if v == nil {
			return ""
		}
		return v.String()
	case []string:
		return strings.Join(v, ", ")
	case json.RawMessage:
		return compact(v)
	default:
		return fmt.Sprint(v)
	}
}

// when returns v if is, and otherwise a value that formats as "".
func when(is bool, v any) any {
	if is {
		return v
	}
	return ""
}

// formatInt formats an integer.
func formatInt[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// formatAtLeast formats a number, with "+" if it is a lower bound.
func formatAtLeast(n int, more bool) string {
	if more {
		return formatInt(n) + "+"
	}
	return formatInt(n)
}

func formatPlural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// printNextPage prints the flag that shows the next page of a list to stderr, if there is one.
func (p *program) printNextPage(page apiv1.Pagination) {
	if page.HasMore {
		printNextPageFlag(p, "offset", new(page.Offset+page.Count))
	}
}

// printNextPageFlag prints the flag that shows the next page of a list to stderr, unless next is nil.
func printNextPageFlag[T any](p *program, flag string, next *T) {
	if next != nil && !p.quiet {
		fmt.Fprintf(p.err, "There are more: --%s %s shows the next.\n", flag, clean(fmt.Sprint(*next)))
	}
}

// hintLimitReached prints a hint to stderr if a list without pages has reached its limit.
func (p *program) hintLimitReached(shown int) {
	limit, _ := p.command.Flags().GetInt("limit")
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

// hintMorePages prints a hint to stderr if a list may have a next page. It is for lists whose response
// does not contain that information. With both --quiet and --limit, it prints nothing.
func (p *program) hintMorePages(shown int) {
	f := p.command.Flags()
	limit, _ := f.GetInt("limit")
	offset, _ := f.GetInt("offset")
	if shown >= limit && (!p.quiet || !f.Changed("limit")) {
		fmt.Fprintf(p.err, "%d shown, there may be more: --offset %d shows the next.\n", shown, offset+shown)
	}
}

// advisedError is an error with hints that replace its details.
type advisedError struct {
	error
	lines []string
}

// Unwrap implements errors.Unwrap.
func (a advisedError) Unwrap() error { return a.error }

// printError prints the error of a command. With -o json, the output has the format of an API error.
func (p *program) printError(command string, err error) {
	if err == nil || errors.As(err, new(cli.Exit)) {
		return
	}
	var advice advisedError
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
		if error(known) == err { //nolint:errorlint // a wrapped error has more text
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
		lines = append(formatDetails(body.Details), p.adviseOnAccess(body)...)
	}
	for _, line := range lines {
		if !strings.Contains(clean(body.Message), clean(line)) {
			p.printHint("%s", line)
		}
	}
	if body.Code == "USAGE" {
		fmt.Fprintln(p.err, cli.HelpHint(command))
	}
}

// formatDetails formats the details of an error, such as a list of faults or an object.
func formatDetails(details any) []string {
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
		lines = append(lines, name+": "+formatInline(value))
	}
	slices.Sort(lines)
	return lines[:min(len(lines), maxShown)]
}

// formatInline formats a JSON value on one line without braces.
func formatInline(value any) string {
	var parts []string
	switch v := value.(type) {
	case nil:
		return "none"
	case string:
		return v
	case []any:
		for _, element := range v {
			parts = append(parts, formatInline(element))
		}
		return strings.Join(parts, "; ")
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+" "+formatInline(v[name]))
		}
		return strings.Join(parts, ", ")
	default:
		doc, _ := json.Marshal(v) // v was decoded from JSON
		return string(doc)
	}
}

const (
	maxCell = 60   // characters of a table cell
	maxNote = 120  // characters of a shortened text
	minCell = 12   // minimum width of a shortened column; no header is wider
	gap     = "  " // between columns
)

// proseColumns lists the columns that are shortened on a narrow terminal. Ids, numbers, times and states
// are never shortened.
var proseColumns = []string{
	"actor", "dead letter", "description", "detail", "last failure", "name", "namespace", "namespaces", "notes", "reason", "step", "template",
}

// printTable prints rows under a header, without borders, so that awk can parse them. If the terminal
// is too narrow, it first omits the columns whose name ends in "?", then shortens others.
func (p *program) printTable(columns []string, rows [][]string) {
	w := table.NewWriter()
	w.SetStyle(table.Style{
		Box:    table.BoxStyle{PaddingRight: gap},
		Format: table.FormatOptions{Header: text.FormatUpper},
	})
	var header, spare []string
	for _, name := range columns {
		name, optional := strings.CutSuffix(name, "?")
		if header = append(header, name); optional {
			spare = append(spare, name)
		}
	}
	grid := [][]string{header}
	for _, r := range rows {
		row := make([]string, len(r))
		for i, s := range r {
			row[i] = truncate(s, maxCell)
		}
		grid = append(grid, row)
	}
	if most := p.terminalWidth(); most > 0 {
		grid = dropColumns(grid, most, spare)
		fitColumns(grid, most)
	}
	w.AppendHeader(toTableRow(grid[0]))
	for _, r := range grid[1:] {
		w.AppendRow(toTableRow(r))
	}
	for line := range strings.Lines(w.Render() + "\n") {
		fmt.Fprintln(p.out, strings.TrimRight(line, " \n"))
	}
}

func toTableRow(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, t := range texts {
		row[i] = t
	}
	return row
}

// truncate returns s as one line of at most most characters.
func truncate(s string, most int) string {
	s = clean(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// terminalWidth returns the maximum width of a table, or 0 for no limit if the output is not a terminal.
func (p *program) terminalWidth() int {
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

// measureColumns returns the widths of the columns and of the table.
func measureColumns(grid [][]string) (widths []int, total int) {
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

// dropColumns removes spare columns, in their order, until the table is at most most characters wide.
func dropColumns(grid [][]string, most int, spare []string) [][]string {
	for _, name := range spare {
		_, total := measureColumns(grid)
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

// fitColumns shortens the widest prose columns until the table is at most most characters wide. The first
// row of grid is the header.
func fitColumns(grid [][]string, most int) {
	widths, total := measureColumns(grid)
	for ; total > most; total-- {
		widest := -1
		for i, name := range grid[0] {
			if slices.Contains(proseColumns, name) && widths[i] > minCell && (widest < 0 || widths[i] > widths[widest]) {
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
