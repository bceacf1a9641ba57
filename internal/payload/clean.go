package payload

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker/internal/terminal"
)

const ellipsis = "…"

// bidi turn the direction of the text after them, which can make one text look like
// another, by their names in Unicode. Marks for single characters of right-to-left
// scripts (U+061C, U+200E, U+200F) do not reach that far and are not among them.
var bidi = map[rune]string{
	'\u202a': "LRE", '\u202b': "RLE", '\u202c': "PDF", '\u202d': "LRO", '\u202e': "RLO",
	'\u2066': "LRI", '\u2067': "RLI", '\u2068': "FSI", '\u2069': "PDI",
}

// minBidi is the first of them: looking in a map for every letter would be slow.
const minBidi = '\u202a'

var bidiMarks = func() *strings.Replacer {
	var pairs []string
	for r, name := range bidi {
		pairs = append(pairs, string(r), "["+name+"]")
	}
	return strings.NewReplacer(pairs...)
}()

// TurnsText tells whether a character turns the direction of the text after it.
func TurnsText(r rune) bool { return r >= minBidi && bidi[r] != "" }

// MarkBidi returns s with a visible mark, such as [RLO], in the place of each
// character that turns the direction of the text after it.
func MarkBidi(s string) string { return bidiMarks.Replace(s) }

// CleanText returns s as it can be stored and shown: without escape sequences of terminals, without control
// characters other than newline and tab, without bytes that are not UTF-8, with the marks of [MarkBidi], and
// of at most most bytes, the last of them an ellipsis where something was cut.
func CleanText(s string, most int) string {
	var b strings.Builder
	invalid := false
	for _, r := range terminal.Plain(s) {
		if (r < 0x20 && r != '\n' && r != '\t') || (0x7f <= r && r < 0xa0) {
			continue
		}
		if r == utf8.RuneError && invalid {
			continue // one mark for a run of them
		}
		invalid = r == utf8.RuneError
		if TurnsText(r) {
			b.WriteString("[" + bidi[r] + "]")
		} else {
			b.WriteRune(r)
		}
		if b.Len() > most {
			return cut(b.String(), most)
		}
	}
	return b.String()
}

// cut shortens s, which is valid, to most bytes at the border of a rune.
func cut(s string, most int) string {
	mark := ellipsis
	if most < len(mark) {
		mark = ""
	}
	end := max(most-len(mark), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// CutMiddle returns s, or its beginning and its end with a mark between them, of at most most bytes: in many languages
// the cause of an error is the end of its text. The cuts are at the ends of lines or words if there are any nearby.
func CutMiddle(s string, most int, mark func(leftOut int) string) string {
	if len(s) <= most {
		return s
	}
	room := most - len(mark(len(s)))
	if room <= 0 {
		return cut(s, most)
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

// textKept is how much of a document that cannot be kept CleanJSON shows.
const textKept = 2 << 10

// A dropped stands in for a document that could not be kept.
type dropped struct {
	Reason string `json:"dropped"`
	Bytes  int    `json:"original_bytes"`
	Text   string `json:"text,omitempty"`
}

// CleanJSON returns doc when [Check] accepts it, and otherwise a small object
// that says why it was dropped, with the beginning of it as text. [Check]
// accepts what it returns. No document stays none, and so does one that cannot
// be kept under limits so narrow that they leave no room to say so.
func CleanJSON(doc json.RawMessage, l Limits) json.RawMessage {
	if len(doc) == 0 {
		return nil
	}
	err := Check(doc, l)
	if err == nil {
		return doc
	}
	full := l.orDefault()
	kept := min(textKept, full.Bytes/8, full.StringBytes) // an escape makes 6 bytes of one
	reason := CleanText(err.Error(), kept)
	for _, d := range []any{
		dropped{Reason: reason, Bytes: len(doc), Text: CleanText(string(doc[:min(len(doc), 4*kept)]), kept)},
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
