package fingerprint

import "strings"

// findTimeEnd returns the end of a timestamp, a date or a time of day at i, or 0.
func findTimeEnd(set *ruleSet, s string, i int) int {
	end, certain, dated := 0, false, false
	for k, items := i, 0; items < 10; items++ {
		next, kind := parseTimeItem(set, s, k, items > 0, dated)
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
		k = skipTimeGap(s, next)
	}
	if i > 0 && s[i-1] == '[' && byteAtOrZero(s, end) == ']' && end-i <= 6 { // line and column
		return 0
	}
	if !certain || end < len(s) && isWord(s[end]) {
		return 0
	}
	return end
}

// skipTimeGap returns the position where the next part of a timestamp may begin.
func skipTimeGap(s string, i int) int {
	switch byteAtOrZero(s, i) {
	case 'T', '-', '/', ':':
		if i+1 < len(s) && (isDigit(s[i+1]) || isUpper(s[i+1]) && s[i] != 'T') {
			return i + 1
		}
	case ',':
		if byteAtOrZero(s, i+1) == ' ' {
			return i + 2
		}
	case ' ':
		return runLength(s, i, func(c byte) bool { return c == ' ' })
	}
	return i
}

// parseTimeItem returns the end and the kind of the part of a timestamp at i. The kinds are d for a
// date, c for a time of day, m for a month, w for a weekday, n for a day or a year, and z for a
// time zone.
func parseTimeItem(set *ruleSet, s string, i int, later, dated bool) (int, byte) {
	c := byteAtOrZero(s, i)
	switch {
	case isDigit(c):
		if end := findDateEnd(s, i); end > 0 {
			return end, 'd'
		}
		if end := findClockEnd(s, i); end > 0 {
			return end, 'c'
		}
		end := runLength(s, i, isDigit)
		if end-i <= 2 && isMonth(set, s, end) || later && dated && (end-i <= 2 || end-i == 4) &&
			!isWord(byteAtOrZero(s, end)) {
			return end, 'n'
		}
	case isUpper(c):
		end := runLength(s, i, isLetter)
		bits := set.wordBits(s[i:end])
		switch {
		case bits&set.months != 0:
			return end, 'm'
		case bits&set.days != 0:
			return end, 'w'
		case later && bits&set.zones != 0:
			return end, 'z'
		}
	case later && (c == '+' || c == '-') && isDigit(byteAtOrZero(s, i+1)) && isDigit(byteAtOrZero(s, i+2)):
		end := runLength(s, i+1, func(c byte) bool { return isDigit(c) || c == ':' })
		if end-i <= 6 && i > 0 && (isDigit(s[i-1]) || s[i-1] == ' ') {
			return end, 'z'
		}
	}
	return 0, 0
}

// isMonth reports whether a month follows the number that ends at i.
func isMonth(set *ruleSet, s string, i int) bool {
	if c := byteAtOrZero(s, i); c != ' ' && c != '-' && c != '/' {
		return false
	}
	return isUpper(byteAtOrZero(s, i+1)) && set.wordBits(s[i+1:runLength(s, i+1, isLetter)])&set.months != 0
}

// findDateEnd returns the end of a date at i such as 2026-11-22, 22.11.2026 or 20261122T101500Z.
func findDateEnd(s string, i int) int {
	a := runLength(s, i, isDigit)
	sep := byteAtOrZero(s, a)
	if a-i == 8 && (sep == 'T' || sep == '-') && runLength(s, a+1, isDigit)-a-1 == 6 {
		end := runLength(s, a+1, isDigit)
		if byteAtOrZero(s, end) == 'Z' {
			end++
		}
		return end
	}
	if a-i != 4 && a-i > 2 || sep != '-' && sep != '/' && sep != '.' {
		return 0
	}
	b := runLength(s, a+1, isDigit)
	if b == a+1 || b > a+3 || byteAtOrZero(s, b) != sep {
		return 0
	}
	end := runLength(s, b+1, isDigit)
	switch {
	case a-i == 4 && (end-b == 3 || end-b == 2) && (s[i] == '1' || s[i] == '2'):
	case a-i <= 2 && end-b == 5 && (s[b+1] == '1' || s[b+1] == '2'):
	default:
		return 0
	}
	if c := byteAtOrZero(s, end); c == '.' && isDigit(byteAtOrZero(s, end+1)) {
		return 0
	}
	return end
}

// findClockEnd returns the end of a time of day at i such as 10:15 or 10:15:00.123Z.
func findClockEnd(s string, i int) int {
	a := runLength(s, i, isDigit)
	if a-i > 2 || byteAtOrZero(s, a) != ':' || runLength(s, a+1, isDigit) != a+3 {
		return 0
	}
	end := a + 3
	if byteAtOrZero(s, end) == ':' && runLength(s, end+1, isDigit) == end+3 {
		end += 3
	}
	if c := byteAtOrZero(s, end); (c == '.' || c == ',') && isDigit(byteAtOrZero(s, end+1)) {
		end = runLength(s, end+1, isDigit)
	}
	if byteAtOrZero(s, end) == 'Z' {
		end++
	}
	if c := byteAtOrZero(s, end); c == ':' && isDigit(byteAtOrZero(s, end+1)) {
		return 0
	}
	return end
}

// findDurationEnd returns the end of a duration at i such as 1m3.5s, 30000ms or 30 seconds, or 0.
func findDurationEnd(set *ruleSet, s string, i int) int {
	end := 0
	for k := i + countSigns(s, i); isDigit(byteAtOrZero(s, k)); {
		number := runLength(s, k, func(c byte) bool { return isDigit(c) || c == '.' || c == ',' })
		if !isDigit(s[number-1]) {
			return end
		}
		start := number
		if byteAtOrZero(s, start) == ' ' || byteAtOrZero(s, start) == '-' {
			start++
		}
		if byteAtOrZero(s, start) == joint {
			start++
		}
		stop := runLength(s, start, func(c byte) bool { return isLetter(c) || c >= 0x80 })
		bits := set.wordBits(s[start:stop])
		if b, size := set.prefixBits(s[start:stop]); size > 0 {
			bits, stop = b, start+size
		}
		if bits&set.units == 0 {
			return end
		}
		if start > number && stop-start == 1 && s[start] != 's' {
			return end
		}
		if c := byteAtOrZero(s, stop); isDigit(c) && start == number {
			end, k = 0, stop
			continue
		} else if c == '_' {
			return 0
		}
		end = stop
		k = stop
		if start > number || byteAtOrZero(s, stop) == ' ' {
			k = skipDurationGap(s, stop)
		}
	}
	return end
}

// skipDurationGap returns the position where the next part of a duration may begin, as in 1 minute,
// 3 seconds.
func skipDurationGap(s string, i int) int {
	for _, gap := range []string{", ", " and ", " "} {
		if strings.HasPrefix(s[i:], gap) {
			return i + len(gap)
		}
	}
	return i
}

// findSizeEnd returns the end of a size whose number ends at i, or 0.
func findSizeEnd(set *ruleSet, s string, i int) int {
	start := i
	if byteAtOrZero(s, i) == ' ' {
		start++
	}
	stop := runLength(s, start, isLetter)
	if stop == start || set.wordBits(s[start:stop])&set.sizes == 0 || isWord(byteAtOrZero(s, stop)) {
		return 0
	}
	if start > i && stop-start == 1 && s[start] != 'B' {
		return 0
	}
	return stop
}
