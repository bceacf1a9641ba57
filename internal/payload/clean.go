package payload

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker/internal/terminal"
)

const ellipsis = "…"

// bidi maps bidirectional control characters, which can make a text look like another one, to
// their Unicode names. Marks for single characters (U+061C, U+200E, U+200F) are harmless and not
// included.
var bidi = map[rune]string{
	'\u202a': "LRE", '\u202b': "RLE", '\u202c': "PDF", '\u202d': "LRO", '\u202e': "RLO",
	'\u2066': "LRI", '\u2067': "RLI", '\u2068': "FSI", '\u2069': "PDI",
}

// minBidi is the first character in bidi. Comparing with it avoids a map access per letter.
const minBidi = '\u202a'

var bidiMarks = func() *strings.Replacer {
	var pairs []string
	for r, name := range bidi {
		pairs = append(pairs, string(r), "["+name+"]")
	}
	return strings.NewReplacer(pairs...)
}()

// IsBidiControl reports whether a character changes the direction of the text after it.
func IsBidiControl(r rune) bool { return r >= minBidi && bidi[r] != "" }

// MarkBidi replaces each bidirectional control character with a visible mark, such as [RLO].
func MarkBidi(s string) string { return bidiMarks.Replace(s) }

// CleanText returns s in a form that can be stored and displayed. It removes terminal escape
// sequences and control characters except for newline and tab, replaces invalid UTF-8, applies
// [MarkBidi], and cuts the text to limit bytes, including an ellipsis.
func CleanText(s string, limit int) string {
	var b strings.Builder
	invalid := false
	for _, r := range terminal.Plain(s) {
		if (r < 0x20 && r != '\n' && r != '\t') || (0x7f <= r && r < 0xa0) {
			continue
		}
		if r == utf8.RuneError && invalid {
			continue // one replacement per run
		}
		invalid = r == utf8.RuneError
		if IsBidiControl(r) {
			b.WriteString("[" + bidi[r] + "]")
		} else {
			b.WriteRune(r)
		}
		if b.Len() > limit {
			return truncate(b.String(), limit)
		}
	}
	return b.String()
}

// truncate truncates valid UTF-8 to limit bytes, including an ellipsis, at the boundary of a rune.
func truncate(s string, limit int) string {
	mark := ellipsis
	if limit < len(mark) {
		mark = ""
	}
	end := max(limit-len(mark), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// CutMiddle truncates s to limit bytes by replacing its middle with a mark, because in many
// languages the cause of an error is at the end of its text. It cuts at the end of a line or word
// if there is one nearby.
func CutMiddle(s string, limit int, mark func(omitted int) string) string {
	if len(s) <= limit {
		return s
	}
	room := limit - len(mark(len(s)))
	if room <= 0 {
		return truncate(s, limit)
	}
	head, tail := room/2, len(s)-(room-room/2)
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	for _, border := range []string{"\n", " "} {
		if i := strings.LastIndex(s[head-head/4:head], border); i > 0 {
			head = head - head/4 + i
			break
		}
	}
	for _, border := range []string{"\n", " "} {
		if i := strings.Index(s[tail:tail+(len(s)-tail)/4], border); i >= 0 {
			tail += i + 1
			break
		}
	}
	return s[:head] + mark(tail-head) + s[tail:]
}

// excerptBytes limits the excerpt of a dropped document.
const excerptBytes = 2 << 10

// dropped replaces a document that could not be stored.
type dropped struct {
	Reason string `json:"dropped"`
	Bytes  int    `json:"original_bytes"`
	Text   string `json:"text,omitempty"`
}

// CleanJSON returns doc if [Check] accepts it. Otherwise it returns an acceptable object that
// contains the reason and the beginning of doc as text. It returns nil for an empty document, or
// if the limits leave no room for the object.
func CleanJSON(doc json.RawMessage, l Limits) json.RawMessage {
	if len(doc) == 0 {
		return nil
	}
	err := Check(doc, l)
	if err == nil {
		return doc
	}
	full := l.withDefaults()
	size := min(excerptBytes, full.Bytes/8, full.StringBytes) // an escape expands one byte to six
	reason := CleanText(err.Error(), size)
	for _, d := range []any{
		dropped{Reason: reason, Bytes: len(doc), Text: CleanText(string(doc[:min(len(doc), 4*size)]), size)},
		dropped{Reason: reason, Bytes: len(doc)},
		struct{}{},
	} {
		clean, err := json.Marshal(d)
		if err == nil && Check(clean, l) == nil {
			return clean
		}
	}
	return nil
}
