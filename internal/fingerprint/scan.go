package fingerprint

import (
	"strings"
	"unicode/utf8"
)

const (
	window   = 4  // preceding words that a rule can refer to
	maxWord  = 40 // bytes of a word that is looked up
	maxQuote = 600
	maxDepth = 3 // nested quotes

	// lookAhead limits how often each byte may be scanned, on average, to find closing quotes and
	// brackets. Without it, texts that consist of brackets take quadratic time.
	lookAhead = 6
)

// scanner computes the pattern of a text in one pass. Methods that read a token append it or its
// placeholder to out. They return the position after the token, or 0 if there is no such token.
type scanner struct {
	set *ruleSet
	s   string // the scanned text
	out []byte

	before [window]wordSet // the preceding words, the nearest first
	sep    byte            // the preceding character, unless it is a blank
	gap    byte            // the last punctuation since the preceding word
	gapped bool            // a blank precedes
	key    int             // 1 before the value of an object key that does not describe a failure
	braces int
	depth  int
	budget int // remaining bytes of look-ahead

	label    string // the last placeholder
	labelEnd int    // its end in out
	counted  bool   // the preceding word was counted
	clause   bool   // the clause begins with a lower-case letter
	begun    bool   // a word of the clause was read
	pairs    int    // consecutive key-value pairs
	vendored bool   // the text has a word such as SQLSTATE
	home     bool   // the preceding path segment is the parent of home directories
	first    bool   // the clause is the first
	words    int    // words of the clause so far

	fired  []bool
	rules  []string
	masked []Mask
}

// checkBudget subtracts look-ahead bytes from the budget.
func (s *scanner) checkBudget(bytes int) { s.budget -= bytes }

// computePattern normalizes a message.
func (set *ruleSet) computePattern(message string) Cause {
	text, middle := extractEssence(message)
	s := &scanner{
		set: set, s: text, out: make([]byte, 0, len(text)+64), masked: make([]Mask, 0, 8), rules: make([]string, 0, 8),
		fired: make([]bool, len(set.rules)), budget: lookAhead * (len(text) + 64),
	}
	s.scan(0, len(text))
	c := Cause{Rules: s.rules, Masked: s.masked, whole: strings.Trim(splitJoined(string(s.out)), " ")}
	c.Pattern = truncate(c.whole, MaxPattern)
	if middle != "" {
		c.whole += hashKey(extractWords(middle))
	}
	return c
}

// splitJoined removes the joints from a text.
func splitJoined(s string) string { return strings.ReplaceAll(s, string(joint), "") }

