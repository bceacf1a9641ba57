package fingerprint

import (
	"strings"
	"unicode/utf8"
)

// chunk reads a word: letters, digits and the punctuation between them, such as a path or an id.
func (s *scanner) chunk(i, end int, classes uint8) int {
	if s.s[i] == '-' || s.s[i] == '+' {
		s.punct(i, 1)
		i++
	}
	w := s.s[i:end]
	if strings.IndexByte(w, '@') > 0 {
		if k := emailEnd(w); k > 0 && s.apply(shapeEmail, w[:k], i+k) {
			return i + k
		}
	}
	if s.key != 0 && s.apply(shapeMember, w, end) {
		return end
	}
	if k := s.valueEnd(i, end); k > 0 && s.apply(shapeWord, s.s[i:k], k) {
		return k
	}
	if slash := strings.IndexAny(w, `/\`); slash >= 0 {
		if s.isBlob(i, end) {
			if k := blobEnd(s.s, i); s.apply(shapeBlob, s.s[i:k], k) {
				return k
			}
		}
		return s.path(i, end)
	}
	if classes&classDigit == 0 && !strings.Contains(w, ".") && s.pair(end) && s.apply(shapePair, w, end) {
		return end
	}
	if colon := strings.LastIndexByte(w, ':'); colon > 0 && colon+1 < len(w) && run(w, colon+1, isDigit) == len(w) {
		return s.host(i, i+colon, end)
	}
	if dot := strings.LastIndexByte(w, '.'); dot > 0 && s.set.bits(w[dot+1:])&s.set.files != 0 &&
		s.before[0]&s.set.entity == 0 && s.dataFile(w, end) {
		return end
	}
	if classes&classDigit == 0 {
		return s.name(w, end)
	}
	first := len(s.out) == 0 || s.out[len(s.out)-1] == '[' && len(s.out) < 3
	if s.set.ownID(w, first, byteAt(s.s, end)) && s.apply(shapeOwnID, w, end) {
		return end
	}
	if len(w) > 9 && w[8] == ':' && run(w, 0, isHex) == 8 && s.gap == ':' && s.apply(shapeLibrary, w[:8], i+8) {
		return i + 8
	}
	if s.coded(w, end) {
		return end
	}
	if len(w) >= 24 && s.isBlob(i, end) {
		if k := blobEnd(s.s, i); s.apply(shapeBlob, s.s[i:k], k) {
			return k
		}
	}
	if s.apply(shapeCompound, w, end) {
		return end
	}
	s.parts(w)
	return end
}

// emailEnd returns the end of the e-mail address at the start of w, or 0.
func emailEnd(w string) int {
	at := strings.IndexByte(w, '@')
	dot := strings.IndexByte(w[at:], '.')
	if dot < 2 || strings.ContainsAny(w[:at], `/\:`) {
		return 0
	}
	return run(w, at+1, func(c byte) bool { return isWord(c) || c == '.' || c == '-' })
}

// name reads a word without digits.
func (s *scanner) name(w string, end int) int {
	if strings.IndexByte(w, '-') > 0 && run(w, 0, func(c byte) bool { return isUpper(c) || c == '-' }) == len(w) &&
		!s.set.everyday(w) && s.apply(shapeCapitals, w, end) {
		return end
	}
	if s.before[0]&s.set.entity != 0 && s.set.machine(w) && s.apply(shapeCompound, w, end) {
		return end
	}
	if strings.IndexByte(w, '-') > 0 && !strings.ContainsAny(w, ".:@/") && !s.set.everyday(w) && s.apply(shapeSlug, w, end) {
		return end
	}
	if len(w) >= 16 && strings.IndexByte(w, '-') > 0 && scrambled(strings.NewReplacer("-", "", "_", "").Replace(w)) &&
		s.apply(shapeRandom, w, end) {
		return end
	}
	if dot := strings.LastIndexByte(w, '.'); dot > 0 && byteAt(s.s, end) != '.' {
		if r := s.match(shapeLastPart, end); r != nil {
			s.out = append(s.out, w[:dot+1]...)
			s.fire(r, w[dot+1:])
			return end
		}
	}
	s.parts(w)
	return end
}

// everyday reports whether a hyphenated word contains a common word, as in re-submission.
func (set *ruleSet) everyday(w string) bool {
	for part := range strings.SplitSeq(w, "-") {
		if set.bits(part)&(set.plain|set.filler) != 0 {
			return true
		}
	}
	return false
}

// coded reads a code such as 40P01, ORA-00060, AADSTS70011, P2002 or v1.2.3. It returns false if w
// is not a code.
func (s *scanner) coded(w string, end int) bool {
	n := len(w)
	head := run(w, 0, isLetter)
	tail := head
	if byteAt(w, tail) == '-' || byteAt(w, tail) == '_' {
		tail++
	}
	allDigits := tail < n && run(w, tail, isDigit) == n
	switch {
	case allDigits && head > 0 && isUpper(w[0]) && n-tail <= 7 && s.set.bits(w[:head])&s.set.glued != 0 &&
		s.apply(shapePrefixed, w, end):
		return true
	case head == tail && allDigits && head <= 2 && n-head >= 3 && n-head <= 5 && isUpper(w[0]) &&
		s.apply(shapeLettered, w, end):
		return true
	case n == 5 && sqlState(w) && s.apply(shapeSQLState, w, end):
		return true
	case isVersion(w) && s.apply(shapeVersion, w, end):
		return true
	case w[0] == 'P' && isoDuration(w) && s.apply(shapeDuration, w, end):
		return true
	}
	return false
}

// isoDuration reports whether w is a duration such as PT30S.
func isoDuration(w string) bool {
	return run(w, 0, func(c byte) bool { return isDigit(c) || strings.IndexByte("PTDHMSW.-", c) >= 0 }) == len(w) &&
		hasDigit(w) && !isDigit(w[len(w)-1])
}

// sqlState reports whether five characters can be a SQLSTATE that contains a letter.
func sqlState(w string) bool {
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
		end := run(w, i, isDigit)
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

// parts reads the parts of a compound word separately.
func (s *scanner) parts(w string) {
	for i := 0; i < len(w); {
		if class[w[i]] == 0 || w[i] == '_' {
			s.out = append(s.out, w[i])
			i++
			continue
		}
		if end := s.set.machineRun(w, i); end > 0 && s.apply(shapeRandom, w[i:end], 0) {
			i = end
			continue
		}
		i = s.part(w, i, partEnd(w, i))
	}
	s.sep, s.key = 0, 0
}

// part reads the part of w from i to end and returns the start of the next one.
func (s *scanner) part(w string, i, end int) int {
	p := w[i:end]
	digits := run(p, 0, isDigit)
	letters := run(p, 0, isLetter)
	switch {
	case i > 0 && w[i-1] == '@' && len(p) >= 5 && run(p, 0, isHex) == len(p) && s.apply(shapeHex, p, 0): // an object's address
	case digits == len(p):
		s.applyOr(shapePart, p, 0)
	case letters < len(p) && strings.ContainsFunc(p, func(r rune) bool { return r >= utf8.RuneSelf }) && hasDigit(p):
		if k := strings.IndexAny(p, "0123456789"); k > 0 && run(p, k, isDigit) == len(p) { // Größe17
			s.emit(p[:k], s.set.bits(p[:k]))
			s.applyOr(shapePart, p[k:], 0)
		} else {
			s.applyOr(shapeRandom, p, 0)
		}
	case letters == 5 && len(p) == 5 && i > 0 && w[i-1] == '-' && hasDigit(w[:i]) && !strings.ContainsAny(p, "aeiouAEIOU") &&
		s.apply(shapeRandom, p, 0): // the suffix of a pod
	case letters == len(p) || p[0] >= 0x80:
		if len(p) >= 8 && run(p, 0, isHex) == len(p) && s.apply(shapeHex, p, 0) ||
			len(p) >= 7 && len(w) > len(p) && scrambled(p) && s.apply(shapeRandom, p, 0) {
			return s.swallow(w, end)
		}
		s.emit(p, s.set.inner(p))
	case s.set.randomPart(p):
		if s.apply(shapeRandom, p, 0) {
			return s.swallow(w, end)
		}
		s.keep(p)
	case letters > 0 && run(p, letters, isDigit) == len(p) && s.set.bits(p)&s.set.wordy == 0 &&
		(len(p)-letters > 2 || s.set.bits(p[:letters])&(s.set.entity|s.set.numbered) != 0 ||
			letters == 1 && isUpper(p[0]) && len(w) > len(p)):
		s.emit(p[:letters], s.set.bits(p[:letters]))
		s.applyOr(shapePart, p[letters:], 0)
	case digits > 0 && s.set.bits(p)&s.set.wordy == 0:
		s.applyOr(shapeMixed, p, 0)
	default:
		s.emit(p, s.set.bits(p))
	}
	return end
}

// swallow returns the end of an id that consists of several parts, one of which is
// machine-generated.
func (s *scanner) swallow(w string, end int) int {
	for end < len(w) && (w[end] == '-' || w[end] == '_') {
		stop := partEnd(w, end+1)
		p := w[end+1 : stop]
		if len(p) >= 4 && run(p, 0, isLetter) == len(p) && pronounceable(p) && !scrambled(p) {
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

func blobEnd(s string, i int) int {
	return run(s, i, func(c byte) bool { return isWord(c) && c < 0x80 || c == '+' || c == '/' || c == '=' || c == '-' })
}

// valueEnd returns the end of the value after a key that names an id, as in RequestID: AB12/cd+e=.
// It returns 0 if there is no such key.
func (s *scanner) valueEnd(i, end int) int {
	if s.gap == '=' {
		return end
	}
	if s.gap != ':' || s.before[0] == 0 {
		return 0
	}
	return max(end, blobEnd(s.s, i))
}

// machineRun returns the end of the parts from i on, joined by - and _, that form one
// machine-generated id, or 0. The first part must contain a digit or alternate between upper and
// lower case, and a later part must be random.
func (set *ruleSet) machineRun(w string, i int) int {
	end, random := i, false
	for part, k := 0, i; ; part++ {
		k = partEnd(w, k)
		p := w[end:k]
		if part == 0 && (!hasDigit(p) && !scrambled(p) || run(p, 0, isDigit) == len(p)) {
			return 0
		}
		random = random || part > 0 && set.randomPart(p)
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

// base62 reports whether p, in a place where an id is expected, is a machine-generated id: at
// least ten letters and digits in mixed case, with a digit or many changes of case.
func base62(p string) bool {
	return len(p) >= 10 && run(p, 0, func(c byte) bool { return isLetter(c) || isDigit(c) }) == len(p) &&
		p != strings.ToLower(p) && p != strings.ToUpper(p) && (hasDigit(p) || scrambled(p))
}

// ownID reports whether w is an id that begins with the kind of the object, such as order-4711,
// SKU-00871 or INV-2026-17. At the start of a text, a word such as PAY-1002: may be an error code
// instead.
func (set *ruleSet) ownID(w string, first bool, after byte) bool {
	head := run(w, 0, isLetter)
	if head == 0 || head+1 >= len(w) || w[head] != '-' && w[head] != '_' {
		return false
	}
	bits := set.bits(w[:head])
	kind := bits&set.entity != 0
	if bits&(set.glued|set.wordy|set.standards) != 0 ||
		!kind && (head > 5 || !allUpper(w[:head]) && head > 1 || !isUpper(w[0])) {
		return false
	}
	if (bits|set.words[w[:head]])&(set.prefixes|set.entity) != 0 && base62(w[head+1:]) {
		return true
	}
	digits := 0
	for i := head + 1; i < len(w); {
		end := run(w, i, isWord)
		p := w[i:end]
		if run(p, 0, isLetter) == len(p) && len(p) > 2 || end < len(w) && strings.IndexByte("-_/", w[end]) < 0 {
			return false
		}
		digits += run(p, 0, isDigit)
		i = end + 1
	}
	if digits == 0 {
		return false
	}
	code := !kind && head > 1 && digits <= 4 && first && (after == ':' || after == ']') && strings.Count(w, "-") == 1
	return !code
}
