package fingerprint

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"tasker.example/tasker/internal/terminal"
)

// essence returns the part of a message that says what went wrong, as one line of at most
// [maxEssence] bytes: without frames of stacks and hints, and with the causes that stand
// behind them.
func essence(message string) string {
	if len(message) > maxRead {
		half := maxRead / 2
		message = message[:half] + "\n" + message[len(message)-half:]
	}
	if strings.IndexByte(message, '\n') < 0 {
		return ends(printable(message))
	}
	message = printable(message)
	kept := essentialLines(message)
	if len(kept) == 0 {
		return ends(strings.Join(strings.Fields(message), " "))
	}
	return ends(strings.Join(kept, "\n"))
}

// cutMark stands where a long line lost its middle.
const cutMark = " … "

// ends returns s, or its beginning and its end if it is too long.
func ends(s string) string {
	if len(s) <= maxEssence {
		return s
	}
	const head = maxEssence * 5 / 8
	return strings.ToValidUTF8(s[:head], "") + cutMark + strings.ToValidUTF8(s[len(s)-(maxEssence-head-6):], "")
}

// printable returns s as valid UTF-8 without control characters, colours of terminals and
// marks that turn text around. Lines stay.
func printable(s string) string {
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
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\n':
			b.WriteByte('\n')
		case r == utf8.RuneError && size <= 1:
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// A lineKind is what a line of a message is.
type lineKind int

const (
	textLine   lineKind = iota
	causeLine           // names a further cause
	frameLine           // one call of a stack
	headerLine          // announces a stack
	noiseLine           // hints, statements, marks below them
)

// essentialLines returns the lines of a message that count. Of a stack those are what
// stands around it, and the call that failed if nothing else says what did.
func essentialLines(message string) []string {
	var kept []string
	python, traced, skipped, frame := false, false, false, ""
	for raw := range strings.SplitSeq(message, "\n") {
		line := strings.TrimSpace(raw)
		kind := kindOf(raw, line)
		if line == "" || kind == noiseLine {
			continue
		}
		switch {
		case strings.HasPrefix(line, "Traceback (most recent call last)"):
			python, traced, frame = true, true, ""
		case python && (raw[0] == ' ' || kind == frameLine):
			if kind == frameLine { // the last one is where it failed
				frame = pythonFrame(line)
			}
		case kind == frameLine:
			if frame == "" && !skipped {
				frame, skipped = frameName(line), true
			}
		case kind == headerLine:
		default:
			python = false
			kept = append(kept, line)
		}
	}
	if frame != "" && len(kept) > 0 && (traced || bare(kept[len(kept)-1])) {
		kept = append(kept, "at "+frame)
	}
	return kept
}

// bare reports whether the line of an error has nothing but its type, or a fault of the
// program that says the same wherever it happens.
func bare(line string) bool {
	line = strings.TrimSuffix(line, ":")
	if !strings.ContainsAny(line, " \t'\"") {
		return true
	}
	return strings.HasPrefix(line, "panic: runtime error: ") || strings.HasPrefix(line, "[signal SIG") || strings.HasPrefix(line, "goroutine ")
}

var noise = []string{
	"HINT:", "Hint:", "LINE ", "STATEMENT:", "CONTEXT:", "Where:", "Position:", "[parameters:", "(Background on this error", "note: run with",
	"note: Some details", "Stack trace:", "stack backtrace:", "Stacktrace:", "The above exception was", "During handling of the above", "--- End of",
	"NOTE:", "For more information", "See https://", "see https://", "Is the server running", "Location:", "Suppressed:", "[Previous line repeated",
	"Detail: Process ", "DETAIL: Process ", "DETAIL:  Process ", "(Session info:",
}

// kindOf returns what a line is; line is raw without blanks around it.
func kindOf(raw, line string) lineKind {
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

// isFrame reports whether a line is a call of a stack of Java, Node, .NET, PHP, Ruby, Go,
// Rust or Python.
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
	if strings.HasSuffix(line, ")") && raw[0] != ' ' && raw[0] != '\t' && goCall(line) {
		return true
	}
	return strings.Contains(line, ".go:") && strings.Contains(line, " +0x")
}

// goCall reports whether a line is main.charge(0xc000123456, 0x2).
func goCall(line string) bool {
	i := strings.LastIndexByte(line, '(')
	if i <= 0 || !strings.HasSuffix(line, ")") || strings.ContainsAny(line[:i], " \"':") {
		return false
	}
	inner := line[i+1 : len(line)-1]
	return strings.Contains(line[:i], ".") && (inner == "..." || strings.HasPrefix(inner, "0x") || strings.HasPrefix(inner, "{0x"))
}

// frameName returns the function that a line of a stack names.
func frameName(line string) string {
	line = strings.TrimPrefix(strings.TrimPrefix(line, "at "), "from ")
	if i := strings.IndexByte(line, '('); i > 0 && !strings.HasPrefix(line, "(") {
		if goCall(line) {
			i = strings.LastIndexByte(line, '(')
		}
		line = line[:i]
	}
	return strings.TrimSpace(line)
}

// pythonFrame returns the file and the function of File "/app/billing.py", line 88, in charge.
func pythonFrame(line string) string {
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
