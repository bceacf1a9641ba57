package fingerprint

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// quoted reads a quoted text. The opening quotation mark is at i and has open bytes; the closing
// one has size bytes.
func (s *scanner) quoted(i, open int, closing string, size int) int {
	if s.depth >= maxDepth || closing == "'" && i > 0 && isWord(s.s[i-1]) || s.budget < 0 {
		return s.punct(i, open)
	}
	start := i + open
	stop := quoteEnd(s.s, start, closing)
	if stop < 0 {
		s.afford(min(maxQuote, len(s.s)-i))
		return s.punct(i, open)
	}
	content, end := s.s[start:stop], stop+size
	if s.isKey(content, end) {
		return s.readKey(i, start, stop, end)
	}
	s.out = append(s.out, s.s[i:start]...)
	var r *rule
	if !labels[content] && byteAt(s.s, end) != '=' {
		r = s.quotedRule(content, end)
	}
	if r != nil {
		s.fire(r, content)
		if r.keep {
			s.before[0] |= s.set.keptName
		}
	} else {
		s.sep = 0
		s.depth++
		s.key = 0
		s.scan(start, stop)
		s.depth--
	}
	s.out = append(s.out, s.s[stop:end]...)
	s.sep = s.s[end-1]
	s.gap = s.sep
	return end
}

// quoteMarks contains the first bytes of typographic quotation marks.
var quoteMarks = [256]bool{0xe2: true, 0xc2: true}

// closings lists each typographic opening mark with the marks that close it.
var closings = [][]string{{"„", "“", "”"}, {"“", "”"}, {"«", "»"}, {"»", "«"}, {"‘", "’"}, {"‹", "›"}}

// typographic reads a typographic quotation, an amount of money or a word.
func (s *scanner) typographic(i int) int {
	for _, c := range closings {
		if !strings.HasPrefix(s.s[i:], c[0]) {
			continue
		}
		for _, closing := range c[1:] {
			if s.budget >= 0 && quoteEnd(s.s, i+len(c[0]), closing) > 0 {
				return s.quoted(i, len(c[0]), closing, len(closing))
			}
			s.afford(min(maxQuote, len(s.s)-i))
		}
		return s.punct(i, len(c[0]))
	}
	if r, size := utf8.DecodeRuneInString(s.s[i:]); strings.ContainsRune("€£¥", r) {
		k := run(s.s, i+size, func(c byte) bool { return c == ' ' })
		if isDigit(byteAt(s.s, k)) {
			return s.money(i, k)
		}
	} else if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
		return s.punct(i, size)
	}
	return s.letters(i)
}

// quotedRule returns the rule for a quoted text, or nil.
func (s *scanner) quotedRule(content string, end int) *rule {
	if s.key != 0 {
		if r := s.match(shapeMember, end); r != nil && !s.set.sentence(content) {
			return r
		}
	}
	if s.pair(end) {
		if r := s.match(shapePair, end); r != nil {
			return r
		}
	}
	if content == "" {
		return s.match(shapeQuotedEmpty, end)
	}
	sh := s.set.quotedShape(content)
	if s.gap == '=' && s.gapped && sh != shapeQuotedPath && s.s[end-1] == '\'' && !s.set.sentence(content) {
		sh = shapeQuotedLiteral
	}
	if sh != shapeQuotedPath && slices.ContainsFunc(refusals, func(r string) bool { return strings.HasPrefix(s.s[end:], r) }) {
		if r := s.match(shapeQuotedRefused, end); r != nil {
			return r
		}
	}
	if sh == shapeQuotedText && strings.HasPrefix(s.s[min(end, len(s.s)):], "...") {
		sh = shapeQuotedData
	}
	return s.match(sh, end)
}

