package payload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"
)

// scanner parses one document. After a fault, it continues if the structure is still clear;
// otherwise it stops.
type scanner struct {
	text      string
	at        int
	stopped   bool
	limits    Limits
	faults    []tasker.Fault
	maxFaults int // further faults are ignored
	keys      int
	values    int
	size      int // bytes read so far, in the notation of PostgreSQL
	path      []place
	keyAt     int // position of the last key
}

// place is one element of a path: a key, or an index in a list.
type place struct {
	key    string
	index  int
	inList bool
}

// scanValue reads a value, including all nested values.
func (s *scanner) scanValue() bool {
	kind := s.kind()
	switch {
	case kind == Object:
		return s.scanObject(func(string) bool { return s.scanValue() })
	case kind == Array:
		return s.scanArray(func(int) bool { return s.scanValue() })
	case !s.countValue():
		return false
	case kind == String:
		_, ok := s.scanString()
		return ok
	case kind == Number:
		return s.scanNumber()
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(s.text[s.at:], word) {
			s.at += len(word)
			s.size += len(word)
			return true
		}
	}
	return s.failUnexpected("invalid start of a JSON value")
}

// countValue counts the next value. It returns false if there is none or the limit is exceeded.
func (s *scanner) countValue() bool {
	if s.at == len(s.text) {
		return s.failUnexpected("a JSON value is missing")
	}
	if s.values++; s.values > s.limits.Values {
		return s.stop(s.at, fmt.Sprintf("the document has more than %d values", s.limits.Values))
	}
	return true
}

// enter counts an object or array and reads its opening bracket.
func (s *scanner) enter() bool {
	if !s.countValue() {
		return false
	}
	if len(s.path) == s.limits.Depth {
		return s.stop(s.at, fmt.Sprintf("nested more than %d levels deep", s.limits.Depth))
	}
	s.at++
	s.size += len("{}")
	return true
}

// scanObject reads an object and calls member for each value.
func (s *scanner) scanObject(member func(key string) bool) bool {
	if !s.enter() {
		return false
	}
	if s.skipSpace(); s.takeByte('}') {
		return true
	}
	var names names
	for {
		s.keyAt = s.at
		if s.at == len(s.text) || s.text[s.at] != '"' {
			return s.failUnexpected("a key in double quotes is missing")
		}
		key, ok := s.scanString()
		if !ok {
			return false
		}
		s.path = append(s.path, place{key: key})
		if s.keys++; s.keys > s.limits.Keys {
			return s.stop(s.keyAt, fmt.Sprintf("the document has more than %d keys", s.limits.Keys))
		}
		if !names.add(key) {
			s.addFault(s.keyAt, "duplicate key")
		}
		if s.skipSpace(); !s.takeByte(':') {
			return s.failUnexpected("a colon is missing after the key")
		}
		s.size += len(": ")
		if s.skipSpace(); !member(key) {
			return false
		}
		s.skipSpace()
		last := s.takeByte('}')
		if !last && !s.takeByte(',') {
			return s.failUnexpected("a comma or the end of the object is missing")
		}
		s.path = s.path[:len(s.path)-1]
		if last {
			return true
		}
		s.size += len(", ")
		s.skipSpace()
	}
}

// manyNames is the number of names from which a map is faster than a linear search.
const manyNames = 16

// names is the set of keys of one object.
type names struct {
	few   [manyNames]string
	count int // of the few
	many  map[string]struct{}
}

// add adds a name and reports whether it is new.
func (n *names) add(name string) bool {
	if n.many == nil {
		if slices.Contains(n.few[:n.count], name) {
			return false
		}
		n.few[n.count] = name
		if n.count++; n.count == manyNames {
			n.many = make(map[string]struct{}, 2*manyNames)
			for _, name := range n.few {
				n.many[name] = struct{}{}
			}
		}
		return true
	}
	before := len(n.many)
	n.many[name] = struct{}{}
	return len(n.many) > before
}

// scanArray reads an array and calls element for each value.
func (s *scanner) scanArray(element func(i int) bool) bool {
	if !s.enter() {
		return false
	}
	if s.skipSpace(); s.takeByte(']') {
		return true
	}
	s.path = append(s.path, place{inList: true})
	for i := 0; ; i++ {
		if !element(i) {
			return false
		}
		if s.skipSpace(); s.takeByte(']') {
			break
		}
		if !s.takeByte(',') {
			return s.failUnexpected("a comma or the end of the array is missing")
		}
		s.size += len(", ")
		s.skipSpace()
		s.path[len(s.path)-1].index++
	}
	s.path = s.path[:len(s.path)-1]
	return true
}

func (s *scanner) skipSpace() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) takeByte(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// addFault records a fault at a position unless enough faults are recorded.
func (s *scanner) addFault(at int, message string) {
	if len(s.faults) >= s.maxFaults {
		return
	}
	before := s.text[:at]
	lineStart := strings.LastIndexByte(before, '\n') + 1
	s.faults = append(s.faults, tasker.Fault{
		Line:    strings.Count(before, "\n") + 1,
		Column:  utf8.RuneCountInString(before[lineStart:]) + 1,
		Path:    formatPath(s.path),
		Message: message,
	})
}

func (s *scanner) stop(at int, message string) bool {
	if !s.stopped {
		s.addFault(at, message)
	}
	s.stopped = true
	return false
}

func (s *scanner) failUnexpected(message string) bool {
	if s.at == len(s.text) {
		return s.stop(s.at, message+"; the document ends here")
	}
	r, _ := utf8.DecodeRuneInString(s.text[s.at:])
	return s.stop(s.at, message+": "+strconv.QuoteRune(r))
}

// indexInvalid returns the position of the first invalid UTF-8 byte, or -1.
func indexInvalid(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i, r := range s {
		if r != utf8.RuneError {
			continue
		}
		if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
			return i
		}
	}
	return -1
}

const (
	keyShown  = 64  // bytes of a key in a path
	pathShown = 400 // bytes of a path
)

// formatPath formats a path as items[3].name. It quotes unusual keys, so that a path is always one
// line.
func formatPath(path []place) string {
	var b strings.Builder
	for _, p := range path {
		switch {
		case b.Len() > pathShown:
			return b.String() + "…"
		case p.inList:
			fmt.Fprintf(&b, "[%d]", p.index)
		case !isPlainKey(p.key):
			fmt.Fprintf(&b, "[%q]", CleanText(p.key, keyShown))
		case b.Len() > 0:
			b.WriteString("." + p.key)
		default:
			b.WriteString(p.key)
		}
	}
	return b.String()
}

func isPlainKey(key string) bool {
	for i := range len(key) {
		c := key[i]
		if c != '_' && c != '-' && !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return key != "" && len(key) <= keyShown
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
