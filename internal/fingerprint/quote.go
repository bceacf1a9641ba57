package fingerprint

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// scanQuoted reads a quoted text. The opening quotation mark is at i and has open bytes; the
// closing one has size bytes.
func (s *scanner) scanQuoted(i, open int, closing string, size int) int {
	if s.depth >= maxDepth || closing == "'" && i > 0 && isWord(s.s[i-1]) || s.budget < 0 {
		return s.scanPunctuation(i, open)
	}
	start := i + open
	stop := findQuoteEnd(s.s, start, closing)
	if stop < 0 {
		s.checkBudget(min(maxQuote, len(s.s)-i))
		return s.scanPunctuation(i, open)
	}
	content, end := s.s[start:stop], stop+size
	if s.isKey(content, end) {
		return s.readKey(i, start, stop, end)
	}
	s.out = append(s.out, s.s[i:start]...)
	var r *rule
	if !labels[content] && byteAtOrZero(s.s, end) != '=' {
		r = s.matchQuoted(content, end)
	}
	if r != nil {
		s.applyRule(r, content)
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

// scanTypographicQuote reads a typographic quotation, an amount of money or a word.
func (s *scanner) scanTypographicQuote(i int) int {
	for _, c := range closings {
		if !strings.HasPrefix(s.s[i:], c[0]) {
			continue
		}
		for _, closing := range c[1:] {
			if s.budget >= 0 && findQuoteEnd(s.s, i+len(c[0]), closing) > 0 {
				return s.scanQuoted(i, len(c[0]), closing, len(closing))
			}
			s.checkBudget(min(maxQuote, len(s.s)-i))
		}
		return s.scanPunctuation(i, len(c[0]))
	}
	if r, size := utf8.DecodeRuneInString(s.s[i:]); strings.ContainsRune("€£¥", r) {
		k := runLength(s.s, i+size, func(c byte) bool { return c == ' ' })
		if isDigit(byteAtOrZero(s.s, k)) {
			return s.scanMoney(i, k)
		}
	} else if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
		return s.scanPunctuation(i, size)
	}
	return s.scanLetters(i)
}

// matchQuoted returns the rule for a quoted text, or nil.
func (s *scanner) matchQuoted(content string, end int) *rule {
	if s.key != 0 {
		if r := s.match(shapeMember, end); r != nil && !s.set.isSentence(content) {
			return r
		}
	}
	if s.matchPair(end) {
		if r := s.match(shapePair, end); r != nil {
			return r
		}
	}
	if content == "" {
		return s.match(shapeQuotedEmpty, end)
	}
	sh := s.set.classifyQuoted(content)
	if s.gap == '=' && s.gapped && sh != shapeQuotedPath && s.s[end-1] == '\'' && !s.set.isSentence(content) {
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

// findQuoteEnd returns the position of the closing quotation mark, or -1.
func findQuoteEnd(s string, i int, closing string) int {
	last := min(len(s), i+maxQuote)
	for k := i; k < last; k++ {
		switch {
		case s[k] == '\\' && closing[0] != '\\' && k+1 < last:
			k++
		case strings.HasPrefix(s[k:], closing):
			after := byteAtOrZero(s, k+len(closing))
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
	return s.braces > 0 && content != "" && len(content) <= maxWord && byteAtOrZero(s.s, end) == ':'
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
	s.before[0] = (s.set.wordBits(content) | s.set.innerBits(content)) &^ s.set.filler
	s.out = append(s.out, s.s[stop:end]...)
	s.out = append(s.out, ':')
	s.sep, s.gap = ':', ':'
	s.key = 1
	if (s.set.wordBits(content)|s.set.innerBits(content))&(s.set.told|s.set.weak|s.set.named) != 0 {
		s.key = 0
	}
	return end + 1
}

// classifyQuoted returns the shape of a quoted text.
func (set *ruleSet) classifyQuoted(content string) shape {
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
	case blanks == 0 && (strings.Contains(content, "/") && !isDigit(content[0]) && looksLikePath(content)):
		return shapeQuotedPath
	case set.isDataFile(content) && (blanks > 0 || high || longest > 0):
		return shapeQuotedFile
	case blanks == 0 && ((isDigit(content[0]) || content[0] == '-') && longest > 0 || strings.IndexByte(content, '@') > 0 || high):
		return shapeQuotedData
	case blanks == 0 && !startsWithWord(content) && (longest >= 2 || set.isMachineName(content)):
		return shapeQuotedData
	case blanks == 0 && !other && !set.isMachineName(content):
		return shapeQuotedName
	case blanks > 0 && (high || isTitleCase(content)) && !set.isSentence(content):
		return shapeQuotedTitle
	}
	return shapeQuotedText
}

// isMachineName reports whether a part of a name is machine-generated.
func (set *ruleSet) isMachineName(name string) bool {
	for i := 0; i < len(name); {
		end := findPartEnd(name, i)
		p := name[i:end]
		if p != "" && (set.isRandomPart(p) || len(name) > len(p) && isScrambled(p) || len(p) >= 8 &&
			runLength(p, 0, isHex) == len(p)) {
			return true
		}
		i = max(end, i+1)
	}
	return false
}

// isTitleCase reports whether most words are capitalized.
func isTitleCase(content string) bool {
	words, capitals := 0, 0
	for w := range strings.FieldsSeq(content) {
		words++
		if isUpper(w[0]) || !isLetter(w[0]) {
			capitals++
		}
	}
	return words > 1 && words <= 8 && capitals*2 > words
}

// isSentence reports whether a text contains words that describe failures.
func (set *ruleSet) isSentence(content string) bool {
	if strings.IndexByte(content, ' ') < 0 {
		return false
	}
	for w := range strings.FieldsSeq(content) {
		if set.wordBits(strings.Trim(w, ".,:;!?()"))&set.plain != 0 {
			return true
		}
	}
	return false
}

// scanTuple reads values in parentheses, as in Key (id)=(7) or contains (1, 2). It returns 0 if
// there are none.
func (s *scanner) scanTuple(i int) int {
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
	end := findClosing(s.s, i, '(', ')')
	s.checkBudget(end - i)
	if end <= i+1 || s.s[end-1] != ')' || sh == shapeArgument && !looksLikeData(s.s[i+1:end-1]) {
		return 0
	}
	r := s.match(sh, end)
	if r == nil || s.s[i+1:end-1] == r.label {
		return 0
	}
	s.out = append(s.out, '(')
	s.applyRule(r, s.s[i+1:end-1])
	s.out = append(s.out, ')')
	s.sep = ')'
	return end
}

// findClosing returns the end of the bracket that opens at i. If the closing bracket is missing
// because the text was truncated, it returns the end of the line.
func findClosing(s string, i int, open, closing byte) int {
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

// scanBrace reads an object, or an opening brace if there is no object.
func (s *scanner) scanBrace(i int) int {
	next := byteAtOrZero(s.s, i+1)
	if s.key != 0 || next == '}' || isLetter(next) || next == '"' || next == '\'' || next == '\\' || next == ' ' || next == '\n' {
		return s.scanData(i)
	}
	return s.scanPunctuation(i, 1)
}

// scanData scans an object or an array of objects and masks it, unless one of its keys describes
// the failure.
func (s *scanner) scanData(i int) int {
	open, closing := byte('{'), byte('}')
	if s.s[i] == '[' {
		open, closing = '[', ']'
	}
	if s.budget < 0 {
		return s.scanPunctuation(i, 1)
	}
	end := findClosing(s.s, i, open, closing)
	s.checkBudget(2 * (end - i))
	text := s.s[i:end]
	if strings.Trim(text, "{} ") == "" && s.apply(shapeData, text, end) {
		return end
	}
	if s.key == 0 && !isObject(text) {
		return s.scanPunctuation(i, 1)
	}
	if s.key != 0 && !s.set.isInformative(text) && s.apply(shapeMember, text, end) {
		return end
	}
	s.key = 0
	if !s.set.isInformative(text) && s.apply(shapeData, text, end) {
		return end
	}
	if open == '{' {
		s.braces++
	}
	return s.scanPunctuation(i, 1)
}

// isObject reports whether a bracketed text begins with a key.
func isObject(text string) bool {
	i := runLength(text, 0, func(c byte) bool { return strings.IndexByte("[{ \n\"'\\", c) >= 0 })
	end := runLength(text, i, func(c byte) bool { return isWord(c) || strings.IndexByte("-@.$", c) >= 0 })
	if end == i {
		return false
	}
	end = runLength(text, end, func(c byte) bool { return strings.IndexByte("\"'\\", c) >= 0 })
	return byteAtOrZero(text, end) == ':'
}

// isInformative reports whether the text of an object contains a key that describes a failure.
func (set *ruleSet) isInformative(text string) bool {
	for i := 0; i < len(text); i++ {
		if !isLetter(text[i]) || isWord(text[max(i-1, 0)]) {
			continue
		}
		end := runLength(text, i, isWord)
		k := runLength(text, end, func(c byte) bool { return strings.IndexByte("\"'\\", c) >= 0 })
		if w := text[i:end]; byteAtOrZero(text, k) == ':' && (set.wordBits(w)|set.innerBits(w))&set.told != 0 {
			return true
		}
		i = end
	}
	return strings.Contains(text, ", b'") // SMTP replies, as Python prints them
}

// looksLikeData reports whether a short text is more likely data than prose.
func looksLikeData(text string) bool {
	if len(text) == 0 || len(text) > 80 || strings.ContainsAny(text, `"'=`) {
		return false
	}
	return hasDigit(text) || strings.Contains(text, "@") || !strings.Contains(text, " ") && strings.Contains(text, "-")
}

// scanSubject reads the object of an operation, up to the following colon, such as R 77/B in "void
// invoice R 77/B: no such service". It returns i if there is none.
func (s *scanner) scanSubject(i int) int {
	if !s.clause || !s.gapped || s.gap != 0 {
		return i
	}
	last := min(len(s.s), i+64)
	colon := strings.Index(s.s[i:last], ": ")
	if colon <= 0 {
		return i
	}
	text := s.s[i : i+colon]
	if k := runLength(text, 0, isLetter); s.set.wordBits(text[:k])&s.set.entity != 0 && k < len(text) &&
		!isUpper(text[0]) {
		return i
	}
	if strings.ContainsAny(text, "\"'`;=<>|") || s.set.isPhrase(text) || !looksLikeSubject(text) {
		return i
	}
	sh := shapeSubject
	if s.match(sh, i+colon) == nil && s.first && s.words > 1 && hasDigit(text) && !strings.ContainsAny(text, " .:[") &&
		!isVersion(text) && findDurationEnd(s.set, s.s, i) == 0 && s.set.wordBits(text)&s.set.wordy == 0 {
		sh = shapeSubjectID
	}
	if s.apply(sh, text, i+colon) {
		return i + colon
	}
	return i
}

// looksLikeSubject reports whether a text can be the name of one thing.
func looksLikeSubject(text string) bool {
	words := strings.Count(text, " ") + 1
	if i := strings.LastIndexByte(text, ' '); i > 0 && strings.ContainsAny(text[:i], "0123456789@") &&
		runLength(text, i+1, func(c byte) bool { return c >= 'a' && c <= 'z' }) == len(text) {
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

// isPhrase reports whether a text contains lower-case words that connect the parts of a sentence.
func (set *ruleSet) isPhrase(text string) bool {
	for w := range strings.FieldsSeq(text) {
		if set.wordBits(w)&(set.filler|set.plain) != 0 && !isUpper(w[0]) {
			return true
		}
	}
	return false
}

// looksLikePath reports whether a text consists of words separated by slashes.
func looksLikePath(content string) bool {
	return len(content) > 6 && isPronounceable(content) && strings.IndexByte(content, '/') > 1
}

// isDataFile reports whether a text is the name of a data file.
func (set *ruleSet) isDataFile(content string) bool {
	dot := strings.LastIndexByte(content, '.')
	return dot > 0 && dot < len(content)-1 && set.wordBits(content[dot+1:])&set.files != 0
}

// startsWithWord reports whether a text begins with a word and not with a short id prefix.
func startsWithWord(content string) bool {
	k := runLength(content, 0, isLetter)
	return k >= 3 && isPronounceable(content[:k])
}

var refusals = []string{" is not a ", " is not an ", " is not valid", " is invalid", " is not one of", " is not recognized", " was not recognized"}
