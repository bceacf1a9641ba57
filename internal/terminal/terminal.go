// Package terminal removes terminal control sequences, such as colors, from texts.
package terminal

import (
	"strings"
	"unicode/utf8"
)

// maxParameters limits the parameters of a control sequence, so that a sequence without an end
// removes little text.
const maxParameters = 64

// Plain returns s without terminal escape sequences (ECMA-48): control sequences, titles, links
// and other strings, and escapes of two bytes, also in their 8-bit forms. If a string does not end
// on the same line, only its introducer is removed. Other control characters remain. Plain takes
// linear time.
func Plain(s string) string {
	var b strings.Builder
	start := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf && s[i] != 0x1b {
			i++
			continue
		}
		c, size := parseControl(s[i:])
		if c == 0 {
			i += size
			continue
		}
		b.WriteString(s[start:i])
		i += size
		i += argumentLength(c, s[i:])
		start = i
	}
	if start == 0 {
		return s
	}
	b.WriteString(s[start:])
	return b.String()
}

// parseControl returns the control function at the beginning of s, as the byte after ESC, and its
// length. The byte is 0 if s begins with another character. The 8-bit form is a UTF-8 character or
// an invalid byte.
func parseControl(s string) (c byte, size int) {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == 0x1b && len(s) > 1 && s[1] >= ' ' && (s[1] < '`' || strings.IndexByte("`cno|}~", s[1]) >= 0): // no others are used
		return s[1], 2
	case r >= 0x80 && r <= 0x9f:
		return byte(r) - 0x40, size
	case r == utf8.RuneError && size == 1 && s[0] <= 0x9f:
		return s[0] - 0x40, size
	}
	return 0, size
}

// argumentLength returns the length of the argument of control function c, which is at the
// beginning of s.
func argumentLength(c byte, s string) int {
	switch {
	case c == '[':
		return findFinal(s, '@')
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
		return findStringEnd(s)
	case c < '0': // such as ESC ( B
		return findFinal(s, '0')
	}
	return 0
}

// findFinal returns the length of the parameters at the beginning of s, including the final byte,
// which is at least least. If the final byte is missing, it returns the length of the parameters,
// or 0 if there are too many.
func findFinal(s string, least byte) int {
	i := 0
	for i < len(s) && s[i] >= ' ' && s[i] < least {
		if i++; i > maxParameters {
			return 0
		}
	}
	if i < len(s) && s[i] >= least && s[i] <= '~' {
		i++
	}
	return i
}

// findStringEnd returns the length of a string including its end, BEL or ST, or 0 if it has no end.
// Another control character ends the search, so that a text with many introducers takes linear
// time.
func findStringEnd(s string) int {
	for i := 0; i < len(s); {
		switch c, size := parseControl(s[i:]); {
		case s[i] == 0x07:
			return i + 1
		case c == '\\':
			return i + size
		case c != 0 || s[i] < ' ' && s[i] != '\t':
			return 0
		default:
			i += size
		}
	}
	return 0
}