// quoteEnd returns the position of the closing quotation mark, or -1.
func quoteEnd(s string, i int, closing string) int {
	last := min(len(s), i+maxQuote)
	for k := i; k < last; k++ {
		switch {
		case s[k] == '\\' && closing[0] != '\\' && k+1 < last:
			k++
		case strings.HasPrefix(s[k:], closing):
			after := byteAt(s, k+len(closing))
			if closing == "'" && (isWord(after) && k > i) {
				continue // an apostrophe
			}
			return k
		}
	}
	return -1
}

// isKey reports whether a quoted text is a key in an object.
func (s *scanner) isKey(content string, end int) bool {
	return s.braces > 0 && content != "" && len(content) <= maxWord && byteAt(s.s, end) == ':'
}

// readKey reads the key of an object. The value is ignored unless the key describes a failure.
func (s *scanner) readKey(i, start, stop, end int) int {
	content := s.s[start:stop]
	s.out = append(s.out, s.s[i:start]...)
	if strings.ContainsAny(content, "0123456789<@") {
		s.depth++
		s.scan(start, stop)
		s.depth--
	} else {
		s.out = append(s.out, content...)
		s.push(0)
	}
	s.before[0] = (s.set.bits(content) | s.set.inner(content)) &^ s.set.filler
	s.out = append(s.out, s.s[stop:end]...)
	s.out = append(s.out, ':')
	s.sep, s.gap = ':', ':'
	s.key = 1
	if (s.set.bits(content)|s.set.inner(content))&(s.set.told|s.set.weak|s.set.named) != 0 {
		s.key = 0
	}
	return end + 1
}

// quotedShape returns the shape of a quoted text.
func (set *ruleSet) quotedShape(content string) shape {
	digits, longest, blanks, other, high := 0, 0, 0, false, false
	for i := range len(content) {
		c := content[i]
		if isDigit(c) {
			digits++
			longest = max(longest, digits)
			continue
		}
		digits = 0
		switch {
		case c == ' ' || c == '\n':
			blanks++
		case c >= utf8.RuneSelf:
			high = true
		case !isLetter(c) && strings.IndexByte("_.-$:/*", c) < 0:
			other = true
		}
	}
	switch {
	case strings.Contains(content, "://") || strings.HasPrefix(content, "arn:") || content[0] == '/':
		return shapeQuotedPath
	case content[0] == '\\':
		return shapeQuotedData
	case blanks == 0 && (strings.Contains(content, "/") && !isDigit(content[0]) && pathish(content)):
		return shapeQuotedPath
	case set.isDataFile(content) && (blanks > 0 || high || longest > 0):
		return shapeQuotedFile
	case blanks == 0 && ((isDigit(content[0]) || content[0] == '-') && longest > 0 || strings.IndexByte(content, '@') > 0 || high):
		return shapeQuotedData
	case blanks == 0 && !startsWithWord(content) && (longest >= 2 || set.machine(content)):
		return shapeQuotedData
	case blanks == 0 && !other && !set.machine(content):
		return shapeQuotedName
	case blanks > 0 && (high || titled(content)) && !set.sentence(content):
		return shapeQuotedTitle
	}
	return shapeQuotedText
}

// machine reports whether a part of a name is machine-generated.
func (set *ruleSet) machine(name string) bool {
	for i := 0; i < len(name); {
		end := partEnd(name, i)
		p := name[i:end]
		if p != "" && (set.randomPart(p) || len(name) > len(p) && scrambled(p) || len(p) >= 8 && run(p, 0, isHex) == len(p)) {
			return true
		}
		i = max(end, i+1)
	}
	return false
}

// titled reports whether most words are capitalized.
func titled(content string) bool {
	words, capitals := 0, 0
	for w := range strings.FieldsSeq(content) {
		words++
		if isUpper(w[0]) || !isLetter(w[0]) {
			capitals++
		}
	}
	return words > 1 && words <= 8 && capitals*2 > words
}

