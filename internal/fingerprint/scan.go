package fingerprint

import (
	"strings"
	"unicode/utf8"
)

const (
	window   = 4  // words before a shape that a rule may look at
	maxWord  = 40 // bytes of a word that is looked up
	maxQuote = 600
	maxDepth = 3 // quotes within quotes

	// lookAhead is how often each byte of a text may be looked at, on average, to find where
	// quotes and brackets close: texts of brackets alone would take quadratic time.
	lookAhead = 6
)

// A scanner makes a pattern of a text in one pass.
type scanner struct {
	set *ruleSet
	s   string // what is scanned
	out []byte

	before [window]wordSet // the words before, the nearest first
	sep    byte            // the character before what is scanned, if it is no blank
	gap    byte            // the last character of punctuation since the word before
	gapped bool            // a blank stands before what is scanned
	key    int             // 1: what follows is the value of a key of an object, which does not say what failed
	braces int
	depth  int
	budget int // bytes that may still be looked at beyond what is read

	label    string // the placeholder that was written last
	labelEnd int    // where it ends in out
	counted  bool   // the word before was counted
	clause   bool   // what is scanned belongs to a clause that begins with a small letter
	begun    bool   // a word of the clause was read
	pairs    int    // how many keys with values stood one behind the other
	vendored bool   // the text has a word such as SQLSTATE
	home     bool   // the part of a path before was the folder of homes
	first    bool   // the clause is the first
	words    int    // of the clause, so far

	fired  []bool
	rules  []string
	masked []Mask
}

// afford counts bytes that were looked at.
func (s *scanner) afford(bytes int) { s.budget -= bytes }

// pattern normalises a message.
func (set *ruleSet) pattern(message string) Cause {
	text, middle := essence(message)
	s := &scanner{
		set: set, s: text, out: make([]byte, 0, len(text)+64), masked: make([]Mask, 0, 8), rules: make([]string, 0, 8),
		fired: make([]bool, len(set.rules)), budget: lookAhead * (len(text) + 64),
	}
	s.scan(0, len(text))
	c := Cause{Rules: s.rules, Masked: s.masked, whole: strings.Trim(unjoined(string(s.out)), " ")}
	c.Pattern = cut(c.whole, MaxPattern)
	if middle != "" {
		c.whole += key(wordsOf(middle))
	}
	return c
}

// unjoined returns a text without joints.
func unjoined(s string) string { return strings.ReplaceAll(s, string(joint), "") }

// scan reads the text from i to end.
func (s *scanner) scan(i, end int) {
	whole := s.s
	s.s = whole[:end]
	for i < end {
		c := s.s[i]
		if c == ' ' || c == '\n' {
			s.blank(c)
			i++
			continue
		}
		if c == joint {
			s.gapped, s.sep = true, 0
			s.out = append(s.out, joint)
			i++
			continue
		}
		if !s.begun {
			s.begun, s.clause, s.first, s.words = true, c >= 'a' && c <= 'z', len(s.out) == 0, 0
		}
		next := s.subject(i)
		switch {
		case next > i:
		case class[c]&classDigit != 0:
			next = s.digits(i)
		case c >= utf8.RuneSelf && quoteMarks[c]:
			next = s.typographic(i)
		case class[c] != 0:
			next = s.letters(i)
		default:
			next = s.mark(i, c)
		}
		if s.gapped || s.words == 0 {
			s.words++
		}
		s.gapped = false
		i = next
	}
	s.s = whole
}

// blank writes a blank, but never two.
func (s *scanner) blank(c byte) {
	s.gapped, s.sep = true, 0
	if n := len(s.out); n > 0 && s.out[n-1] != ' ' {
		if last := s.out[n-1]; last == ';' || last == '.' || c == '\n' {
			s.before = [window]wordSet{}
			s.begun = false
		} else if last == ':' {
			s.begun = false
		}
		s.out = append(s.out, ' ')
	}
}

// punct writes a character that is no part of a word.
func (s *scanner) punct(i, size int) int {
	s.out = append(s.out, s.s[i:i+size]...)
	s.sep = s.s[i]
	s.gap = s.sep
	s.counted = false
	if s.gap != '=' && s.gap != ',' {
		s.pairs = 0
	}
	return i + size
}

