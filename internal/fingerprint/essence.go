package fingerprint

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"tasker.example/tasker/internal/terminal"
)

// extractEssence returns the part of a message that describes the error and its causes, without
// stack frames and hints. It returns the middle of a very long message separately.
func extractEssence(message string) (text, middle string) {
	message = toPrintable(message)
	if strings.IndexByte(message, '\n') >= 0 {
		if lines, _ := findEssentialLines(message); len(lines) > 0 {
			message = strings.Join(lines, "\n")
		} else {
			message = strings.Join(strings.Fields(message), " ")
		}
	}
	const half = maxEssence / 2
	if len(message) <= maxEssence {
		return message, ""
	}
	end := len(message) - half
	return strings.ToValidUTF8(message[:half], "") + cutMark + strings.ToValidUTF8(message[end:], ""), message[half:end]
}

// cutMark replaces the middle of a long line.
const cutMark = " … "

// extractWords returns the words of a text that contain no digits, separated by spaces.
func extractWords(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		end := runLength(text, i, isWord)
		if end > i && !hasDigit(text[i:end]) {
			b.WriteString(text[i:end])
			b.WriteByte(' ')
		}
		i = max(end, i+1)
	}
	return b.String()
}

// Headline returns the line of a message that names the error, truncated to limit characters. That
// is the line after a Python traceback, the last cause of a Java exception, or else the first line
// that is not a stack frame.
func Headline(message string, limit int) string {
	text, _ := stripMark(message)
	text = toPrintable(text)
	if lines, headline := findEssentialLines(text); len(lines) > 0 {
		text = lines[headline]
	}
	return truncate(strings.Join(strings.Fields(splitJoined(text)), " "), limit)
}

// toPrintable returns s as valid UTF-8 without control characters, terminal escape sequences and
// bidirectional marks. Digits and Latin letters of other widths become ASCII. It inserts a [joint]
// where a script that is written without spaces meets another one, and preserves line breaks.
func toPrintable(s string) string {
	clean := true
	for i := 0; i < len(s) && clean; i++ {
		clean = s[i] < utf8.RuneSelf && (s[i] >= ' ' || s[i] == '\n') && s[i] != 0x7f
	}
	if clean {
		return s
	}
	s = terminal.Plain(s)
	var b strings.Builder
	b.Grow(len(s))
	before := noWord
	for i, size := 0, 0; i < len(s); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(s[i:])
		r = toNarrow(r)
		switch {
		case r == '\n':
			before = noWord
			b.WriteByte('\n')
		case r == utf8.RuneError && size <= 1:
		case unicode.IsSpace(r):
			before = noWord
			b.WriteByte(' ')
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		default:
			after := detectScript(r, before)
			if before != noWord && after != noWord && before != after && joints[before]+joints[after] > 1 {
				b.WriteByte(joint)
			}
			before = after
			b.WriteRune(r)
		}
	}
	return b.String()
}

// joint separates two scripts while a text is scanned. Patterns do not contain it.
const joint = '\x1f'

// script classifies a character by its writing system.
type script int

const (
	noWord script = iota
	latin
	digit
	spaced   // letters of other scripts that separate words by spaces
	unspaced // letters of scripts without spaces, such as Chinese
	wideMark // punctuation of those scripts
)

// joints determines where a [joint] is inserted: between two scripts whose numbers add up to more
// than 1.
var joints = [...]int{latin: 0, digit: 1, spaced: 1, unspaced: 2, wideMark: 2}

// toNarrow returns the ASCII character of which r is a variant, or r itself. For example, １ and ٣
// become digits.
func toNarrow(r rune) rune {
	switch {
	case r >= 0xff01 && r <= 0xff5e:
		return r - 0xff01 + '!'
	case r >= utf8.RuneSelf && unicode.IsDigit(r):
		zero := r
		for unicode.IsDigit(zero - 1) {
			zero--
		}
		return '0' + (r-zero)%10
	}
	return r
}

// detectScript returns the script of r, which follows a character of script before.
func detectScript(r rune, before script) script {
	switch {
	case r < utf8.RuneSelf:
		return [...]script{0: noWord, classDigit: digit, classLower: latin, classUpper: latin}[class[r]]
	case unicode.IsMark(r) && before != noWord:
		return before
	case isUnspaced(r) && unicode.IsLetter(r):
		return unspaced
	case isUnspaced(r):
		return wideMark
	case !unicode.IsLetter(r):
		return noWord
	case r < 0x370 || r == 'μ':
		return latin
	}
	return spaced
}

// isUnspaced reports whether r belongs to a script that is written without spaces between words, or
// between words and numbers: Chinese, Japanese, Korean, Thai, Lao, Tibetan, Burmese and Khmer.
func isUnspaced(r rune) bool {
	return r >= 0xe00 && (r <= 0x109f || r >= 0x1100 && r <= 0x11ff || r >= 0x1780 && r <= 0x17ff ||
		r >= 0x2e80 && r <= 0xd7ff || r >= 0xf900 && r <= 0xfaff || r >= 0xff61 && r <= 0xffdc || r >= 0x20000 && r <= 0x3ffff)
}

// lineKind classifies a line of a message.
type lineKind int

const (
	textLine   lineKind = iota
	causeLine           // names a further cause
	frameLine           // a stack frame
	headerLine          // introduces a stack
	noiseLine           // hints, statements and the markers below them
)