// sentence reports whether a text contains words that describe failures.
func (set *ruleSet) sentence(content string) bool {
	if strings.IndexByte(content, ' ') < 0 {
		return false
	}
	for w := range strings.FieldsSeq(content) {
		if set.bits(strings.Trim(w, ".,:;!?()"))&set.plain != 0 {
			return true
		}
	}
	return false
}

// tuple reads values in parentheses, as in Key (id)=(7) or contains (1, 2). It returns 0 if there
// are none.
func (s *scanner) tuple(i int) int {
	sh := shapeTuple
	if s.gap != '=' && s.before[0]&s.set.tuple == 0 {
		if s.gapped || i == 0 || !isWord(s.s[i-1]) {
			return 0
		}
		sh = shapeArgument
	}
	if s.budget < 0 {
		return 0
	}
	end := closingOf(s.s, i, '(', ')')
	s.afford(end - i)
	if end <= i+1 || s.s[end-1] != ')' || sh == shapeArgument && !dataish(s.s[i+1:end-1]) {
		return 0
	}
	r := s.match(sh, end)
	if r == nil || s.s[i+1:end-1] == r.label {
		return 0
	}
	s.out = append(s.out, '(')
	s.fire(r, s.s[i+1:end-1])
	s.out = append(s.out, ')')
	s.sep = ')'
	return end
}

// closingOf returns the end of the bracket that opens at i. If the closing bracket is missing
// because the text was truncated, it returns the end of the line.
func closingOf(s string, i int, open, closing byte) int {
	depth := 0
	for k := i; k < len(s); k++ {
		switch s[k] {
		case open:
			depth++
		case closing:
			depth--
			if depth == 0 {
				return k + 1
			}
		}
	}
	for _, stop := range []string{"\n", cutMark} {
		if k := strings.Index(s[i:], stop); k > 0 {
			s = s[:i+k]
		}
	}
	if k := strings.LastIndexByte(s, closing); k > i {
		return k + 1
	}
	return len(s)
}

// brace reads an object, or an opening brace if there is no object.
func (s *scanner) brace(i int) int {
	next := byteAt(s.s, i+1)
	if s.key != 0 || next == '}' || isLetter(next) || next == '"' || next == '\'' || next == '\\' || next == ' ' || next == '\n' {
		return s.data(i)
	}
	return s.punct(i, 1)
}

// data scans an object or an array of objects and masks it, unless one of its keys describes the
// failure.
func (s *scanner) data(i int) int {
	open, closing := byte('{'), byte('}')
	if s.s[i] == '[' {
		open, closing = '[', ']'
	}
	if s.budget < 0 {
		return s.punct(i, 1)
	}
	end := closingOf(s.s, i, open, closing)
	s.afford(2 * (end - i))
	text := s.s[i:end]
	if strings.Trim(text, "{} ") == "" && s.apply(shapeData, text, end) {
		return end
	}
	if s.key == 0 && !isObject(text) {
		return s.punct(i, 1)
	}
	if s.key != 0 && !s.set.tells(text) && s.apply(shapeMember, text, end) {
		return end
	}
	s.key = 0
	if !s.set.tells(text) && s.apply(shapeData, text, end) {
		return end
	}
	if open == '{' {
		s.braces++
	}
	return s.punct(i, 1)
}

// isObject reports whether a bracketed text begins with a key.
func isObject(text string) bool {
	i := run(text, 0, func(c byte) bool { return strings.IndexByte("[{ \n\"'\\", c) >= 0 })
	end := run(text, i, func(c byte) bool { return isWord(c) || strings.IndexByte("-@.$", c) >= 0 })
	if end == i {
		return false
	}
	end = run(text, end, func(c byte) bool { return strings.IndexByte("\"'\\", c) >= 0 })
	return byteAt(text, end) == ':'
}