// mark reads what begins with a mark of punctuation.
func (s *scanner) mark(i int, c byte) int {
	next := byteAt(s.s, i+1)
	switch c {
	case '"', '\'', '`':
		return s.quoted(i, 1, string(c), 1)
	case '\\':
		if next == '"' || next == '\'' {
			return s.quoted(i, 2, s.s[i:i+2], 2)
		}
		if end := run(s.s, i+2, isHex); (next == 'x' || next == 'u' || next == 'U') && end > i+3 && s.apply(shapeEscaped, s.s[i:end], end) {
			return end
		}
	case '<':
		return s.angle(i)
	case '[':
		if end := s.bracket(i); end > 0 {
			return end
		}
	case '{':
		return s.brace(i)
	case '}':
		s.braces = max(s.braces-1, 0)
		s.key = 0
	case '(':
		s.key = 0
		if end := s.tuple(i); end > 0 {
			return end
		}
	case '$':
		if isDigit(next) {
			return s.money(i, i+1)
		}
	case '-', '+':
		if isDigit(next) && (s.gapped || s.sep != 0 || i == 0) && s.sep != '-' {
			return s.digits(i)
		}
	case '/', '~', '.':
		if end := s.pathStart(i); end > 0 {
			return end
		}
	case ':':
		return s.colon(i, next)
	case ',':
		s.key = 0
		if next == ')' && s.labelEnd == len(s.out) && s.label != "" { // (1,) and (1, 2) are lists
			return i + 1
		}
	case ';':
		s.key = 0
	case '=':
		s.pairs++
		if s.gapped {
			s.pairs = 0 // of a statement
		}
	}
	return s.punct(i, 1)
}

// colon reads :8080 and ::1.
func (s *scanner) colon(i int, next byte) int {
	if next == ':' {
		if end := ip6End(s.s, i); end > 0 {
			return s.address(i, end, end)
		}
		return s.punct(i, 2)
	}
	if isDigit(next) && (s.gapped || i == 0) {
		end := run(s.s, i+1, isDigit)
		s.punct(i, 1)
		return s.port(i+1, end)
	}
	return s.punct(i, 1)
}

// angle reads a placeholder, an identifier of a process of Erlang, or a bracket.
func (s *scanner) angle(i int) int {
	end := run(s.s, i+1, func(c byte) bool { return isDigit(c) || c == '.' || c >= 'a' && c <= 'z' })
	if byteAt(s.s, end) == '>' {
		text := s.s[i : end+1]
		if labels[text] {
			s.write(text)
			if text == "<ip>" && byteAt(s.s, end+1) == ':' && isDigit(byteAt(s.s, end+2)) {
				s.punct(end+1, 1)
				return s.port(end+2, run(s.s, end+2, isDigit))
			}
			return end + 1
		}
		if isDigit(text[1]) && strings.Count(text, ".") == 2 && s.apply(shapeProcess, text, end+1) {
			return end + 1
		}
	}
	return s.punct(i, 1)
}

// bracket reads [fd00::7]:5432, or an array of objects.
func (s *scanner) bracket(i int) int {
	if end := ip6End(s.s, i+1); end > 0 && byteAt(s.s, end) == ']' {
		return s.address(i, end+1, end+1)
	}
	if next := byteAt(s.s, i+1); next == '{' || s.key != 0 || i >= 3 && s.s[i-3:i] == "map" && isObject(s.s[i:]) {
		return s.data(i)
	}
	return 0
}

// address reads the port behind an address that ends at hostEnd, and the other side of a
// connection.
func (s *scanner) address(i, hostEnd, end int) int {
	high := false
	if byteAt(s.s, end) == ':' && isDigit(byteAt(s.s, end+1)) {
		end = run(s.s, end+1, isDigit)
		high = s.ephemeral(s.s[hostEnd+1 : end])
	}
	if end == hostEnd {
		s.applyOr(shapeIP, s.s[i:end], end)
		return end
	}
	rest := strings.TrimLeft(s.s[end:], " ")
	if (strings.HasPrefix(rest, "->") || strings.HasPrefix(rest, "→")) && s.apply(shapeLocal, s.s[i:end], end) {
		return end
	}
	if high && s.apply(shapeEndpointHigh, s.s[i:end], end) {
		return end
	}
	if s.apply(shapeEndpoint, s.s[i:end], end) {
		return end
	}
	before := s.before
	s.applyOr(shapeIP, s.s[i:hostEnd], end)
	s.before = before
	s.punct(hostEnd, 1)
	s.port(hostEnd+1, end)
	item := string(s.out[max(len(s.out)-(end-hostEnd)-len("<ip>"), 0):])
	if list := string(s.out); strings.HasSuffix(list, item+", "+item) { // several addresses of one service
		s.out = s.out[:len(s.out)-len(item)-2]
	}
	return end
}