// scan reads the text from i to end.
func (s *scanner) scan(i, end int) {
	whole := s.s
	s.s = whole[:end]
	for i < end {
		c := s.s[i]
		if c == ' ' || c == '\n' {
			s.scanBlank(c)
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
		next := s.scanSubject(i)
		switch {
		case next > i:
		case class[c]&classDigit != 0:
			next = s.scanDigits(i)
		case c >= utf8.RuneSelf && quoteMarks[c]:
			next = s.scanTypographicQuote(i)
		case class[c] != 0:
			next = s.scanLetters(i)
		default:
			next = s.scanMark(i, c)
		}
		if s.gapped || s.words == 0 {
			s.words++
		}
		s.gapped = false
		i = next
	}
	s.s = whole
}

// scanBlank writes a blank unless the output already ends with one.
func (s *scanner) scanBlank(c byte) {
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

// scanPunctuation writes size bytes of punctuation.
func (s *scanner) scanPunctuation(i, size int) int {
	s.out = append(s.out, s.s[i:i+size]...)
	s.sep = s.s[i]
	s.gap = s.sep
	s.counted = false
	if s.gap != '=' && s.gap != ',' {
		s.pairs = 0
	}
	return i + size
}

// scanMark reads a token that begins with punctuation.
func (s *scanner) scanMark(i int, c byte) int {
	next := byteAtOrZero(s.s, i+1)
	switch c {
	case '"', '\'', '`':
		return s.scanQuoted(i, 1, string(c), 1)
	case '\\':
		if next == '"' || next == '\'' {
			return s.scanQuoted(i, 2, s.s[i:i+2], 2)
		}
		if end := runLength(s.s, i+2, isHex); (next == 'x' || next == 'u' || next == 'U') && end > i+3 &&
			s.apply(shapeEscaped, s.s[i:end], end) {
			return end
		}
	case '<':
		return s.scanAngle(i)
	case '[':
		if end := s.scanBracket(i); end > 0 {
			return end
		}
	case '{':
		return s.scanBrace(i)
	case '}':
		s.braces = max(s.braces-1, 0)
		s.key = 0
	case '(':
		s.key = 0
		if end := s.scanTuple(i); end > 0 {
			return end
		}
	case '$':
		if isDigit(next) {
			return s.scanMoney(i, i+1)
		}
	case '-', '+':
		if isDigit(next) && (s.gapped || s.sep != 0 || i == 0) && s.sep != '-' {
			return s.scanDigits(i)
		}
	case '/', '~', '.':
		if end := s.findPathStart(i); end > 0 {
			return end
		}
	case ':':
		return s.scanColon(i, next)
	case ',':
		s.key = 0
		if next == ')' && s.labelEnd == len(s.out) && s.label != "" { // treat (1,) like (1, 2)
			return i + 1
		}
	case ';':
		s.key = 0
	case '=':
		s.pairs++
		if s.gapped {
			s.pairs = 0 // part of a SQL statement
		}
	}
	return s.scanPunctuation(i, 1)
}

// scanColon reads :8080 and ::1.
func (s *scanner) scanColon(i int, next byte) int {
	if next == ':' {
		if end := findIPv6End(s.s, i); end > 0 {
			return s.scanAddress(i, end, end)
		}
		return s.scanPunctuation(i, 2)
	}
	if isDigit(next) && (s.gapped || i == 0) {
		end := runLength(s.s, i+1, isDigit)
		s.scanPunctuation(i, 1)
		return s.scanPort(i+1, end)
	}
	return s.scanPunctuation(i, 1)
}

// scanAngle reads a placeholder, an Erlang process id, or a bracket.
func (s *scanner) scanAngle(i int) int {
	end := runLength(s.s, i+1, func(c byte) bool { return isDigit(c) || c == '.' || c >= 'a' && c <= 'z' })
	if byteAtOrZero(s.s, end) == '>' {
		text := s.s[i : end+1]
		if labels[text] {
			s.write(text)
			if text == "<ip>" && byteAtOrZero(s.s, end+1) == ':' && isDigit(byteAtOrZero(s.s, end+2)) {
				s.scanPunctuation(end+1, 1)
				return s.scanPort(end+2, runLength(s.s, end+2, isDigit))
			}
			return end + 1
		}
		if isDigit(text[1]) && strings.Count(text, ".") == 2 && s.apply(shapeProcess, text, end+1) {
			return end + 1
		}
	}
	return s.scanPunctuation(i, 1)
}

// scanBracket reads [fd00::7]:5432, or an array of objects.
func (s *scanner) scanBracket(i int) int {
	if end := findIPv6End(s.s, i+1); end > 0 && byteAtOrZero(s.s, end) == ']' {
		return s.scanAddress(i, end+1, end+1)
	}
	if next := byteAtOrZero(s.s, i+1); next == '{' || s.key != 0 || i >= 3 && s.s[i-3:i] == "map" && isObject(s.s[i:]) {
		return s.scanData(i)
	}
	return 0
}

// scanAddress reads the network address from i to end. The host ends at hostEnd; a port may follow.
func (s *scanner) scanAddress(i, hostEnd, end int) int {
	high := false
	if byteAtOrZero(s.s, end) == ':' && isDigit(byteAtOrZero(s.s, end+1)) {
		end = runLength(s.s, end+1, isDigit)
		high = s.isEphemeralPort(s.s[hostEnd+1 : end])
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
	s.scanPunctuation(hostEnd, 1)
	s.scanPort(hostEnd+1, end)
	item := string(s.out[max(len(s.out)-(end-hostEnd)-len("<ip>"), 0):])
	if list := string(s.out); strings.HasSuffix(list, item+", "+item) { // several addresses of one service
		s.out = s.out[:len(s.out)-len(item)-2]
	}
	return end
}

// scanPort reads the port number after a host.
func (s *scanner) scanPort(i, end int) int {
	sh := shapePort
	if s.isEphemeralPort(s.s[i:end]) {
		sh = shapePortHigh
	}
	s.applyOr(sh, s.s[i:end], end)
	return end
}

// isEphemeralPort reports whether a port was probably assigned to a connection by the system, so
// that no server listens on it.
func (s *scanner) isEphemeralPort(port string) bool {
	return parseSmallNumber(port) >= 32768 && s.nearbyBits(window)&s.set.listening == 0
}

// parseSmallNumber returns the value of a run of up to nine digits, and 1<<30 for a longer one.
func parseSmallNumber(s string) int {
	if len(s) > 9 {
		return 1 << 30
	}
	n := 0
	for i := range len(s) {
		n = n*10 + int(s[i]-'0')
	}
	return n
}

// wordBits returns the word sets that contain a word, ignoring case and plural endings.
func (set *ruleSet) wordBits(word string) wordSet {
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

// foreignBits is like bits for a word with non-ASCII letters. In scripts without spaces, it looks
// up the words at its end.
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

// prefixBits returns the word sets and the length of the longest known word at the start of s, for
// scripts without spaces.
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

// push adds a word with these sets to the preceding words.
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

// nearbyBits returns the union of the word sets of the n preceding words.
func (s *scanner) nearbyBits(n int) (bits wordSet) {
	for _, b := range s.before[:n] {
		bits |= b
	}
	return bits
}

// followingBits returns the word sets of the next word after i.
func (s *scanner) followingBits(i int) wordSet {
	letter := func(c byte) bool { return isLetter(c) || c >= utf8.RuneSelf }
	for skipped := 0; i < len(s.s) && skipped < 6; skipped++ {
		switch c := s.s[i]; {
		case isLetter(c):
			w := s.s[i:runLength(s.s, i, letter)]
			bits := s.set.wordBits(w)
			if bits == 0 && len(w) > 3 && toSingular(w) != w && isAllLower(w) {
				bits = s.set.counted
			}
			return bits
		case c >= utf8.RuneSelf:
			if bits, size := s.set.prefixBits(s.s[i:]); size > 0 {
				return bits | s.set.foreign
			}
			return s.set.wordBits(s.s[i:runLength(s.s, i, letter)])
		case isDigit(c) || strings.IndexByte("<,;.", c) >= 0:
			return 0
		}
		i++
	}
	return 0
}

// apply applies the first rule that matches a shape to text. It returns false if no rule matches.
func (s *scanner) apply(sh shape, text string, end int) bool {
	r := s.match(sh, end)
	if r == nil {
		return false
	}
	s.applyRule(r, text)
	return true
}

// match returns the first rule that matches a shape whose text ends at end, or nil.
func (s *scanner) match(sh shape, end int) *rule {
	for _, r := range s.set.byShape[sh] {
		if r.before != 0 && s.nearbyBits(r.near)&r.before == 0 || r.also != 0 && s.nearbyBits(window)&r.also == 0 ||
			s.before[0]&r.except != 0 {
			continue
		}
		if r.joined != "" && strings.IndexByte(r.joined, max(s.gap, ' ')) < 0 {
			continue
		}
		if r.after|r.unless != 0 {
			if next := s.followingBits(end); r.after != 0 && next&r.after == 0 || next&r.unless != 0 {
				continue
			}
		}
		return r
	}
	return nil
}

// applyOr is like apply but keeps the text if no rule matches.
func (s *scanner) applyOr(sh shape, text string, end int) {
	if !s.apply(sh, text, end) {
		s.keep(text)
	}
}

// applyRule records that a rule was applied and keeps or masks the text.
func (s *scanner) applyRule(r *rule, text string) {
	if !s.fired[r.index] {
		s.fired[r.index] = true
		s.rules = append(s.rules, r.id)
	}
	if r.keep {
		s.keep(text)
		return
	}
	if len(s.masked) < maxMasked {
		text = splitJoined(strings.ToValidUTF8(text[:min(len(text), maxMask)], ""))
		s.masked = append(s.masked, Mask{Label: r.label, Text: text, Rule: r.id})
	}
	s.write(r.label)
}

// keep writes text unchanged.
func (s *scanner) keep(text string) {
	s.sep, s.key = 0, 0
	s.emit(text, 0)
}

// emit writes text unchanged and adds it to the preceding words.
func (s *scanner) emit(text string, bits wordSet) {
	s.out = append(s.out, text...)
	s.push(bits)
}

// between contains the texts that separate items of a list.
var between = map[string]bool{
	"": true, " ": true, ", ": true, ",": true, "; ": true, " and ": true, ", and ": true, " or ": true, "|": true,
	`", "`: true, `","`: true, "', '": true, "','": true, "`, `": true, "), (": true, "),(": true, "], [": true,
	`" "`: true, `" and "`: true, `" or "`: true, "' and '": true, "' or '": true,
}

// write writes a placeholder. It merges equal placeholders in a list into one.
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

// writeWord writes a word and adds it to the preceding words. After a number, it writes the
// singular.
func (s *scanner) writeWord(w string, bits wordSet) {
	if bits == 0 && len(w) > 3 {
		bits = s.set.innerBits(w)
	}
	counted := s.label == "<n>" && s.labelEnd == len(s.out)-1
	if counted {
		w = toSingular(w)
	} else if one := singularVerbs[w]; s.counted && one != "" { // "1 row is" and "3 rows are"
		w = one
	}
	s.counted = counted
	s.sep = 0
	s.emit(w, bits)
}

var singularVerbs = map[string]string{"are": "is", "were": "was", "have": "has", "do": "does"}

// toSingular returns a word without its plural ending.
func toSingular(w string) string {
	n := len(w)
	switch {
	case n > 4 && strings.HasSuffix(w, "ies"):
		return w[:n-3] + "y"
	case n > 4 && (strings.HasSuffix(w, "ches") || strings.HasSuffix(w, "shes") || strings.HasSuffix(w, "sses") ||
		strings.HasSuffix(w, "xes")):
		return w[:n-2]
	case n > 3 && w[n-1] == 's' && strings.IndexByte("siu", w[n-2]) < 0:
		return w[:n-1]
	}
	return w
}