// findEssentialLines returns the lines of a message that describe the error, and the index of the
// line that names it. If that line does not distinguish errors, it adds the function that failed,
// from the stack.
func findEssentialLines(message string) (lines []string, headline int) {
	python, traced, skipped, frame := false, false, false, ""
	for raw := range strings.SplitSeq(message, "\n") {
		line := strings.TrimSpace(raw)
		kind := classifyLine(raw, line)
		if line == "" || kind == noiseLine {
			continue
		}
		switch {
		case strings.HasPrefix(line, "Traceback (most recent call last)"):
			python, traced, frame = true, true, ""
		case python && (raw[0] == ' ' || kind == frameLine):
			if kind == frameLine { // the last frame is the one that failed
				frame = parsePythonFrame(line)
			}
		case kind == frameLine:
			if frame == "" && !skipped {
				frame, skipped = parseFrameName(line), true
			}
		case kind == headerLine:
		default:
			if python || kind == causeLine {
				headline = len(lines)
			}
			python = false
			lines = append(lines, line)
		}
	}
	if frame != "" && len(lines) > 0 && (traced || isBareLine(lines[len(lines)-1])) {
		lines = append(lines, "at "+frame)
	}
	return lines, headline
}

// isBareLine reports whether an error line contains only a type, or a runtime error whose text is
// the same everywhere.
func isBareLine(line string) bool {
	return !strings.ContainsAny(strings.TrimSuffix(line, ":"), " \t'\"") || strings.HasPrefix(line, "goroutine ") ||
		strings.HasPrefix(line, "panic: runtime error: ") || strings.HasPrefix(line, "[signal SIG")
}

var noise = []string{
	"HINT:", "Hint:", "LINE ", "STATEMENT:", "CONTEXT:", "Where:", "Position:", "[parameters:", "(Background on this error", "note: run with",
	"note: Some details", "Stack trace:", "stack backtrace:", "Stacktrace:", "The above exception was", "During handling of the above", "--- End of",
	"NOTE:", "For more information", "See https://", "see https://", "Is the server running", "Location:", "Suppressed:", "[Previous line repeated",
	"Detail: Process ", "DETAIL: Process ", "DETAIL:  Process ", "(Session info:",
}

// classifyLine returns the kind of a line. line is raw without surrounding blanks.
func classifyLine(raw, line string) lineKind {
	if line == "" || strings.Trim(line, "^~-=*| .") == "" {
		return noiseLine
	}
	for _, prefix := range noise {
		if line[0] == prefix[0] && strings.HasPrefix(line, prefix) {
			return noiseLine
		}
	}
	switch {
	case strings.HasPrefix(line, "goroutine ") && strings.HasSuffix(line, ":"):
		return headerLine
	case strings.HasPrefix(line, "Process ") && strings.Contains(line, " waits for "):
		return noiseLine
	case isFrame(raw, line):
		return frameLine
	case strings.HasPrefix(line, "Caused by"):
		return causeLine
	}
	return textLine
}

// isFrame reports whether a line is a stack frame of Java, Node, .NET, PHP, Ruby, Go, Rust or
// Python.
func isFrame(raw, line string) bool {
	switch line[0] {
	case 'a':
		return strings.HasPrefix(line, "at ") && (raw[0] == ' ' || raw[0] == '\t' || strings.ContainsAny(line, "(/\\"))
	case 'f':
		return strings.HasPrefix(line, "from ") && strings.Contains(line, ":in ")
	case '.':
		return strings.HasPrefix(line, "... ") && (strings.HasSuffix(line, " more") || strings.Contains(line, " common frames"))
	case '#':
		return len(line) > 2 && isDigit(line[1]) && strings.Contains(line, " ")
	case 'F':
		return strings.HasPrefix(line, "File \"") && strings.Contains(line, ", line ")
	case 't':
		return strings.HasPrefix(line, "thrown in ")
	case 'c':
		return strings.HasPrefix(line, "created by ")
	}
	if strings.HasSuffix(line, ")") && raw[0] != ' ' && raw[0] != '\t' && isGoCall(line) {
		return true
	}
	return strings.Contains(line, ".go:") && strings.Contains(line, " +0x")
}

// isGoCall reports whether a line is a Go call such as main.charge(0xc000123456, 0x2).
func isGoCall(line string) bool {
	i := strings.LastIndexByte(line, '(')
	if i <= 0 || !strings.HasSuffix(line, ")") || strings.ContainsAny(line[:i], " \"':") {
		return false
	}
	inner := line[i+1 : len(line)-1]
	return strings.Contains(line[:i], ".") &&
		(inner == "..." || strings.HasPrefix(inner, "0x") || strings.HasPrefix(inner, "{0x"))
}

// parseFrameName returns the function that a stack frame names.
func parseFrameName(line string) string {
	line = strings.TrimPrefix(strings.TrimPrefix(line, "at "), "from ")
	if i := strings.IndexByte(line, '('); i > 0 && !strings.HasPrefix(line, "(") {
		if isGoCall(line) {
			i = strings.LastIndexByte(line, '(')
		}
		line = line[:i]
	}
	return strings.TrimSpace(line)
}

// parsePythonFrame returns the file name and the function in a line such as: File
// "/app/billing.py", line 88, in charge.
func parsePythonFrame(line string) string {
	parts := strings.SplitN(line, "\"", 3)
	if len(parts) < 3 {
		return ""
	}
	name := parts[1][strings.LastIndexByte(parts[1], '/')+1:]
	if _, function, ok := strings.Cut(parts[2], ", in "); ok {
		name += " " + function
	}
	return name
}