// port reads the number of a port behind a host.
func (s *scanner) port(i, end int) int {
	sh := shapePort
	if s.ephemeral(s.s[i:end]) {
		sh = shapePortHigh
	}
	s.applyOr(sh, s.s[i:end], end)
	return end
}

// ephemeral reports whether a port is one that the system gives out for a connection, and not one that a server
// listens on.
func (s *scanner) ephemeral(port string) bool {
	return number(port) >= 32768 && s.near(window)&s.set.listening == 0
}

// number returns the value of a short run of digits; a long one is large.
func number(s string) int {
	if len(s) > 9 {
		return 1 << 30
	}
	n := 0
	for i := 0; i < len(s); i++ {
		n = n*10 + int(s[i]-'0')
	}
	return n
}

// bits returns the sets that a word is in, in whichever case it is written.
func (set *ruleSet) bits(word string) wordSet {
	if len(word) > maxWord && word[len(word)-1] < utf8.RuneSelf {
		return 0
	}
	var lower [maxWord]byte
	for i := 0; i < len(word); i++ {
		c := word[i]
		if c >= utf8.RuneSelf {
			return set.foreignBits(word)
		}
		if isUpper(c) {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	n := len(word)
	if bits, ok := set.words[string(lower[:n])]; ok || n < 4 || lower[n-1] != 's' {
		return bits
	}
	if lower[n-2] == 'e' && lower[n-3] == 'i' {
		lower[n-3] = 'y'
		return set.words[string(lower[:n-2])]
	}
	return set.words[string(lower[:n-1])]
}

// foreignBits is bits for a word with other letters than those of ASCII. Where words have no spaces between them,
// those count that it ends with.
func (set *ruleSet) foreignBits(word string) wordSet {
	word = strings.ToValidUTF8(word[max(0, len(word)-maxWord):], "")
	lower := strings.ToLower(word)
	bits := set.words[lower] | set.foreign
	for i, r := range lower {
		if i == 0 || !isUnspaced(r) {
			continue
		}
		b := set.words[lower[i:]]
		if b&set.filler != 0 {
			return set.foreignBits(lower[:i]) | b&^set.filler
		}
		bits |= b
	}
	return bits
}

// prefixBits returns the sets of the longest word, of a script without spaces, that s begins with, and its length.
func (set *ruleSet) prefixBits(s string) (bits wordSet, size int) {
	for i, r := range s[:min(len(s), maxWord)] {
		if i > 0 && set.words[s[:i]] != 0 {
			bits, size = set.words[s[:i]], i
		}
		if !isUnspaced(r) {
			return bits, size
		}
	}
	if b := set.words[s]; b != 0 {
		return b, len(s)
	}
	return bits, size
}

// push adds a word to those before.
func (s *scanner) push(bits wordSet) {
	s.gap = 0
	s.vendored = s.vendored || bits&s.set.vendored != 0
	if bits&s.set.filler != 0 {
		s.before[0] |= bits &^ s.set.filler
		return
	}
	copy(s.before[1:], s.before[:window-1])
	s.before[0] = bits
}

// near returns the sets of the n words before.
func (s *scanner) near(n int) (bits wordSet) {
	for _, b := range s.before[:n] {
		bits |= b
	}
	return bits
}

// following returns the sets of the word behind i.
func (s *scanner) following(i int) wordSet {
	for skipped := 0; i < len(s.s) && skipped < 6; skipped++ {
		if c := s.s[i]; isLetter(c) {
			end := run(s.s, i, func(c byte) bool { return isLetter(c) || c >= utf8.RuneSelf })
			bits := s.set.bits(s.s[i:end])
			if w := s.s[i:end]; bits == 0 && len(w) > 3 && singular(w) != w && allLower(w) {
				bits = s.set.counted
			}
			return bits
		} else if c >= utf8.RuneSelf {
			if bits, size := s.set.prefixBits(s.s[i:]); size > 0 {
				return bits | s.set.foreign
			}
			return s.set.bits(s.s[i:run(s.s, i, func(c byte) bool { return isLetter(c) || c >= utf8.RuneSelf })])
		} else if isDigit(c) || strings.IndexByte("<,;.", c) >= 0 {
			return 0
		}
		i++
	}
	return 0
}

// apply gives text, of the shape sh, to the first rule whose context it stands in. It
// reports whether there is one.
func (s *scanner) apply(sh shape, text string, end int) bool {
	r := s.match(sh, end)
	if r == nil {
		return false
	}
	s.fire(r, text)
	return true
}

// match returns the rule for a shape that ends at end.
func (s *scanner) match(sh shape, end int) *rule {
	for _, r := range s.set.byShape[sh] {
		if r.before != 0 && s.near(r.near)&r.before == 0 || r.also != 0 && s.near(window)&r.also == 0 || s.before[0]&r.except != 0 {
			continue
		}
		if r.joined != "" && strings.IndexByte(r.joined, max(s.gap, ' ')) < 0 {
			continue
		}
		if r.after|r.unless != 0 {
			if next := s.following(end); r.after != 0 && next&r.after == 0 || next&r.unless != 0 {
				continue
			}
		}
		return r
	}
	return nil
}

// applyOr is apply for a shape that is kept when no rule is for it.
func (s *scanner) applyOr(sh shape, text string, end int) {
	if !s.apply(sh, text, end) {
		s.keep(text)
	}
}

// fire does what a rule says.
func (s *scanner) fire(r *rule, text string) {
	if !s.fired[r.index] {
		s.fired[r.index] = true
		s.rules = append(s.rules, r.id)
	}
	if r.keep {
		s.keep(text)
		return
	}
	if len(s.masked) < maxMasked {
		s.masked = append(s.masked, Mask{Label: r.label, Text: unjoined(strings.ToValidUTF8(text[:min(len(text), maxMask)], "")), Rule: r.id})
	}
	s.write(r.label)
}

// keep writes text as it is.
func (s *scanner) keep(text string) {
	s.out = append(s.out, text...)
	s.sep, s.key = 0, 0
	s.push(0)
}

// between are what stands between the items of a list.
var between = map[string]bool{
	"": true, " ": true, ", ": true, ",": true, "; ": true, " and ": true, ", and ": true, `", "`: true, `","`: true, "', '": true, "','": true, " or ": true,
	"`, `": true, "|": true, "), (": true, "),(": true, "], [": true, `" "`: true, `" and "`: true, `" or "`: true, "' and '": true, "' or '": true,
}

// write writes a placeholder. Equal ones in a list become one.
func (s *scanner) write(label string) {
	same := s.label == label || s.label == "<id>" && label == "<n>"
	if same && len(s.out)-s.labelEnd < 8 && between[string(s.out[s.labelEnd:])] {
		s.out = s.out[:s.labelEnd]
	} else {
		s.out = append(s.out, label...)
		s.label, s.labelEnd = label, len(s.out)
	}
	s.sep, s.key = 0, 0
	s.push(0)
}

// word writes a word and remembers it. What is counted is written in the singular.
func (s *scanner) word(w string, bits wordSet) {
	if bits == 0 && len(w) > 3 {
		bits = s.set.inner(w)
	}
	counted := s.label == "<n>" && s.labelEnd == len(s.out)-1
	if counted {
		w = singular(w)
	} else if one := singularVerbs[w]; s.counted && one != "" { // 1 row is, 3 rows are
		w = one
	}
	s.counted = counted
	s.out = append(s.out, w...)
	s.sep = 0
	s.push(bits)
}

var singularVerbs = map[string]string{"are": "is", "were": "was", "have": "has", "do": "does"}

// singular returns a word without the ending of its plural.
func singular(w string) string {
	n := len(w)
	switch {
	case n > 4 && strings.HasSuffix(w, "ies"):
		return w[:n-3] + "y"
	case n > 4 && (strings.HasSuffix(w, "ches") || strings.HasSuffix(w, "shes") || strings.HasSuffix(w, "sses") || strings.HasSuffix(w, "xes")):
		return w[:n-2]
	case n > 3 && w[n-1] == 's' && strings.IndexByte("siu", w[n-2]) < 0:
		return w[:n-1]
	}
	return w
}
