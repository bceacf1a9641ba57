package fingerprint

import "strings"

// host reads a host with a port, or a file with a line number.
func (s *scanner) host(i, colon, end int) int {
	w := s.s[i:colon]
	if run(w, 0, isDigit) == len(w) { // line and column
		s.parts(s.s[i:end])
		return end
	}
	if durationEnd(s.set, s.s, colon+1) > end { // 5000 ms
		s.parts(w)
		return colon
	}
	if k := strings.IndexByte(w, ':'); k > 0 && run(w, k+1, isDigit) == len(w) ||
		s.set.bits(w[strings.LastIndexByte(w, '.')+1:])&(s.set.source|s.set.files) != 0 {
		if k < 0 {
			k = len(w)
		}
		if !s.dataFile(w[:k], i+k) {
			s.hostname(w[:k])
		}
		for k += i; k < end; { // lines and columns
			s.out = append(s.out, ':')
			stop := run(s.s, k+1, isDigit)
			s.applyOr(shapePart, s.s[k+1:stop], stop)
			k = stop
		}
		return end
	}
	s.hostname(w)
	s.out = append(s.out, ':')
	return s.port(colon+1, end)
}

// hostname writes a host name. It keeps digits, as in db-1, unless they belong to an id.
func (s *scanner) hostname(w string) {
	for i, part := range strings.Split(w, ".") {
		if i > 0 {
			s.out = append(s.out, '.')
		}
		if s.set.dynamic(part) {
			s.parts(part)
			continue
		}
		s.out = append(s.out, part...)
	}
	s.sep, s.key = 0, 0
	s.push(s.set.inner(w))
}

// dynamic reports whether a label of a host name is machine-generated.
func (set *ruleSet) dynamic(part string) bool {
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
		if set.randomPart(p) {
			return true
		}
	}
	return false
}

// url reads a URL; its scheme extends from i to colon.
func (s *scanner) url(i, colon int) int {
	end := urlEnd(s.s, colon+3)
	s.out = append(s.out, s.s[i:colon+3]...)
	k := colon + 3
	authority := k + until(s.s[k:end], "/?#;")
	if at := strings.LastIndexByte(s.s[k:authority], '@'); at >= 0 {
		k += at + 1
	}
	s.authority(k, authority)
	s.before = [window]wordSet{}
	s.urlPath(authority, end)
	s.before = [window]wordSet{s.set.http} // a status may follow
	return end
}

