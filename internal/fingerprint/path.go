package fingerprint

import "strings"

// scanHost reads a host with a port, or a file with a line number.
func (s *scanner) scanHost(i, colon, end int) int {
	w := s.s[i:colon]
	if runLength(w, 0, isDigit) == len(w) { // line and column
		s.scanParts(s.s[i:end])
		return end
	}
	if findDurationEnd(s.set, s.s, colon+1) > end { // 5000 ms
		s.scanParts(w)
		return colon
	}
	if k := strings.IndexByte(w, ':'); k > 0 && runLength(w, k+1, isDigit) == len(w) ||
		s.set.wordBits(w[strings.LastIndexByte(w, '.')+1:])&(s.set.source|s.set.files) != 0 {
		if k < 0 {
			k = len(w)
		}
		if !s.scanDataFile(w[:k], i+k) {
			s.scanHostname(w[:k])
		}
		for k += i; k < end; { // lines and columns
			s.out = append(s.out, ':')
			stop := runLength(s.s, k+1, isDigit)
			s.applyOr(shapePart, s.s[k+1:stop], stop)
			k = stop
		}
		return end
	}
	s.scanHostname(w)
	s.out = append(s.out, ':')
	return s.scanPort(colon+1, end)
}

// scanHostname writes a host name. It keeps digits, as in db-1, unless they belong to an id.
func (s *scanner) scanHostname(w string) {
	for i, part := range strings.Split(w, ".") {
		if i > 0 {
			s.out = append(s.out, '.')
		}
		if s.set.isDynamic(part) {
			s.scanParts(part)
			continue
		}
		s.out = append(s.out, part...)
	}
	s.sep, s.key = 0, 0
	s.push(s.set.innerBits(w))
}

// isDynamic reports whether a label of a host name is machine-generated.
func (set *ruleSet) isDynamic(part string) bool {
	digits, longest, groups := 0, 0, 0
	for i := range len(part) {
		if !isDigit(part[i]) {
			digits = 0
			continue
		}
		if digits == 0 {
			groups++
		}
		digits++
		longest = max(longest, digits)
	}
	if longest == 0 {
		return false
	}
	if longest >= 4 || groups >= 4 {
		return true
	}
	for p := range strings.SplitSeq(part, "-") {
		if set.isRandomPart(p) {
			return true
		}
	}
	return false
}

// scanURL reads a URL; its scheme extends from i to colon.
func (s *scanner) scanURL(i, colon int) int {
	end := findURLEnd(s.s, colon+3)
	s.out = append(s.out, s.s[i:colon+3]...)
	k := colon + 3
	authority := k + lengthUntil(s.s[k:end], "/?#;")
	if at := strings.LastIndexByte(s.s[k:authority], '@'); at >= 0 {
		k += at + 1
	}
	s.scanAuthority(k, authority)
	s.before = [window]wordSet{}
	s.scanURLPath(authority, end)
	s.before = [window]wordSet{s.set.http} // a status may follow
	return end
}

// scanURLPath reads the path and the query of a URL, and returns the end of the query.
func (s *scanner) scanURLPath(i, end int) int {
	if byteAtOrZero(s.s, end) == '?' {
		end = findURLEnd(s.s, end)
	}
	path := i + lengthUntil(s.s[i:end], "?#;")
	for k := i; k < path; {
		s.out = append(s.out, '/')
		stop := k + 1 + lengthUntil(s.s[k+1:path], "/")
		s.scanSegment(s.s[k+1:stop], stop)
		k = stop
	}
	if path < end {
		s.out = append(s.out, s.s[path])
		if path+1 < end {
			s.applyOr(shapeQuery, s.s[path+1:end], end)
		}
	}
	s.sep, s.key = 0, 0
	return end
}

// findLabelEnd returns the length of the placeholder at i, or 0.
func findLabelEnd(s string, i int) int {
	if s[i] != '<' {
		return 0
	}
	end := runLength(s, i+1, func(c byte) bool { return c >= 'a' && c <= 'z' })
	if byteAtOrZero(s, end) == '>' && labels[s[i:end+1]] {
		return end + 1 - i
	}
	return 0
}

// findURLEnd returns the end of a URL, excluding punctuation of the surrounding sentence.
func findURLEnd(s string, i int) int {
	start, open := i, 0
	for i < len(s) && s[i] > ' ' && strings.IndexByte("\"'`>{}|\\^,", s[i]) < 0 {
		if n := findLabelEnd(s, i); n > 0 {
			i += n
			continue
		}
		if s[i] == '<' {
			break
		}
		if s[i] == '(' || s[i] == '[' {
			open++
		}
		if s[i] == ')' || s[i] == ']' {
			if open == 0 {
				break
			}
			open--
		}
		i++
	}
	for i > start && strings.IndexByte(".:;!?", s[i-1]) >= 0 {
		i--
	}
	return i
}

// scanAuthority reads the host and the port of a URL, or several hosts and ports, as for a cluster.
func (s *scanner) scanAuthority(i, end int) {
	if i >= end {
		return
	}
	if n := findLabelEnd(s.s, i); n > 0 {
		s.scanAngle(i)
		return
	}
	if s.s[i] == '[' {
		if k := findIPv6End(s.s[:end], i+1); k > 0 && byteAtOrZero(s.s, k) == ']' {
			s.scanAddress(i, k+1, k+1)
			return
		}
	}
	if k := findIPv4End(s.s[:end], i); k > 0 {
		s.scanAddress(i, k, k)
		return
	}
	colon := strings.IndexByte(s.s[i:end], ':')
	if colon < 0 || runLength(s.s, i+colon+1, isDigit) != end || i+colon+1 == end {
		s.scanHostname(s.s[i:end])
		return
	}
	s.scanHostname(s.s[i : i+colon])
	s.out = append(s.out, ':')
	s.scanPort(i+colon+1, end)
}

