package redact

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// separators contains the characters that separate the words of a key, for use in a bracket
// expression: - _ . / : and white space. PostgreSQL and Go interpret it alike.
var separators = func() string {
	var set strings.Builder
	set.WriteString(`\-_./:`)
	for _, r := range unicode.White_Space.R16 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			set.WriteRune(c)
		}
	}
	for _, r := range unicode.White_Space.R32 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			set.WriteRune(c)
		}
	}
	return set.String()
}()

// name is a configured name or pattern that matches keys.
type name struct {
	letters string // lower-case ASCII without separators; * matches any letters
	whole   bool   // the whole key must match
	shown   bool   // an exception that is not hidden
}

func parseName(text string) (name, error) {
	rest, shown := strings.CutPrefix(text, "!")
	rest, whole := strings.CutPrefix(rest, "=")
	n := name{
		letters: strings.Map(func(c rune) rune {
			if isSeparator(c) {
				return -1
			}
			return toLower(c)
		}, rest),
		shown: shown,
	}
	n.whole = whole || shown || strings.Contains(n.letters, "*")
	if strings.Trim(n.letters, "*") == "" || strings.ContainsFunc(n.letters, func(c rune) bool {
		return c != '*' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		return name{}, fmt.Errorf("invalid key name %q: must be letters and digits, "+
			"with * as a wildcard, such as *password*", text)
	}
	return n, nil
}

func isSeparator(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune("-_./:", c) }

// toLower converts only ASCII letters to lower case, because the result for others depends on the
// locale in PostgreSQL.
func toLower(c rune) rune {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func (n name) isHidden() bool { return !n.shown }

func (n name) isExempt() bool { return n.shown }

// joinAlternatives returns a regular expression that matches the selected names in the result of
// [splitWords]. It returns "" if there are none.
func joinAlternatives(names []name, which func(name) bool) string {
	var list []string
	for _, n := range names {
		if which(n) {
			list = append(list, n.wordPattern())
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "(?:" + strings.Join(list, "|") + ")"
}

// wordPattern returns a regular expression that matches n in the words of a key. The name may be
// split into several words.
func (n name) wordPattern() string {
	core, open, closed := n.spellingPattern(" ?", ".*", letterPattern)
	if !n.whole {
		return " " + core + " "
	}
	if !open {
		core = "^ +" + core
	}
	if !closed {
		core += " +$"
	}
	return core
}

// spellingPattern joins the letters of n with a pattern for separators. It also reports whether n
// begins with * and whether it ends with *.
func (n name) spellingPattern(between, anything string, letter func(rune) string) (core string, open, closed bool) {
	var b strings.Builder
	for i, part := range strings.FieldsFunc(n.letters, func(c rune) bool { return c == '*' }) {
		if i > 0 {
			b.WriteString(anything)
		}
		for j, c := range []rune(part) {
			if j > 0 {
				b.WriteString(between)
			}
			b.WriteString(letter(c))
		}
	}
	return b.String(), strings.HasPrefix(n.letters, "*"), strings.HasSuffix(n.letters, "*")
}

// letterPattern returns a pattern that matches c in the words of a key, whose ASCII letters are
// lower-case.
func letterPattern(c rune) string {
	if c < unicode.MaxASCII {
		return string(c)
	}
	return anyCasePattern(c)
}

// anyCasePattern returns a pattern that matches c in any case.
func anyCasePattern(c rune) string {
	all := []rune{c}
	for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
		if c >= unicode.MaxASCII || f < unicode.MaxASCII {
			all = append(all, f)
		}
	}
	if len(all) == 1 {
		return string(c)
	}
	return "[" + string(all) + "]"
}

var (
	separatorRun = regexp.MustCompile("[" + separators + "]+")
	camel        = []*regexp.Regexp{
		regexp.MustCompile(`([a-z0-9])([A-Z])`),
		regexp.MustCompile(`([A-Z])([A-Z][a-z])`),
		regexp.MustCompile(`([A-Za-z])([0-9])`),
		regexp.MustCompile(`([0-9])([A-Za-z])`),
	}
)

// splitWords returns the words of a key in lower case, surrounded and separated by blanks. Words
// are split at separators, between letters and digits, and in camelCase. It must match the SQL
// function key_words.
func splitWords(key string) string {
	key = separatorRun.ReplaceAllString(key, " ")
	for _, border := range camel {
		key = border.ReplaceAllString(key, "$1 $2")
	}
	return " " + strings.Map(toLower, key) + " "
}

// isSecretKey reports whether the values of a key are hidden.
func (r Rules) isSecretKey(key string) bool {
	if r.keys == nil {
		return false
	}
	w := splitWords(key)
	return r.keys.MatchString(w) && (r.shown == nil || !r.shown.MatchString(w))
}
