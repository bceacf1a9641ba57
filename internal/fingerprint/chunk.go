package fingerprint

import (
	"strings"
	"unicode/utf8"
)

// scanChunk reads a word: letters, digits and the punctuation between them, such as a path or an
// id.
func (s *scanner) scanChunk(i, end int, classes uint8) int {
	if s.s[i] == '-' || s.s[i] == '+' {
		s.scanPunctuation(i, 1)
		i++
	}
	w := s.s[i:end]
	if strings.IndexByte(w, '@') > 0 {
		if k := findEmailEnd(w); k > 0 && s.apply(shapeEmail, w[:k], i+k) {
			return i + k
		}
	}
	if s.key != 0 && s.apply(shapeMember, w, end) {
		return end
	}
	if k := s.findValueEnd(i, end); k > 0 && s.apply(shapeWord, s.s[i:k], k) {
		return k
	}
	if slash := strings.IndexAny(w, `/\`); slash >= 0 {
		if s.isBlob(i, end) {
			if k := findBlobEnd(s.s, i); s.apply(shapeBlob, s.s[i:k], k) {
				return k
			}
		}
		return s.scanPath(i, end)
	}
	if classes&classDigit == 0 && !strings.Contains(w, ".") && s.matchPair(end) && s.apply(shapePair, w, end) {
		return end
	}
	if colon := strings.LastIndexByte(w, ':'); colon > 0 && colon+1 < len(w) && runLength(w, colon+1, isDigit) == len(w) {
		return s.scanHost(i, i+colon, end)
	}
	if dot := strings.LastIndexByte(w, '.'); dot > 0 && s.set.wordBits(w[dot+1:])&s.set.files != 0 &&
		s.before[0]&s.set.entity == 0 && s.scanDataFile(w, end) {
		return end
	}
	if classes&classDigit == 0 {
		return s.scanName(w, end)
	}
	first := len(s.out) == 0 || s.out[len(s.out)-1] == '[' && len(s.out) < 3
	if s.set.isOwnID(w, first, byteAtOrZero(s.s, end)) && s.apply(shapeOwnID, w, end) {
		return end
	}
	if len(w) > 9 && w[8] == ':' && runLength(w, 0, isHex) == 8 && s.gap == ':' && s.apply(shapeLibrary, w[:8], i+8) {
		return i + 8
	}
	if s.isCoded(w, end) {
		return end
	}
	if len(w) >= 24 && s.isBlob(i, end) {
		if k := findBlobEnd(s.s, i); s.apply(shapeBlob, s.s[i:k], k) {
			return k
		}
	}
	if s.apply(shapeCompound, w, end) {
		return end
	}
	s.scanParts(w)
	return end
}

// findEmailEnd returns the end of the e-mail address at the start of w, or 0.
func findEmailEnd(w string) int {
	at := strings.IndexByte(w, '@')
	dot := strings.IndexByte(w[at:], '.')
	if dot < 2 || strings.ContainsAny(w[:at], `/\:`) {
		return 0
	}
	return runLength(w, at+1, func(c byte) bool { return isWord(c) || c == '.' || c == '-' })
}

// scanName reads a word without digits.
func (s *scanner) scanName(w string, end int) int {
	if strings.IndexByte(w, '-') > 0 && runLength(w, 0, func(c byte) bool { return isUpper(c) || c == '-' }) == len(w) &&
		!s.set.isEverydayWord(w) && s.apply(shapeCapitals, w, end) {
		return end
	}
	if s.before[0]&s.set.entity != 0 && s.set.isMachineName(w) && s.apply(shapeCompound, w, end) {
		return end
	}
	if strings.IndexByte(w, '-') > 0 && !strings.ContainsAny(w, ".:@/") && !s.set.isEverydayWord(w) && s.apply(shapeSlug, w, end) {
		return end
	}
	if len(w) >= 16 && strings.IndexByte(w, '-') > 0 && isScrambled(strings.NewReplacer("-", "", "_", "").Replace(w)) &&
		s.apply(shapeRandom, w, end) {
		return end
	}
	if dot := strings.LastIndexByte(w, '.'); dot > 0 && byteAtOrZero(s.s, end) != '.' {
		if r := s.match(shapeLastPart, end); r != nil {
			s.out = append(s.out, w[:dot+1]...)
			s.applyRule(r, w[dot+1:])
			return end
		}
	}
	s.scanParts(w)
	return end
}

// isEverydayWord reports whether a hyphenated word contains a common word, as in re-submission.
func (set *ruleSet) isEverydayWord(w string) bool {
	for part := range strings.SplitSeq(w, "-") {
		if set.wordBits(part)&(set.plain|set.filler) != 0 {
			return true
		}
	}
	return false
}

// isCoded reads a code such as 40P01, ORA-00060, AADSTS70011, P2002 or v1.2.3. It returns false if
// w is not a code.
func (s *scanner) isCoded(w string, end int) bool {
	n := len(w)
	head := runLength(w, 0, isLetter)
	tail := head
	if byteAtOrZero(w, tail) == '-' || byteAtOrZero(w, tail) == '_' {
		tail++
	}
	allDigits := tail < n && runLength(w, tail, isDigit) == n
	switch {
	case allDigits && head > 0 && isUpper(w[0]) && n-tail <= 7 && s.set.wordBits(w[:head])&s.set.glued != 0 &&
		s.apply(shapePrefixed, w, end):
		return true
	case head == tail && allDigits && head <= 2 && n-head >= 3 && n-head <= 5 && isUpper(w[0]) &&
		s.apply(shapeLettered, w, end):
		return true
	case n == 5 && isSQLState(w) && s.apply(shapeSQLState, w, end):
		return true
	case isVersion(w) && s.apply(shapeVersion, w, end):
		return true
	case w[0] == 'P' && isISODuration(w) && s.apply(shapeDuration, w, end):
		return true
	}
	return false
}

// isISODuration reports whether w is a duration such as PT30S.
func isISODuration(w string) bool {
	return runLength(w, 0, func(c byte) bool { return isDigit(c) || strings.IndexByte("PTDHMSW.-", c) >= 0 }) == len(w) &&
		hasDigit(w) && !isDigit(w[len(w)-1])
}

// isSQLState reports whether five characters can be a SQLSTATE that contains a letter.
func isSQLState(w string) bool {
	digits := 0
	for i := 0; i < len(w); i++ {
		if isDigit(w[i]) {
			digits++
		} else if !isUpper(w[i]) {
			return false
		}
	}
	return digits >= 2
}

// isVersion reports whether w is a version such as v2, v1beta1, v1.2 or 1.2.3.
func isVersion(w string) bool {
	i := 0
	if w[0]|0x20 == 'v' {
		i = 1
	} else if strings.Count(w, ".") < 2 {
		return false
	}
	groups := 0
	for {
		end := runLength(w, i, isDigit)
		if end == i || end-i > 4 {
			return false
		}
		groups++
		if end == len(w) {
			return groups < 5
		}
		if w[end] != '.' {
			rest := w[end:]
			return strings.HasPrefix(rest, "beta") || strings.HasPrefix(rest, "alpha") || strings.HasPrefix(rest, "rc") ||
				strings.HasPrefix(rest, "-")
		}
		i = end + 1
	}
}

// scanParts reads the parts of a compound word separately.
func (s *scanner) scanParts(w string) {
	for i := 0; i < len(w); {
		if class[w[i]] == 0 || w[i] == '_' {
			s.out = append(s.out, w[i])
			i++
			continue
		}
		if end := s.set.findMachineNameEnd(w, i); end > 0 && s.apply(shapeRandom, w[i:end], 0) {
			i = end
			continue
		}
		i = s.scanPart(w, i, findPartEnd(w, i))
	}
	s.sep, s.key = 0, 0
}

// scanPart reads the part of w from i to end and returns the start of the next one.
func (s *scanner) scanPart(w string, i, end int) int {
	p := w[i:end]
	digits := runLength(p, 0, isDigit)
	letters := runLength(p, 0, isLetter)
	switch {
	case i > 0 && w[i-1] == '@' && len(p) >= 5 && runLength(p, 0, isHex) == len(p) && s.apply(shapeHex, p, 0): // an object's address
	case digits == len(p):
		s.applyOr(shapePart, p, 0)
	case letters < len(p) && strings.ContainsFunc(p, func(r rune) bool { return r >= utf8.RuneSelf }) && hasDigit(p):
		if k := strings.IndexAny(p, "0123456789"); k > 0 && runLength(p, k, isDigit) == len(p) { // Größe17
			s.emit(p[:k], s.set.wordBits(p[:k]))
			s.applyOr(shapePart, p[k:], 0)
		} else {
			s.applyOr(shapeRandom, p, 0)
		}
	case letters == 5 && len(p) == 5 && i > 0 && w[i-1] == '-' && hasDigit(w[:i]) && !strings.ContainsAny(p, "aeiouAEIOU") &&
		s.apply(shapeRandom, p, 0): // the suffix of a pod
	case letters == len(p) || p[0] >= 0x80:
		if len(p) >= 8 && runLength(p, 0, isHex) == len(p) && s.apply(shapeHex, p, 0) ||
			len(p) >= 7 && len(w) > len(p) && isScrambled(p) && s.apply(shapeRandom, p, 0) {
			return s.skipValue(w, end)
		}
		s.emit(p, s.set.innerBits(p))
	case s.set.isRandomPart(p):
		if s.apply(shapeRandom, p, 0) {
			return s.skipValue(w, end)
		}
		s.keep(p)
	case letters > 0 && runLength(p, letters, isDigit) == len(p) && s.set.wordBits(p)&s.set.wordy == 0 &&
		(len(p)-letters > 2 || s.set.wordBits(p[:letters])&(s.set.entity|s.set.numbered) != 0 ||
			letters == 1 && isUpper(p[0]) && len(w) > len(p)):
		s.emit(p[:letters], s.set.wordBits(p[:letters]))
		s.applyOr(shapePart, p[letters:], 0)
	case digits > 0 && s.set.wordBits(p)&s.set.wordy == 0:
		s.applyOr(shapeMixed, p, 0)
	default:
		s.emit(p, s.set.wordBits(p))
	}
	return end
}

// skipValue returns the end of an id that consists of several parts, one of which is
// machine-generated.
func (s *scanner) skipValue(w string, end int) int {
	for end < len(w) && (w[end] == '-' || w[end] == '_') {
		stop := findPartEnd(w, end+1)
		p := w[end+1 : stop]
		if len(p) >= 4 && runLength(p, 0, isLetter) == len(p) && isPronounceable(p) && !isScrambled(p) {
			break
		}
		end = stop
	}
	return end
}

// isBlob reports whether the text from i to end is encoded data, such as Base64.
func (s *scanner) isBlob(i, end int) bool {
	w := s.s[i:end]
	if len(w) < 20 || strings.Contains(w, "//") {
		return false
	}
	var digits, upper, lower, changes int
	for k := range len(w) {
		switch c := class[w[k]]; {
		case c == classDigit:
			digits++
		case c == classUpper:
			upper++
		case c == classLower:
			lower++
		case strings.IndexByte("+/-", w[k]) < 0:
			return false
		}
		if k > 0 && class[w[k]] != class[w[k-1]] {
			changes++
		}
	}
	return digits > 0 && upper > 1 && lower > 1 && changes*3 >= len(w)
}

func findBlobEnd(s string, i int) int {
	return runLength(s, i, func(c byte) bool {
		return isWord(c) && c < 0x80 || c == '+' || c == '/' || c == '=' ||
			c == '-'
	})
}

// findValueEnd returns the end of the value after a key that names an id, as in RequestID:
// AB12/cd+e=. It returns 0 if there is no such key.
func (s *scanner) findValueEnd(i, end int) int {
	if s.gap == '=' {
		return end
	}
	if s.gap != ':' || s.before[0] == 0 {
		return 0
	}
	return max(end, findBlobEnd(s.s, i))
}

// findMachineNameEnd returns the end of the parts from i on, joined by - and _, that form one
// machine-generated id, or 0. The first part must contain a digit or alternate between upper and
// lower case, and a later part must be random.
func (set *ruleSet) findMachineNameEnd(w string, i int) int {
	end, random := i, false
	for part, k := 0, i; ; part++ {
		k = findPartEnd(w, k)
		p := w[end:k]
		if part == 0 && (!hasDigit(p) && !isScrambled(p) || runLength(p, 0, isDigit) == len(p)) {
			return 0
		}
		random = random || part > 0 && set.isRandomPart(p)
		end = k
		if k >= len(w) || w[k] != '-' && w[k] != '_' {
			break
		}
		k++
		end = k
	}
	if !random {
		return 0
	}
	return end
}

// isBase62 reports whether p, in a place where an id is expected, is a machine-generated id: at
// least ten letters and digits in mixed case, with a digit or many changes of case.
func isBase62(p string) bool {
	return len(p) >= 10 && runLength(p, 0, func(c byte) bool { return isLetter(c) || isDigit(c) }) == len(p) &&
		p != strings.ToLower(p) && p != strings.ToUpper(p) && (hasDigit(p) || isScrambled(p))
}

// isOwnID reports whether w is an id that begins with the kind of the object, such as order-4711,
// SKU-00871 or INV-2026-17. At the start of a text, a word such as PAY-1002: may be an error code
// instead.
func (set *ruleSet) isOwnID(w string, first bool, after byte) bool {
	head := runLength(w, 0, isLetter)
	if head == 0 || head+1 >= len(w) || w[head] != '-' && w[head] != '_' {
		return false
	}
	bits := set.wordBits(w[:head])
	kind := bits&set.entity != 0
	if bits&(set.glued|set.wordy|set.standards) != 0 ||
		!kind && (head > 5 || !isAllUpper(w[:head]) && head > 1 || !isUpper(w[0])) {
		return false
	}
	if (bits|set.words[w[:head]])&(set.prefixes|set.entity) != 0 && isBase62(w[head+1:]) {
		return true
	}
	digits := 0
	for i := head + 1; i < len(w); {
		end := runLength(w, i, isWord)
		p := w[i:end]
		if runLength(p, 0, isLetter) == len(p) && len(p) > 2 || end < len(w) && strings.IndexByte("-_/", w[end]) < 0 {
			return false
		}
		digits += runLength(p, 0, isDigit)
		i = end + 1
	}
	if digits == 0 {
		return false
	}
	code := !kind && head > 1 && digits <= 4 && first && (after == ':' || after == ']') && strings.Count(w, "-") == 1
	return !code
}
