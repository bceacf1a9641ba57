// Package fingerprint computes the cause of a failure: it normalizes the error text by the rules in
// rules.toml and hashes the result. The computation is pure and bounded in time and memory.
//
// [Normalise] takes what differs from task to task out of an error's text, such as ids,
// times and amounts, and keeps what says what went wrong, such as HTTP statuses, SQLSTATEs
// and names of constraints. Failures with one type and one pattern have one [Cause].
//
// What counts is decided by rules. They are data, in rules.toml, with examples that tests
// run; the code knows shapes only: what a UUID, a duration or a host looks like. A rule
// keeps or masks a shape in a context of words. Where rules are in doubt the text is kept:
// two cases for one cause are seen and merged by people, one case for two causes is
// repaired as one and hits the wrong tasks.
//
// The package is pure: the same failure has the same cause in every process that has the
// same [Version] of the rules. Time and memory are bounded for every text.
package fingerprint

import (
	"cmp"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// Version is the version of the rules. It changes when a text gets another cause than
// before, and stands beside a stored fingerprint; it is no part of its hash, so that a new
// version moves only the failures whose texts it treats otherwise.
const Version = 2

// Bounds of what is read and kept.
const (
	MaxPattern = 300     // characters of a pattern
	MaxGiven   = 200     // characters of a handler's own fingerprint
	MaxStored  = 8 << 10 // bytes of a message that is stored whole, see [Mark]
	maxEssence = 1 << 16 // bytes of a message that are normalised; of those between, only words count
	maxMasked  = 64      // masks that are listed
	maxMask    = 80      // bytes of a masked text that are listed
)

// defaultCause stands in a handler's own fingerprint for the computed cause.
const defaultCause = "{default}"

// A Failure is what a handler reported.
type Failure struct {
	Type     string // the type of the error, such as *pgconn.PgError
	Message  string
	Language string // of the worker; a hint that no rule needs
	Given    string // the fingerprint that the handler gave itself; empty: type and message tell
}

// A Cause is what failures have in common.
type Cause struct {
	Key     string   // 32 hexadecimal digits over the type and the pattern, whose <id>, <n>, <val>, <email> and <name> are not told apart
	Pattern string   // the message with placeholders, at most [MaxPattern] characters
	Rules   []string // ids of the rules that decided, in the order of their first use
	Masked  []Mask   // what the placeholders stand for, the first of them

	whole string // the pattern before it was cut
}

// A Mask is a piece of a message that does not count.
type Mask struct {
	Label string // the placeholder in the pattern, such as <id>
	Text  string // what was there, cut
	Rule  string // id of the rule
}

// Normalise returns the cause of a failure. A handler that names it is believed, see [Given].
func Normalise(f Failure) Cause {
	c := current().normalise(f)
	if f.Given != "" {
		c = Given(f.Given, c)
	}
	return c
}

func (set *ruleSet) normalise(f Failure) Cause {
	message, digest := unmarked(f.Message)
	c := set.pattern(message)
	if digest == "" {
		digest = digestOf(message, c.whole)
	}
	c.Key = key("failure", normaliseType(f.Type), digest)
	return c
}

// digestOf returns what stands for a message in the key of its cause: its whole pattern, or the hash of that where
// the message is cut before it is stored.
func digestOf(message, pattern string) string {
	if len(message) <= MaxStored {
		return unlabelled(pattern)
	}
	return key(unlabelled(pattern))[:16]
}

// Mark returns a function that makes the text in the place of the middle of a message, when it is cut to be stored. It
// has the digest of the whole message, so that the cut message has the same cause.
func Mark(message string) func(leftOut int) string {
	digest := sync.OnceValue(func() string {
		text, digest := unmarked(message)
		return cmp.Or(digest, key(unlabelled(current().pattern(text).whole))[:16])
	})
	return func(leftOut int) string {
		return fmt.Sprintf("\n[… %d bytes are left out, digest %s …]\n", leftOut, digest())
	}
}

var mark = regexp.MustCompile(`\n\[… [0-9]+ bytes are left out(?:, digest ([0-9a-f]{16}))? …\]\n`)

// unmarked returns a message without marks, and the digest of the whole that the last of them has.
func unmarked(message string) (text, digest string) {
	if !strings.Contains(message, "\n[… ") {
		return message, ""
	}
	for _, m := range mark.FindAllStringSubmatch(message, -1) {
		digest = cmp.Or(m[1], digest)
	}
	return mark.ReplaceAllLiteralString(message, "\n"), digest
}

// Given returns the cause that a handler names itself, in place of computed. The text is
// taken as it is, cut to [MaxGiven] characters; {default} in it stands for the computed cause.
func Given(text string, computed Cause) Cause {
	text = cut(strings.Join(strings.Fields(printable(text)), " "), MaxGiven)
	c := Cause{Pattern: text, Rules: []string{"handler"}}
	if strings.Contains(text, defaultCause) {
		c.Rules = append(c.Rules, computed.Rules...)
		c.Masked = computed.Masked
		c.Pattern = cut(strings.ReplaceAll(text, defaultCause, computed.Pattern), MaxPattern)
		text = strings.ReplaceAll(text, defaultCause, computed.Key)
	}
	c.Key = key("handler", text)
	return c
}

// unlabelled returns a pattern with one placeholder for all that name something: whether an
// order has a number, a UUID or a word for its id does not make two causes of one. Short
// prefixes of ids, as in P-<n>, go with them.
func unlabelled(pattern string) string {
	var b strings.Builder
	b.Grow(len(pattern))
	for i := 0; i < len(pattern); {
		n := labelAt(pattern, i)
		if n == 0 {
			b.WriteByte(pattern[i])
			i++
			continue
		}
		if naming[pattern[i:i+n]] {
			text := b.String()
			if k := shortPrefix(text); k < len(text) {
				b.Reset()
				b.WriteString(text[:k])
			}
			b.WriteString("<>")
		} else {
			b.WriteString(pattern[i : i+n])
		}
		i += n
	}
	return strings.ReplaceAll(strings.ReplaceAll(b.String(), "<>-<>", "<>"), "<>, <>", "<>")
}

// naming are the placeholders of what names one thing.
var naming = map[string]bool{"<id>": true, "<n>": true, "<val>": true, "<email>": true, "<name>": true}

// shortPrefix returns where the short prefix of an id begins that s ends with, or its length.
func shortPrefix(s string) int {
	end := len(s)
	if end == 0 || s[end-1] != '-' && s[end-1] != '_' {
		return end
	}
	i := end - 1
	for i > 0 && isLetter(s[i-1]) {
		i--
	}
	if letters := end - 1 - i; letters == 0 || letters > 3 || i > 0 && (isWord(s[i-1]) || strings.IndexByte("-.>/", s[i-1]) >= 0) {
		return end
	}
	return i
}

// key returns the hash of parts.
func key(parts ...string) string {
	sum := md5.Sum([]byte(strings.Join(parts, "\x1f"))) // names a cause; nothing is protected by it
	return hex.EncodeToString(sum[:])
}

// cut returns at most so many characters of s: its beginning and, behind an ellipsis, its
// end, where a wrapped error has its cause.
func cut(s string, most int) string {
	if len(s) <= most || utf8.RuneCountInString(s) <= most {
		return s
	}
	r := []rune(s)
	head := most * 3 / 5
	return string(r[:head]) + "…" + string(r[len(r)-(most-head-1):])
}