// scanSegment reads a segment of a URL path.
func (s *scanner) scanSegment(p string, end int) {
	if p == "" {
		return
	}
	if labels[p] {
		s.write(p)
		return
	}
	_, classes, _ := findChunkEnd(p, 0)
	digit := hasDigit(p)
	switch {
	case digit && !isVersion(p) && s.set.wordBits(p)&s.set.wordy == 0 && !s.set.isNamedPart(p), len(p) > 32,
		strings.ContainsAny(p, "%@+"), classes&classHigh != 0:
		s.applyOr(shapeSegment, p, end)
	case !digit && len(p) >= 7 && (isScrambled(p) || s.set.isMachineName(p)):
		s.applyOr(shapeSegment, p, end)
	case !digit && strings.IndexByte(p, '-') > 0 && !s.set.isEverydayWord(p) && s.apply(shapeSlugSegment, p, end):
	case !digit && strings.Count(p, "-") > 1 && !s.set.isEverydayWord(p) && s.apply(shapeSegment, p, end):
	default:
		s.emit(p, s.set.innerBits(p))
	}
}

// isNamedPart reports whether p is a word followed by a short number, such as oauth2.
func (set *ruleSet) isNamedPart(p string) bool {
	letters := runLength(p, 0, func(c byte) bool { return c >= 'a' && c <= 'z' })
	return letters > 1 && isPronounceable(p) && len(p)-letters <= 2 && runLength(p, letters, isDigit) == len(p)
}

var temporary = []string{"/tmp/", "/var/tmp/", "/var/folders/", "/private/var/folders/", "/private/tmp/", "/dev/shm/"}

// findPathStart reads a path that begins with punctuation: /data/in, ~/in, ./in, ../in.
func (s *scanner) findPathStart(i int) int {
	k := i
	for k < len(s.s) && k-i < 6 && (s.s[k] == '.' || s.s[k] == '/' || s.s[k] == '~') {
		k++
	}
	if k == i || s.s[k-1] != '/' || !isWord(byteAtOrZero(s.s, k)) || i > 0 && isWord(s.s[i-1]) {
		return 0
	}
	end, _, _ := findChunkEnd(s.s, k)
	return s.scanPath(i, end)
}

// scanPath reads a file path.
func (s *scanner) scanPath(i, end int) int {
	w := s.s[i:end]
	for _, prefix := range temporary {
		if strings.HasPrefix(w, prefix) && len(w) > len(prefix) && s.apply(shapeTemp, w, end) {
			return end
		}
	}
	if k := strings.Index(w, `\Temp\`); k > 0 && s.apply(shapeTemp, w, end) {
		return end
	}
	if w[0] == '/' && (s.before[0]&s.set.urlWord != 0 || byteAtOrZero(s.s, end) == '?') {
		return s.scanURLPath(i, end)
	}
	s.home = false
	for k := 0; k <= len(w); {
		stop := k + lengthUntil(w[k:], `/\`)
		if stop > k {
			s.scanFileSegment(w[k:stop], end)
		}
		if stop < len(w) {
			s.out = append(s.out, w[stop])
		}
		k = stop + 1
	}
	s.sep, s.key = 0, 0
	return end
}

// scanFileSegment reads a segment of a file path.
func (s *scanner) scanFileSegment(p string, end int) {
	if dot := strings.LastIndexByte(p, '.'); dot > 0 {
		name := p[dot+1:]
		line := strings.IndexByte(name, ':')
		if line >= 0 {
			name = name[:line]
		}
		if s.set.wordBits(name)&s.set.files != 0 && s.scanDataFile(p, end) {
			return
		}
		if s.set.wordBits(name)&s.set.source != 0 && !s.set.isDynamic(p[:dot]) {
			s.out = append(s.out, p[:dot+1+len(name)]...)
			s.push(0)
			if line >= 0 {
				s.scanParts(p[dot+1+len(name):])
			}
			return
		}
	}
	if s.home && s.apply(shapeHome, p, end) {
		s.home = false
		return
	}
	s.home = strings.EqualFold(p, "home") || p == "Users"
	if strings.Trim(p, "0123456789.") == "" && s.apply(shapePart, p, end) {
		return
	}
	if hasDigit(p) {
		if s.apply(shapeCompound, p, end) {
			return
		}
		if strings.IndexByte(p, '.') < 0 && !isVersion(p) && s.set.wordBits(p)&s.set.wordy == 0 && !s.set.isNamedPart(p) &&
			s.apply(shapeSegment, p, end) {
			return
		}
	} else if strings.IndexByte(p, '-') > 0 && !s.set.isEverydayWord(p) && s.apply(shapeSlugSegment, p, end) {
		return
	}
	s.scanParts(p)
}

// scanDataFile reads the name of a data file that contains digits. It keeps the leading word and
// the extension. It returns false if p is no such name.
func (s *scanner) scanDataFile(p string, end int) bool {
	dot := strings.IndexByte(p, '.')
	if dot <= 0 || !hasDigit(p[:dot]) && !s.set.isMachineName(p[:dot]) {
		return false
	}
	k := runLength(p, 0, isLetter)
	if c := byteAtOrZero(p, k); k < 4 || c != '-' && c != '_' || !isPronounceable(p[:k]) {
		k = 0
	} else {
		k++
	}
	r := s.match(shapeFile, end)
	if r == nil {
		return false
	}
	s.out = append(s.out, p[:k]...)
	s.applyRule(r, p[k:dot])
	s.out = append(s.out, p[dot:]...)
	return true
}
