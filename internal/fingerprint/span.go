package fingerprint

import "strings"

// timeEnd returns the end of a timestamp, a date or a time of day at i, or 0.
func timeEnd(set *ruleSet, s string, i int) int {
	end, certain, dated := 0, false, false
	for k, items := i, 0; items < 10; items++ {
		next, kind := timeItem(set, s, k, items > 0, dated)
		if next == 0 {
			break
		}
		switch kind {
		case 'd', 'c':
			certain = true
			dated = dated || kind == 'd'
		case 'm':
			dated = true
		case 'n':
			certain = certain || dated
		}
		end = next
		k = timeGap(s, next)
	}
	if i > 0 && s[i-1] == '[' && byteAt(s, end) == ']' && end-i <= 6 { // line and column
		return 0
	}
	if !certain || end < len(s) && isWord(s[end]) {
		return 0
	}
	return end
}

// timeGap returns the position where the next part of a timestamp may begin.
func timeGap(s string, i int) int {
	switch byteAt(s, i) {
	case 'T', '-', '/', ':':
		if i+1 < len(s) && (isDigit(s[i+1]) || isUpper(s[i+1]) && s[i] != 'T') {
			return i + 1
		}
	case ',':
		if byteAt(s, i+1) == ' ' {
			return i + 2
		}
	case ' ':
		return run(s, i, func(c byte) bool { return c == ' ' })
	}
	return i
}

// timeItem returns the end and the kind of the part of a timestamp at i. The kinds are d for a
// date, c for a time of day, m for a month, w for a weekday, n for a day or a year, and z for a
// time zone.
func timeItem(set *ruleSet, s string, i int, later, dated bool) (int, byte) {
	c := byteAt(s, i)
	switch {
	case isDigit(c):
		if end := dateEnd(s, i); end > 0 {
			return end, 'd'
		}
		if end := clockEnd(s, i); end > 0 {
			return end, 'c'
		}
		end := run(s, i, isDigit)
		if end-i <= 2 && isMonth(set, s, end) || later && dated && (end-i <= 2 || end-i == 4) && !isWord(byteAt(s, end)) {
			return end, 'n'
		}
	case isUpper(c):
		end := run(s, i, isLetter)
		bits := set.bits(s[i:end])
		switch {
		case bits&set.months != 0:
			return end, 'm'
		case bits&set.days != 0:
			return end, 'w'
		case later && bits&set.zones != 0:
			return end, 'z'
		}
	case later && (c == '+' || c == '-') && isDigit(byteAt(s, i+1)) && isDigit(byteAt(s, i+2)):
		end := run(s, i+1, func(c byte) bool { return isDigit(c) || c == ':' })
		if end-i <= 6 && i > 0 && (isDigit(s[i-1]) || s[i-1] == ' ') {
			return end, 'z'
		}
	}
	return 0, 0
}

// isMonth reports whether a month follows the number that ends at i.
func isMonth(set *ruleSet, s string, i int) bool {
	if c := byteAt(s, i); c != ' ' && c != '-' && c != '/' {
		return false
	}
	return isUpper(byteAt(s, i+1)) && set.bits(s[i+1:run(s, i+1, isLetter)])&set.months != 0
}

// dateEnd returns the end of a date at i such as 2026-11-22, 22.11.2026 or 20261122T101500Z.
func dateEnd(s string, i int) int {
	a := run(s, i, isDigit)
	sep := byteAt(s, a)
	if a-i == 8 && (sep == 'T' || sep == '-') && run(s, a+1, isDigit)-a-1 == 6 {
		end := run(s, a+1, isDigit)
		if byteAt(s, end) == 'Z' {
			end++
		}
		return end
	}
	if a-i != 4 && a-i > 2 || sep != '-' && sep != '/' && sep != '.' {
		return 0
	}
	b := run(s, a+1, isDigit)
	if b == a+1 || b > a+3 || byteAt(s, b) != sep {
		return 0
	}
	end := run(s, b+1, isDigit)
	switch {
	case a-i == 4 && (end-b == 3 || end-b == 2) && (s[i] == '1' || s[i] == '2'):
	case a-i <= 2 && end-b == 5 && (s[b+1] == '1' || s[b+1] == '2'):
	default:
		return 0
	}
	if c := byteAt(s, end); c == '.' && isDigit(byteAt(s, end+1)) {
		return 0
	}
	return end
}

// clockEnd returns the end of a time of day at i such as 10:15 or 10:15:00.123Z.
func clockEnd(s string, i int) int {
	a := run(s, i, isDigit)
	if a-i > 2 || byteAt(s, a) != ':' || run(s, a+1, isDigit) != a+3 {
		return 0
	}
	end := a + 3
	if byteAt(s, end) == ':' && run(s, end+1, isDigit) == end+3 {
		end += 3
	}
	if c := byteAt(s, end); (c == '.' || c == ',') && isDigit(byteAt(s, end+1)) {
		end = run(s, end+1, isDigit)
	}
	if byteAt(s, end) == 'Z' {
		end++
	}
	if c := byteAt(s, end); c == ':' && isDigit(byteAt(s, end+1)) {
		return 0
	}
	return end
}

// durationEnd returns the end of a duration at i such as 1m3.5s, 30000ms or 30 seconds, or 0.
func durationEnd(set *ruleSet, s string, i int) int {
	end := 0
	for k := i + signs(s, i); isDigit(byteAt(s, k)); {
		number := run(s, k, func(c byte) bool { return isDigit(c) || c == '.' || c == ',' })
		if !isDigit(s[number-1]) {
			return end
		}
		start := number
		if byteAt(s, start) == ' ' || byteAt(s, start) == '-' {
			start++
		}
		if byteAt(s, start) == joint {
			start++
		}
		stop := run(s, start, func(c byte) bool { return isLetter(c) || c >= 0x80 })
		bits := set.bits(s[start:stop])
		if b, size := set.prefixBits(s[start:stop]); size > 0 {
			bits, stop = b, start+size
		}
		if bits&set.units == 0 {
			return end
		}
		if start > number && stop-start == 1 && s[start] != 's' {
			return end
		}
		if c := byteAt(s, stop); isDigit(c) && start == number {
			end, k = 0, stop
			continue
		} else if c == '_' {
			return 0
		}
		end = stop
		k = stop
		if start > number || byteAt(s, stop) == ' ' {
			k = durationGap(s, stop)
		}
	}
	return end
}

// durationGap returns the position where the next part of a duration may begin, as in 1 minute, 3
// seconds.
func durationGap(s string, i int) int {
	for _, gap := range []string{", ", " and ", " "} {
		if strings.HasPrefix(s[i:], gap) {
			return i + len(gap)
		}
	}
	return i
}

// sizeEnd returns the end of a size whose number ends at i, or 0.
func sizeEnd(set *ruleSet, s string, i int) int {
	start := i
	if byteAt(s, i) == ' ' {
		start++
	}
	stop := run(s, start, isLetter)
	if stop == start || set.bits(s[start:stop])&set.sizes == 0 || isWord(byteAt(s, stop)) {
		return 0
	}
	if start > i && stop-start == 1 && s[start] != 'B' {
		return 0
	}
	return stop
}
