package templatefile

import (
	"regexp"
	"strings"
)

const (
	nameRule     = "1 to 128 letters, digits, dots, dashes and underscores, beginning with a letter or digit"
	callableRule = "1 to 128 letters, digits and . : / # _ -, beginning with a letter or digit"
	maxVersion   = 64
)

var (
	namePattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	callablePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/#-]{0,127}$`)
	versionPattern  = regexp.MustCompile(`^(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})` +
		`(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?` +
		`(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
	shortVersion = regexp.MustCompile(`^v?\d+(\.\d+)?$`)
)

func isName(s string) bool { return namePattern.MatchString(s) }

// name reads the name of a namespace, a template, a step or an environment.
func (v value) name() string {
	s, ok := v.text()
	if ok && !isName(s) {
		v.fault("must be %s, not %s", nameRule, quote(s))
	}
	return s
}

// callable reads the name of a handler, which may look like a path or a class.
func (v value) callable() string {
	s, ok := v.text()
	if ok && !callablePattern.MatchString(s) {
		v.fault("must be %s, not %s", callableRule, quote(s))
	}
	return s
}

// version reads a semantic version.
func (v value) version() string {
	s := v.node.Value
	if isText(v.node) && len(s) <= maxVersion && versionPattern.MatchString(s) {
		return s
	}
	switch {
	case v.node.Tag == "!!int" || v.node.Tag == "!!float":
		v.fault("must be a semantic version such as 1.0.0, and %s is read as a number; write it in quotes with all three parts: %s",
			quote(s), complete(s))
	case isText(v.node) && shortVersion.MatchString(s):
		v.fault("must be a semantic version with all three parts, such as %s", complete(s))
	case isText(v.node) && versionPattern.MatchString(strings.TrimPrefix(s, "v")):
		v.fault("must be a semantic version of at most %d characters without a leading v", maxVersion)
	default:
		v.wrong("a semantic version such as 1.0.0")
	}
	return ""
}

// complete returns the version that a short one probably means, in quotes.
func complete(s string) string {
	if !shortVersion.MatchString(s) {
		return `"1.0.0"`
	}
	s = strings.TrimPrefix(s, "v")
	for strings.Count(s, ".") < 2 {
		s += ".0"
	}
	return `"` + s + `"`
}

// nearest returns the known word that is most like word, or "" when none is.
func nearest(word string, known []string) string {
	if len(word) > 128 {
		return ""
	}
	word = strings.ReplaceAll(strings.ToLower(word), "-", "_")
	best, bestDistance := "", 1+max(1, min(3, len(word)/3))
	for _, k := range known {
		if d := distance(word, strings.ToLower(k), bestDistance); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with their
// neighbour to get from a to b. It may stop at most, when the answer is not less.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
