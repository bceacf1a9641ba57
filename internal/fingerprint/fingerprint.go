// Package fingerprint computes the cause of a failure: it normalizes the error text by the rules in
// rules.toml and hashes the result. The computation is pure and bounded in time and memory.
//
// [Normalize] removes what differs from task to task, such as ids, times and amounts. It keeps HTTP
// statuses, SQLSTATEs, names of constraints and the like. Failures with one type and one pattern
// have one [Cause].
//
// The rules are data with examples that tests run. The code only recognizes shapes: UUIDs,
// durations, hosts. A rule keeps or masks a shape in a context of words. If in doubt, the text is
// kept. An operator sees two cases for one cause and merges them, but one case for two causes is
// repaired as one, which affects the wrong tasks.
//
// The same failure has the same cause in every process with the same [Version] of the rules.
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

// Version is the version of the rules. It changes when a text gets a different cause. It is stored
// next to a fingerprint and is not part of the hash, so a new version moves only the failures whose
// texts it treats differently.
const Version = 2

// Limits.
const (
	MaxPattern = 300     // characters of a pattern
	MaxGiven   = 200     // characters of a fingerprint that a handler set
	MaxStored  = 8 << 10 // bytes of a message that is stored whole, see [NewTruncationMark]
	maxEssence = 1 << 16 // bytes of a message that are normalized; of the middle, only words count
	maxMasked  = 64      // maximum number of listed masks
	maxMask    = 80      // bytes of a masked text that are listed
)

// defaultCause is replaced by the computed cause in a fingerprint that a handler set.
const defaultCause = "{default}"

// A Failure is the error that a handler reported.
type Failure struct {
	Type     string // the type of the error, such as *pgconn.PgError
	Message  string
	Language string // language of the worker; a hint that no rule uses
	Given    string // fingerprint that the handler set; if empty, type and message determine the cause
}

// A Cause identifies failures that share a type and a pattern.
type Cause struct {
	// Key is 32 hexadecimal digits computed from the type and the pattern. It treats <id>, <n>, <val>,
	// <email> and <name> as equal.
	Key     string
	Pattern string   // the message with placeholders, at most [MaxPattern] characters
	Rules   []string // ids of the applied rules, in the order of their first use
	Masked  []Mask   // the first masked texts

	whole string // the pattern before it was cut
}

// A Mask is a piece of a message that a placeholder replaced.
type Mask struct {
	Label string // the placeholder in the pattern, such as <id>
	Text  string // the replaced text, cut
	Rule  string // id of the rule
}

// Normalize returns the cause of a failure. A fingerprint that the handler set takes precedence,
// see [ApplyOverride].
func Normalize(f Failure) Cause {
	c := current().normalize(f)
	if f.Given != "" {
		c = ApplyOverride(f.Given, c)
	}
	return c
}

func (set *ruleSet) normalize(f Failure) Cause {
	message, digest := stripMark(f.Message)
	c := set.computePattern(message)
	if digest == "" {
		digest = computeDigest(message, c.whole)
	}
	c.Key = hashKey("failure", normalizeType(f.Type), digest)
	return c
}

// computeDigest returns the text that represents a message in the key of its cause. That is the
// whole pattern, or a hash of it if the message is too long to be stored whole.
func computeDigest(message, pattern string) string {
	if len(message) <= MaxStored {
		return stripLabels(pattern)
	}
	return hashKey(stripLabels(pattern))[:16]
}

// NewTruncationMark returns a function that formats the replacement for the middle of a message
// that is truncated before it is stored. The replacement contains the digest of the whole message,
// so that the truncated message has the same cause.
func NewTruncationMark(message string) func(omitted int) string {
	digest := sync.OnceValue(func() string {
		text, digest := stripMark(message)
		return cmp.Or(digest, hashKey(stripLabels(current().computePattern(text).whole))[:16])
	})
	return func(omitted int) string {
		return fmt.Sprintf("\n[… %d bytes are left out, digest %s …]\n", omitted, digest())
	}
}

var mark = regexp.MustCompile(`\n\[… [0-9]+ bytes are left out(?:, digest ([0-9a-f]{16}))? …\]\n`)

// stripMark returns a message without marks, and the digest in the last mark that contains one.
func stripMark(message string) (text, digest string) {
	if !strings.Contains(message, "\n[… ") {
		return message, ""
	}
	for _, m := range mark.FindAllStringSubmatch(message, -1) {
		digest = cmp.Or(m[1], digest)
	}
	return mark.ReplaceAllLiteralString(message, "\n"), digest
}

// ApplyOverride returns the cause for a fingerprint that a handler set. The text is used unchanged,
// cut to [MaxGiven] characters; {default} in it is replaced by the computed cause.
func ApplyOverride(text string, computed Cause) Cause {
	text = truncate(strings.Join(strings.Fields(toPrintable(text)), " "), MaxGiven)
	c := Cause{Pattern: text, Rules: []string{"handler"}}
	if strings.Contains(text, defaultCause) {
		c.Rules = append(c.Rules, computed.Rules...)
		c.Masked = computed.Masked
		c.Pattern = truncate(strings.ReplaceAll(text, defaultCause, computed.Pattern), MaxPattern)
		text = strings.ReplaceAll(text, defaultCause, computed.Key)
	}
	c.Key = hashKey("handler", text)
	return c
}

// stripLabels replaces all placeholders that name something, and short id prefixes as in P-<n>,
// with one placeholder. A number, a UUID and a word as the id of an order must not lead to three
// causes.
func stripLabels(pattern string) string {
	var b strings.Builder
	b.Grow(len(pattern))
	for i := 0; i < len(pattern); {
		n := findLabelEnd(pattern, i)
		if n == 0 {
			b.WriteByte(pattern[i])
			i++
			continue
		}
		if naming[pattern[i:i+n]] {
			if text := b.String(); shortPrefixLength(text) < len(text) {
				b.Reset()
				b.WriteString(text[:shortPrefixLength(text)])
			}
			b.WriteString("<>")
		} else {
			b.WriteString(pattern[i : i+n])
		}
		i += n
	}
	return strings.ReplaceAll(strings.ReplaceAll(b.String(), "<>-<>", "<>"), "<>, <>", "<>")
}

// naming lists the placeholders that name one thing.
var naming = map[string]bool{"<id>": true, "<n>": true, "<val>": true, "<email>": true, "<name>": true}

// shortPrefixLength returns the start of the short id prefix that s ends with, or the length of s.
func shortPrefixLength(s string) int {
	end := len(s)
	if end == 0 || s[end-1] != '-' && s[end-1] != '_' {
		return end
	}
	i := end - 1
	for i > 0 && isLetter(s[i-1]) {
		i--
	}
	if letters := end - 1 - i; letters == 0 || letters > 3 ||
		i > 0 && (isWord(s[i-1]) || strings.IndexByte("-.>/", s[i-1]) >= 0) {
		return end
	}
	return i
}

func hashKey(parts ...string) string {
	sum := md5.Sum([]byte(strings.Join(parts, "\x1f"))) // not used for security
	return hex.EncodeToString(sum[:])
}

// truncate truncates s to limit characters. It keeps the beginning and the end, which contains the
// cause of a wrapped error, with an ellipsis between them.
func truncate(s string, limit int) string {
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s
	}
	r := []rune(s)
	head := limit * 3 / 5
	return string(r[:head]) + "…" + string(r[len(r)-(limit-head-1):])
}
