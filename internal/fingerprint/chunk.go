package fingerprint

import "strings"

// chunk reads letters, digits and the marks that join them: a name, a host, a path, an id.
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
	if colon := strings.LastIndexByte(w, ':'); colon > 0 && colon+1 < len(w) && run(w, colon+1, isDigit) == len(w) {
		return s.host(i, i+colon, end)
	}
	if dot := strings.LastIndexByte(w, '.'); dot > 0 && s.set.bits(w[dot+1:])&s.set.files != 0 && s.before[0]&s.set.entity == 0 && s.dataFile(w, end) {
		return end
	}
	if classes&classDigit == 0 {
		return s.name(w, end)
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

// emailEnd returns the end of an address of e-mail that w begins with, or 0.
func emailEnd(w string) int {
	at := strings.IndexByte(w, '@')
	dot := strings.IndexByte(w[at:], '.')
	if dot < 2 || strings.ContainsAny(w[:at], `/\:`) {
		return 0
	}
	k := run(w, at+1, func(c byte) bool { return isWord(c) || c == '.' || c == '-' })
	return k
}

// name reads a name of words without digits.
func (s *scanner) name(w string, end int) int {
	if s.before[0]&s.set.entity != 0 && s.set.machine(w) && s.apply(shapeCompound, w, end) {
		return end
	}
	if strings.IndexByte(w, '-') > 0 && !strings.ContainsAny(w, ".:@/") && !s.set.everyday(w) && s.apply(shapeSlug, w, end) {
		return end
	}
	if len(w) >= 16 && strings.IndexByte(w, '-') > 0 && scrambled(strings.NewReplacer("-", "", "_", "").Replace(w)) && s.apply(shapeRandom, w, end) {
		return end
	}
	s.parts(w)
	return end
}

// everyday reports whether a word with a hyphen is of plain language, such as re-submission.
func (set *ruleSet) everyday(w string) bool {
	for part := range strings.SplitSeq(w, "-") {
		if set.bits(part)&(set.plain|set.filler) != 0 {
			return true
		}
	}
	return false
}

// coded reads codes: 40P01, ORA-00060, AADSTS70011, P2002, v1.2.3.
func (s *scanner) coded(w string, end int) bool {
	n := len(w)
	head := run(w, 0, isLetter)
	tail := head
	if byteAt(w, tail) == '-' || byteAt(w, tail) == '_' {
		tail++
	}
	allDigits := tail < n && run(w, tail, isDigit) == n
	switch {
	case allDigits && head > 0 && n-tail <= 7 && s.set.bits(w[:head])&s.set.glued != 0 && s.apply(shapePrefixed, w, end):
		return true
	case head == tail && allDigits && head <= 2 && n-head >= 3 && n-head <= 5 && isUpper(w[0]) && s.apply(shapeLettered, w, end):
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
	return run(w, 0, func(c byte) bool { return isDigit(c) || strings.IndexByte("PTDHMSW.-", c) >= 0 }) == len(w) && strings.ContainsAny(w, "0123456789") &&
		!isDigit(w[len(w)-1])
}

// sqlState reports whether five characters may be a SQLSTATE with a letter.
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

// isVersion reports whether w is v2, v1beta1, v1.2 or 1.2.3.
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
			return strings.HasPrefix(rest, "beta") || strings.HasPrefix(rest, "alpha") || strings.HasPrefix(rest, "rc") || strings.HasPrefix(rest, "-")
		}
		i = end + 1
	}
}

// parts reads the parts of a compound by themselves.
func (s *scanner) parts(w string) {
	for i := 0; i < len(w); {
		if class[w[i]] == 0 || w[i] == '_' {
			s.out = append(s.out, w[i])
			i++
			continue
		}
		end := i
		for end < len(w) && class[w[end]] != 0 && w[end] != '_' {
			end++
		}
		i = s.part(w, i, end)
	}
	s.sep, s.key = 0, 0
}

// part reads the part of w from i to end and returns where the next one begins.
func (s *scanner) part(w string, i, end int) int {
	p := w[i:end]
	digits := run(p, 0, isDigit)
	letters := run(p, 0, isLetter)
	switch {
	case digits == len(p):
		s.applyOr(shapePart, p, 0)
	case letters == len(p) || p[0] >= 0x80:
		if len(p) >= 8 && run(p, 0, isHex) == len(p) && s.apply(shapeHex, p, 0) || len(p) >= 7 && len(w) > len(p) && scrambled(p) && s.apply(shapeRandom, p, 0) {
			return s.swallow(w, end)
		}
		s.out = append(s.out, p...)
		s.push(s.set.inner(p))
	case s.set.randomPart(p):
		if s.apply(shapeRandom, p, 0) {
			return s.swallow(w, end)
		}
		s.keep(p)
	case letters > 0 && run(p, letters, isDigit) == len(p) && len(p)-letters > 3 && s.set.bits(p)&s.set.wordy == 0:
		s.out = append(s.out, p[:letters]...)
		s.push(s.set.bits(p[:letters]))
		s.applyOr(shapePart, p[letters:], 0)
	case digits > 0 && s.set.bits(p)&s.set.wordy == 0:
		s.applyOr(shapeMixed, p, 0)
	default:
		s.out = append(s.out, p...)
		s.push(s.set.bits(p))
	}
	return end
}

// swallow returns the end of an id of several parts, of which one was made by a machine.
func (s *scanner) swallow(w string, end int) int {
	for end < len(w) && (w[end] == '-' || w[end] == '_') {
		next := end + 1
		stop := next
		for stop < len(w) && class[w[stop]] != 0 && w[stop] != '_' {
			stop++
		}
		p := w[next:stop]
		if len(p) >= 4 && run(p, 0, isLetter) == len(p) && pronounceable(p) && !scrambled(p) {
			break
		}
		end = stop
	}
	return end
}

// isBlob reports whether what is at i is text that a machine encoded, such as Base64.
func (s *scanner) isBlob(i, end int) bool {
	w := s.s[i:end]
	if len(w) < 20 || strings.Contains(w, "//") {
		return false
	}
	var digits, upper, lower, changes int
	for k := 0; k < len(w); k++ {
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

// valueEnd returns the end of a value that is set to a name that says that it is an id, or
// 0: RequestID: AB12/cd+e=.
func (s *scanner) valueEnd(i, end int) int {
	if s.gap == '=' {
		return end
	}
	if s.gap != ':' || s.before[0] == 0 {
		return 0
	}
	if k := blobEnd(s.s, i); k > end {
		return k
	}
	return end
}