// tells reports whether the text of an object contains a key that describes a failure.
func (set *ruleSet) tells(text string) bool {
	for i := 0; i < len(text); i++ {
		if !isLetter(text[i]) || isWord(text[max(i-1, 0)]) {
			continue
		}
		end := run(text, i, isWord)
		k := run(text, end, func(c byte) bool { return strings.IndexByte("\"'\\", c) >= 0 })
		if w := text[i:end]; byteAt(text, k) == ':' && (set.bits(w)|set.inner(w))&set.told != 0 {
			return true
		}
		i = end
	}
	return strings.Contains(text, ", b'") // SMTP replies, as Python prints them
}

// dataish reports whether a short text is more likely data than prose.
func dataish(text string) bool {
	if len(text) == 0 || len(text) > 80 || strings.ContainsAny(text, `"'=`) {
		return false
	}
	return hasDigit(text) || strings.Contains(text, "@") || !strings.Contains(text, " ") && strings.Contains(text, "-")
}

// subject reads the object of an operation, up to the following colon, such as R 77/B in "void
// invoice R 77/B: no such service". It returns i if there is none.
func (s *scanner) subject(i int) int {
	if !s.clause || !s.gapped || s.gap != 0 {
		return i
	}
	last := min(len(s.s), i+64)
	colon := strings.Index(s.s[i:last], ": ")
	if colon <= 0 {
		return i
	}
	text := s.s[i : i+colon]
	if k := run(text, 0, isLetter); s.set.bits(text[:k])&s.set.entity != 0 && k < len(text) && !isUpper(text[0]) {
		return i
	}
	if strings.ContainsAny(text, "\"'`;=<>|") || s.set.phrase(text) || !subjectish(text) {
		return i
	}
	sh := shapeSubject
	if s.match(sh, i+colon) == nil && s.first && s.words > 1 && hasDigit(text) && !strings.ContainsAny(text, " .:[") &&
		!isVersion(text) && durationEnd(s.set, s.s, i) == 0 && s.set.bits(text)&s.set.wordy == 0 {
		sh = shapeSubjectID
	}
	if s.apply(sh, text, i+colon) {
		return i + colon
	}
	return i
}

// subjectish reports whether a text can be the name of one thing.
func subjectish(text string) bool {
	words := strings.Count(text, " ") + 1
	if i := strings.LastIndexByte(text, ' '); i > 0 && strings.ContainsAny(text[:i], "0123456789@") &&
		run(text, i+1, func(c byte) bool { return c >= 'a' && c <= 'z' }) == len(text) {
		return false // only the number of "4711 bounced"
	}
	capitals := 0
	for i := range len(text) {
		if isDigit(text[i]) || text[i] >= 0x80 || text[i] == '@' {
			return true
		}
		if isUpper(text[i]) {
			capitals++
		}
	}
	marks := strings.ContainsAny(text, "-_")
	return words > 1 && isUpper(text[0]) || marks && words == 1 || marks && capitals > 1
}

// phrase reports whether a text contains lower-case words that connect the parts of a sentence.
func (set *ruleSet) phrase(text string) bool {
	for w := range strings.FieldsSeq(text) {
		if set.bits(w)&(set.filler|set.plain) != 0 && !isUpper(w[0]) {
			return true
		}
	}
	return false
}

// pathish reports whether a text consists of words separated by slashes.
func pathish(content string) bool {
	return len(content) > 6 && pronounceable(content) && strings.IndexByte(content, '/') > 1
}

// isDataFile reports whether a text is the name of a data file.
func (set *ruleSet) isDataFile(content string) bool {
	dot := strings.LastIndexByte(content, '.')
	return dot > 0 && dot < len(content)-1 && set.bits(content[dot+1:])&set.files != 0
}

// startsWithWord reports whether a text begins with a word and not with a short id prefix.
func startsWithWord(content string) bool {
	k := run(content, 0, isLetter)
	return k >= 3 && pronounceable(content[:k])
}

var refusals = []string{" is not a ", " is not an ", " is not valid", " is invalid", " is not one of", " is not recognized", " was not recognized"}
