package payload

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanString reads a string and returns it unescaped.
func (s *scanner) scanString() (string, bool) {
	begin := s.at
	s.at++
	s.size += len(`""`)
	from := s.at
	var b strings.Builder // empty before the first escape
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			text := s.text[from:s.at]
			s.size += len(text)
			if b.Len() > 0 {
				b.WriteString(text)
				text = b.String()
			}
			s.at++
			if len(text) > s.limits.StringBytes {
				s.addFault(begin, fmt.Sprintf("a string has %d bytes; the limit is %d", len(text), s.limits.StringBytes))
			}
			return text, true
		case c < 0x20:
			return "", s.stop(s.at, fmt.Sprintf("unescaped control character (0x%02x) in a string", c))
		case c == '\\':
			b.WriteString(s.text[from:s.at])
			s.size += s.at - from
			if !s.scanEscape(&b) {
				return "", false
			}
			from = s.at
		default:
			s.at++
		}
	}
	return "", s.stop(begin, "unterminated string")
}

const (
	escapes  = `"\/bfnrt`
	unescape = "\"\\/\b\f\n\r\t"
)

// scanEscape reads one escape sequence and appends the character that it represents.
func (s *scanner) scanEscape(b *strings.Builder) bool {
	begin := s.at
	s.at++
	if s.at == len(s.text) {
		return s.stop(begin, "unterminated string")
	}
	c := s.text[s.at]
	s.at++
	if i := strings.IndexByte(escapes, c); i >= 0 {
		b.WriteByte(unescape[i])
		s.size += encodedLength(rune(unescape[i]))
		return true
	}
	if c != 'u' {
		return s.stop(begin, "invalid escape sequence")
	}
	r, ok := s.scanHex4()
	if !ok {
		return s.stop(begin, `\u must be followed by four hexadecimal digits`)
	}
	switch {
	case r == 0:
		s.addFault(begin, `the string has a NUL (\u0000), which cannot be stored`)
	case utf16.IsSurrogate(r):
		r = s.scanSurrogatePair(begin, r)
	}
	b.WriteRune(r)
	s.size += encodedLength(r)
	return true
}

// encodedLength returns the number of bytes with which PostgreSQL encodes a character in JSON.
func encodedLength(r rune) int {
	switch {
	case strings.ContainsRune("\"\\\b\f\n\r\t", r):
		return len(`\n`)
	case r < 0x20:
		return len(`\u0000`)
	}
	return utf8.RuneLen(r)
}

// scanSurrogatePair reads the second half of a surrogate pair and returns the character, or the
// replacement character if the half is missing.
func (s *scanner) scanSurrogatePair(begin int, high rune) rune {
	if strings.HasPrefix(s.text[s.at:], `\u`) {
		back := s.at
		s.at += 2
		if low, ok := s.scanHex4(); ok {
			if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
				return r
			}
		}
		s.at = back
	}
	s.addFault(begin, "the string has half of a surrogate pair, which is not a character")
	return utf8.RuneError
}

func (s *scanner) scanHex4() (rune, bool) {
	if len(s.text)-s.at < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(s.text[s.at:s.at+4], 16, 32)
	if err != nil {
		return 0, false
	}
	s.at += 4
	return rune(n), true
}

// scanNumber reads a number and checks its syntax and length.
func (s *scanner) scanNumber() bool {
	begin := s.at
	s.takeByte('-')
	switch {
	case s.takeByte('0'):
		if s.at < len(s.text) && isDigit(s.text[s.at]) {
			return s.stop(begin, "a number must not have leading zeros")
		}
	case !s.scanDigits():
		return s.failUnexpected("a digit is missing")
	}
	if s.takeByte('.') && !s.scanDigits() {
		return s.failUnexpected("a digit is missing after the point")
	}
	if s.takeByte('e') || s.takeByte('E') {
		if !s.takeByte('+') {
			s.takeByte('-')
		}
		if !s.scanDigits() {
			return s.failUnexpected("a digit is missing in the exponent")
		}
	}
	text := s.text[begin:s.at]
	n := parseNumber(text)
	s.size += n.size()
	if fault := n.checkLimits(text, s.limits); fault != "" {
		s.addFault(begin, fault)
	}
	return true
}

func (s *scanner) scanDigits() bool {
	from := s.at
	for s.at < len(s.text) && isDigit(s.text[s.at]) {
		s.at++
	}
	return s.at > from
}