// urlPath reads the path and the query of a URL, and returns the end of the query.
func (s *scanner) urlPath(i, end int) int {
	if byteAt(s.s, end) == '?' {
		end = urlEnd(s.s, end)
	}
	path := i + until(s.s[i:end], "?#;")
	for k := i; k < path; {
		s.out = append(s.out, '/')
		stop := k + 1 + until(s.s[k+1:path], "/")
		s.segment(s.s[k+1:stop], stop)
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

// labelAt returns the length of the placeholder at i, or 0.
func labelAt(s string, i int) int {
	if s[i] != '<' {
		return 0
	}
	end := run(s, i+1, func(c byte) bool { return c >= 'a' && c <= 'z' })
	if byteAt(s, end) == '>' && labels[s[i:end+1]] {
		return end + 1 - i
	}
	return 0
}

// urlEnd returns the end of a URL, excluding punctuation of the surrounding sentence.
func urlEnd(s string, i int) int {
	start, open := i, 0
	for i < len(s) && s[i] > ' ' && strings.IndexByte("\"'`>{}|\\^,", s[i]) < 0 {
		if n := labelAt(s, i); n > 0 {
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

// authority reads the host and the port of a URL, or several hosts and ports, as for a cluster.
func (s *scanner) authority(i, end int) {
	if i >= end {
		return
	}
	if n := labelAt(s.s, i); n > 0 {
		s.angle(i)
		return
	}
	if s.s[i] == '[' {
		if k := ip6End(s.s[:end], i+1); k > 0 && byteAt(s.s, k) == ']' {
			s.address(i, k+1, k+1)
			return
		}
	}
	if k := ip4End(s.s[:end], i); k > 0 {
		s.address(i, k, k)
		return
	}
	colon := strings.IndexByte(s.s[i:end], ':')
	if colon < 0 || run(s.s, i+colon+1, isDigit) != end || i+colon+1 == end {
		s.hostname(s.s[i:end])
		return
	}
	s.hostname(s.s[i : i+colon])
	s.out = append(s.out, ':')
	s.port(i+colon+1, end)
}

// segment reads a segment of a URL path.
func (s *scanner) segment(p string, end int) {
	if p == "" {
		return
	}
	if labels[p] {
		s.write(p)
		return
	}
	_, classes, _ := chunkEnd(p, 0)
	digit := hasDigit(p)
	switch {
	case digit && !isVersion(p) && s.set.bits(p)&s.set.wordy == 0 && !s.set.namedPart(p), len(p) > 32,
		strings.ContainsAny(p, "%@+"), classes&classHigh != 0:
		s.applyOr(shapeSegment, p, end)
	case !digit && len(p) >= 7 && (scrambled(p) || s.set.machine(p)):
		s.applyOr(shapeSegment, p, end)
	case !digit && strings.IndexByte(p, '-') > 0 && !s.set.everyday(p) && s.apply(shapeSlugSegment, p, end):
	case !digit && strings.Count(p, "-") > 1 && !s.set.everyday(p) && s.apply(shapeSegment, p, end):
	default:
		s.emit(p, s.set.inner(p))
	}
}

// namedPart reports whether p is a word followed by a short number, such as oauth2.
func (set *ruleSet) namedPart(p string) bool {
	letters := run(p, 0, func(c byte) bool { return c >= 'a' && c <= 'z' })
	return letters > 1 && pronounceable(p) && len(p)-letters <= 2 && run(p, letters, isDigit) == len(p)
}

var temporary = []string{"/tmp/", "/var/tmp/", "/var/folders/", "/private/var/folders/", "/private/tmp/", "/dev/shm/"}

// pathStart reads a path that begins with punctuation: /data/in, ~/in, ./in, ../in.
func (s *scanner) pathStart(i int) int {
	k := i
	for k < len(s.s) && k-i < 6 && (s.s[k] == '.' || s.s[k] == '/' || s.s[k] == '~') {
		k++
	}
	if k == i || s.s[k-1] != '/' || !isWord(byteAt(s.s, k)) || i > 0 && isWord(s.s[i-1]) {
		return 0
	}
	end, _, _ := chunkEnd(s.s, k)
	return s.path(i, end)
}

// path reads a file path.
func (s *scanner) path(i, end int) int {
	w := s.s[i:end]
	for _, prefix := range temporary {
		if strings.HasPrefix(w, prefix) && len(w) > len(prefix) && s.apply(shapeTemp, w, end) {
			return end
		}
	}
	if k := strings.Index(w, `\Temp\`); k > 0 && s.apply(shapeTemp, w, end) {
		return end
	}
	if w[0] == '/' && (s.before[0]&s.set.urlWord != 0 || byteAt(s.s, end) == '?') {
		return s.urlPath(i, end)
	}
	s.home = false
	for k := 0; k <= len(w); {
		stop := k + until(w[k:], `/\`)
		if stop > k {
			s.fileSegment(w[k:stop], end)
		}
		if stop < len(w) {
			s.out = append(s.out, w[stop])
		}
		k = stop + 1
	}
	s.sep, s.key = 0, 0
	return end
}

// fileSegment reads a segment of a file path.
func (s *scanner) fileSegment(p string, end int) {
	if dot := strings.LastIndexByte(p, '.'); dot > 0 {
		name := p[dot+1:]
		line := strings.IndexByte(name, ':')
		if line >= 0 {
			name = name[:line]
		}
		if s.set.bits(name)&s.set.files != 0 && s.dataFile(p, end) {
			return
		}
		if s.set.bits(name)&s.set.source != 0 && !s.set.dynamic(p[:dot]) {
			s.out = append(s.out, p[:dot+1+len(name)]...)
			s.push(0)
			if line >= 0 {
				s.parts(p[dot+1+len(name):])
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
		if strings.IndexByte(p, '.') < 0 && !isVersion(p) && s.set.bits(p)&s.set.wordy == 0 && !s.set.namedPart(p) &&
			s.apply(shapeSegment, p, end) {
			return
		}
	} else if strings.IndexByte(p, '-') > 0 && !s.set.everyday(p) && s.apply(shapeSlugSegment, p, end) {
		return
	}
	s.parts(p)
}

// dataFile reads the name of a data file that contains digits. It keeps the leading word and the
// extension. It returns false if p is no such name.
func (s *scanner) dataFile(p string, end int) bool {
	dot := strings.IndexByte(p, '.')
	if dot <= 0 || !hasDigit(p[:dot]) && !s.set.machine(p[:dot]) {
		return false
	}
	k := run(p, 0, isLetter)
	if c := byteAt(p, k); k < 4 || c != '-' && c != '_' || !pronounceable(p[:k]) {
		k = 0
	} else {
		k++
	}
	r := s.match(shapeFile, end)
	if r == nil {
		return false
	}
	s.out = append(s.out, p[:k]...)
	s.fire(r, p[k:dot])
	s.out = append(s.out, p[dot:]...)
	return true
}
