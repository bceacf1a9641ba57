package redact

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// separators are what may stand between the words of a key, inside of brackets of
// a regular expression: - _ . / : and all white space. PostgreSQL and Go read it alike.
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

// A name stands for keys.
type name struct {
	letters string // of ASCII in lower case, without separators; * is any letters
	whole   bool   // the key is this and nothing else; * may widen it
	shown   bool   // such a key is shown although another name hides it
}

func parseName(text string) (name, error) {
	rest, shown := strings.CutPrefix(text, "!")
	rest, whole := strings.CutPrefix(rest, "=")
	n := name{
		letters: strings.Map(func(c rune) rune {
			if separator(c) {
				return -1
			}
			return lower(c)
		}, rest),
		shown: shown,
	}
	n.whole = whole || shown || strings.Contains(n.letters, "*")
	if strings.Trim(n.letters, "*") == "" || strings.ContainsFunc(n.letters, func(c rune) bool {
		return c != '*' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		return name{}, fmt.Errorf("invalid name of a key %q: must be letters and digits, with * for any letters, such as *password*", text)
	}
	return n, nil
}

func separator(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune("-_./:", c) }

// lower is for ASCII only: what a database makes of other letters depends on its
// locale.
func lower(c rune) rune {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func (n name) hidden() bool { return !n.shown }

func (n name) exempt() bool { return n.shown }

// alternatives is a regular expression of the words of keys, as [words] spells
// them; empty for no names.
func alternatives(names []name, which func(name) bool) string {
	var list []string
	for _, n := range names {
		if which(n) {
			list = append(list, n.inWords())
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "(?:" + strings.Join(list, "|") + ")"
}

// inWords is a regular expression for n in the words of a key: it may be written as
// one word or as several.
func (n name) inWords() string {
	core, open, closed := n.spelled(" ?", ".*", letter)
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

// spelled joins the letters of n with what may be between them, and says whether n
// begins and ends with a *.
func (n name) spelled(between, anything string, letter func(rune) string) (core string, open, closed bool) {
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

// letter is c in the words of a key, where ASCII is in lower case.
func letter(c rune) string {
	if c < unicode.MaxASCII {
		return string(c)
	}
	return anyCase(c)
}

// anyCase is c in any case.
func anyCase(c rune) string {
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

// words spells a key as it is compared: in lower case, with a blank before, after
// and between its words. A word ends at a separator, where letters and digits meet
// and where camelCase goes on. Function key_words does the same.
func words(key string) string {
	key = separatorRun.ReplaceAllString(key, " ")
	for _, border := range camel {
		key = border.ReplaceAllString(key, "$1 $2")
	}
	return " " + strings.Map(lower, key) + " "
}

// hides reports whether the values of a key are hidden.
func (r Rules) hides(key string) bool {
	if r.keys == nil {
		return false
	}
	w := words(key)
	return r.keys.MatchString(w) && (r.shown == nil || !r.shown.MatchString(w))
}
