package fingerprint

import "strings"

// findChunkEnd returns the end of the word at i, which consists of letters, digits and the
// punctuation that joins them. classes are the classes of its characters; marks reports whether it
// contains punctuation.
func findChunkEnd(s string, i int) (end int, classes uint8, marks bool) {
	for i < len(s) {
		if t := class[s[i]]; t != 0 {
			classes |= t
			i++
			continue
		}
		n := countJoins(s, i)
		if n == 0 {
			break
		}
		marks = true
		i += n
	}
	return i, classes, marks
}

// countJoins returns how many bytes of punctuation at i join two parts of a word, or 0 if they do
// not.
func countJoins(s string, i int) int {
	next := byteAtOrZero(s, i+1)
	switch s[i] {
	case '-', ':':
		if isWord(next) {
			return 1
		}
		if next == s[i] && isWord(byteAtOrZero(s, i+2)) {
			return 2
		}
	case '.', '@', '+', '$', '~', '%', '\\':
		if isWord(next) {
			return 1
		}
	case '/':
		if isWord(next) || next == '.' || next == '%' || next == '~' {
			return 1
		}
	}
	return 0
}

// scanLetters reads a token that begins with a letter.
func (s *scanner) scanLetters(i int) int {
	c := s.s[i]
	if end := s.scanRest(i); end > 0 {
		return end
	}
	if isHex(c) {
		if end := findUUIDEnd(s.s, i); end > 0 {
			s.applyOr(shapeUUID, s.s[i:end], end)
			return end
		}
		if end := findPairsEnd(s.s, i); end > 0 && s.apply(shapeHex, s.s[i:end], end) {
			return end
		}
		if end := findIPv6End(s.s, i); end > 0 {
			return s.scanAddress(i, end, end)
		}
	}
	end, classes, marks := findChunkEnd(s.s, i)
	if marks {
		end, classes, marks = s.splitKey(i, end, classes)
	}
	chunk := s.s[i:end]
	if !marks && classes&classDigit == 0 {
		return s.scanPlainWord(i, end)
	}
	if marks && strings.Contains(chunk, ":") {
		if k := strings.Index(s.s[i:min(len(s.s), end+3)], "://"); k > 0 {
			return s.scanURL(i, i+k)
		}
	}
	if isUpper(c) {
		if t := findTimeEnd(s.set, s.s, i); t > 0 && s.apply(shapeTime, s.s[i:t], t) {
			return t
		}
	}
	return s.scanChunk(i, end, classes)
}

// splitKey returns the end of a word. It ends the word at the colon if the first part describes
// the second, as in RequestId:8f3a or ipv4:10.0.3.7:443, but not as in redis:6379.
func (s *scanner) splitKey(i, end int, classes uint8) (int, uint8, bool) {
	k := runLength(s.s, i, func(c byte) bool { return isLetter(c) || c == '_' })
	if byteAtOrZero(s.s, k) == '4' || byteAtOrZero(s.s, k) == '6' { // ipv4:
		k++
	}
	if k >= end || s.s[k] != ':' || strings.HasPrefix(s.s[k:], "://") || byteAtOrZero(s.s, k+1) == ':' {
		return end, classes, true
	}
	w := s.s[i:k]
	entity := (s.set.wordBits(w)|s.set.innerBits(w))&s.set.entity != 0
	port := runLength(s.s, k+1, isDigit)
	service := port == end && port-k <= 6 && isAllLower(w) &&
		(w == "localhost" || s.set.words[s.s[k+1:port]]&s.set.ports != 0 || s.nearbyBits(2)&s.set.hostWord != 0)
	if !entity && (!isDigit(s.s[k+1]) || service) {
		return end, classes, true
	}
	if hasDigit(w) {
		return k, classLower | classDigit, false
	}
	return k, classLower, false
}

// scanRest reads a value that the text reports as rejected, such as abc in "invalid UUID string:
// abc".
func (s *scanner) scanRest(i int) int {
	if s.gap != ':' || !s.gapped || s.vendored ||
		s.before[0]&(s.set.value|s.set.entity) == 0 || s.nearbyBits(window)&s.set.refused == 0 {
		return 0
	}
	end := runLength(s.s, i, func(c byte) bool { return c > ' ' })
	for end > i && strings.IndexByte(".,;)]", s.s[end-1]) >= 0 {
		end--
	}
	if text := s.s[i:end]; !strings.ContainsAny(text, "[{(\"'") && !strings.HasSuffix(text, ":") &&
		s.set.wordBits(text)&s.set.plain == 0 && s.apply(shapeRest, text, end) {
		return end
	}
	return 0
}

// scanPlainWord reads a word that consists of letters.
func (s *scanner) scanPlainWord(i, end int) int {
	w := s.s[i:end]
	if byteAtOrZero(s.s, end) == ':' && strings.HasPrefix(s.s[end:], "://") {
		return s.scanURL(i, end)
	}
	bits := s.set.wordBits(w)
	if bits&(s.set.months|s.set.days) != 0 {
		if t := findTimeEnd(s.set, s.s, i); t > 0 && s.apply(shapeTime, s.s[i:t], t) {
			return t
		}
	}
	if bits&s.set.currency != 0 && isUpper(w[0]) {
		k := end
		if byteAtOrZero(s.s, k) == ' ' {
			k++
		}
		if isDigit(byteAtOrZero(s.s, k)) {
			return s.scanMoney(i, k)
		}
	}
	if s.key != 0 && s.apply(shapeMember, w, end) {
		return end
	}
	if (s.gap == '=' || s.gap == ':' && bits&s.set.plain == 0) && byteAtOrZero(s.s, end) != '(' {
		if k := max(s.findValueEnd(i, end), end); s.apply(shapeWord, s.s[i:k], k) {
			return k
		}
	}
	if s.before[0]&s.set.entity != 0 && len(w) >= 7 && s.set.isMachineName(w) && s.apply(shapeCompound, w, end) {
		return end
	}
	if s.matchPair(end) && s.apply(shapePair, w, end) {
		return end
	}
	if s.before[0]&s.set.owner != 0 && s.gap == 0 && s.scanOwnerName(w, bits, end) && s.apply(shapeBareName, w, end) {
		return end
	}
	if isUpper(w[0]) || w[0] >= 0x80 {
		if t := s.scanProperName(i, end); t > 0 {
			return t
		}
	}
	if len(w) >= 7 && bits == 0 {
		if len(w) >= 8 && runLength(w, 0, isHex) == len(w) && s.apply(shapeHex, w, end) {
			return end
		}
		if strings.Contains(w, "_") {
			s.scanParts(w)
			return end
		}
		if len(w) >= 10 && isScrambled(w) && s.apply(shapeRandom, w, end) {
			return end
		}
	}
	s.writeWord(w, bits)
	return end
}

// scanOwnerName reports whether a word after tenant, user and the like is a name: it is not a
// technical term, and the sentence continues or ends after it.
func (s *scanner) scanOwnerName(w string, bits wordSet, end int) bool {
	if isUpper(w[0]) || w[0] >= 0x80 || len(w) < 3 || (bits|s.set.innerBits(w))&(s.set.plain|s.set.common|s.set.named|s.set.entity|s.set.filler|s.set.told|s.set.weak) != 0 {
		return false
	}
	c := byteAtOrZero(s.s, end)
	if c == ' ' && isLetter(byteAtOrZero(s.s, end+1)) {
		return s.followingBits(end)&(s.set.plain|s.set.filler) != 0
	}
	return c == 0 || strings.IndexByte(":,;).\n", c) >= 0 && !isWord(byteAtOrZero(s.s, end+1)) || c == ' ' && byteAtOrZero(s.s, end+1) == '('
}

// matchPair reports whether the text that ends at end is the value in a sequence of key-value
// pairs, as in logs.
func (s *scanner) matchPair(end int) bool {
	if s.gap != '=' || s.pairs == 0 || byteAtOrZero(s.s, end) == '(' || byteAtOrZero(s.s, end) == '.' {
		return false
	}
	if s.pairs > 1 {
		return true
	}
	k := runLength(s.s, end, func(c byte) bool { return c == ',' || c == ' ' || c == ';' })
	next := runLength(s.s, k, func(c byte) bool { return isWord(c) || c == '.' || c == '-' })
	return next > k && k > end && byteAtOrZero(s.s, next) == '='
}

// innerBits returns the word sets of the last part of a compound word such as order_id or orderId.
// If that part is a filler, it adds those of the part before.
func (set *ruleSet) innerBits(w string) (bits wordSet) {
	end := len(w)
	for end > 0 {
		start := end
		for start > 0 && class[w[start-1]] != 0 && w[start-1] != '_' {
			start--
			if isUpper(w[start]) && start > 0 && !isUpper(w[start-1]) {
				break
			}
		}
		if start < end {
			b := set.wordBits(w[start:end])
			if b&set.filler == 0 {
				return (bits | b) &^ set.filler
			}
			bits |= b
		}
		if start == end {
			start--
		}
		end = start
	}
	return bits
}

// scanProperName replaces a capitalized name that begins with the word from i to end, such as Blue
// Door Ltd, with a placeholder.
func (s *scanner) scanProperName(i, end int) int {
	words, last, plain := 1, s.s[i:end], s.set.wordBits(s.s[i:end])&s.set.plain != 0 || isAllUpper(s.s[i:end])
	k := end
	for words < 8 {
		start := k
		if byteAtOrZero(s.s, start) != ' ' {
			break
		}
		start++
		if strings.HasPrefix(s.s[start:], "& ") {
			start += 2
		}
		if c := byteAtOrZero(s.s, start); !isUpper(c) && c < 0x80 {
			break
		}
		stop := start
		for stop < len(s.s) && class[s.s[stop]] != 0 && s.s[stop] != '_' || byteAtOrZero(s.s, stop) == '-' && isLetter(byteAtOrZero(s.s, stop+1)) {
			stop++
		}
		last = s.s[start:stop]
		plain = plain || s.set.wordBits(last)&s.set.plain != 0
		k = stop
		words++
	}
	company := words > 1 && s.set.wordBits(last)&s.set.legal != 0
	if (company || !plain) && s.apply(shapeTitle, s.s[i:k], k) || company && s.apply(shapeCompany, s.s[i:k], k) {
		return k
	}
	return 0
}

func isAllLower(w string) bool {
	return runLength(w, 0, func(c byte) bool { return c >= 'a' && c <= 'z' || isDigit(c) }) == len(w)
}

func isAllUpper(w string) bool {
	return len(w) > 1 && runLength(w, 0, func(c byte) bool { return isUpper(c) || c == '_' }) == len(w)
}

// scanDigits reads a token that begins with a digit, or with a sign and a digit.
func (s *scanner) scanDigits(i int) int {
	if end := s.scanRest(i); end > 0 {
		return end
	}
	if end := findUUIDEnd(s.s, i); end > 0 {
		s.applyOr(shapeUUID, s.s[i:end], end)
		return end
	}
	if end := findPairsEnd(s.s, i); end > 0 && s.apply(shapeHex, s.s[i:end], end) {
		return end
	}
	if end := findTimeEnd(s.set, s.s, i); end > 0 && s.apply(shapeTime, s.s[i:end], end) {
		return end
	}
	if end := findIPv4End(s.s, i); end > 0 {
		if byteAtOrZero(s.s, end) == '/' && isDigit(byteAtOrZero(s.s, end+1)) {
			end = runLength(s.s, end+1, isDigit)
		}
		return s.scanAddress(i, end, end)
	}
	if end := findIPv6End(s.s, i); end > 0 {
		return s.scanAddress(i, end, end)
	}
	if s.s[i] == '0' && (byteAtOrZero(s.s, i+1)|0x20) == 'x' {
		end := runLength(s.s, i+2, isHex)
		sh := shapePointer
		if c := byteAtOrZero(s.s, i+2); end-i == 10 && (c == '8' || c|0x20 == 'c' && i+3 < len(s.s) && s.s[i+3] == '0' && s.s[i+4] == '0') {
			sh = shapeResult
		}
		s.applyOr(sh, s.s[i:end], end)
		return end
	}
	if end := findDurationEnd(s.set, s.s, i); end > 0 && s.apply(shapeDuration, s.s[i:end], end) {
		return end
	}
	end := findNumberEnd(s.s, i)
	c := byteAtOrZero(s.s, end)
	if c == '.' && byteAtOrZero(s.s, end+1) == ' ' { // 512. MiB
		if k := findSizeEnd(s.set, s.s, end+1); k > 0 && s.apply(shapeSize, s.s[i:k], k) {
			return k
		}
	}
	if next := isWord(byteAtOrZero(s.s, end+1)); !isWord(c) && (!next || strings.IndexByte("-/:@+.", c) < 0) {
		return s.scanPlainNumber(i, end)
	}
	if k := findSizeEnd(s.set, s.s, end); k > 0 && s.apply(shapeSize, s.s[i:k], k) {
		return k
	}
	chunk, classes, _ := findChunkEnd(s.s, i+countSigns(s.s, i))
	return s.scanChunk(i, chunk, classes)
}

func countSigns(s string, i int) int {
	if s[i] == '-' || s[i] == '+' {
		return 1
	}
	return 0
}

// findNumberEnd returns the end of an integer or a decimal number, which may have digit groups.
func findNumberEnd(s string, i int) int {
	end := runLength(s, i+countSigns(s, i), isDigit)
	if dotted := findGroupsEnd(s, end); dotted > 0 {
		end = dotted
	}
	for c := byteAtOrZero(s, end); (c == ',' || c == '\'') &&
		runLength(s, end+1, isDigit) == end+4; c = byteAtOrZero(s, end) {
		end += 4
	}
	if c := byteAtOrZero(s, end); (c == '.' || c == ',') && isDigit(byteAtOrZero(s, end+1)) {
		end = runLength(s, end+1, isDigit)
	}
	if c := byteAtOrZero(s, end); c|0x20 == 'e' {
		k := end + 1
		if b := byteAtOrZero(s, k); b == '-' || b == '+' {
			k++
		}
		if isDigit(byteAtOrZero(s, k)) && !isWord(byteAtOrZero(s, runLength(s, k, isDigit))) {
			end = runLength(s, k, isDigit)
		}
	}
	return end
}

// findGroupsEnd returns the end of dot-separated groups of three digits, as in 1.234.567 or
// 1.234,50, or 0.
func findGroupsEnd(s string, i int) int {
	groups := 0
	for byteAtOrZero(s, i) == '.' && runLength(s, i+1, isDigit) == i+4 {
		i += 4
		groups++
	}
	if c := byteAtOrZero(s, i); groups > 1 && c != '.' || groups == 1 && c == ',' && isDigit(byteAtOrZero(s, i+1)) {
		return i
	}
	return 0
}

// scanPlainNumber reads a number that is not joined to a word.
func (s *scanner) scanPlainNumber(i, end int) int {
	text := s.s[i:end]
	c := byteAtOrZero(s.s, end)
	switch {
	case c == '%':
		if s.apply(shapePercent, s.s[i:end+1], end+1) {
			return end + 1
		}
	case strings.HasPrefix(s.s[end:], "€"), strings.HasPrefix(s.s[end:], " €"), strings.HasPrefix(s.s[end:], " £"):
		k := end + strings.IndexAny(s.s[end:], "€£") + 2
		k = min(len(s.s), runLength(s.s, k, func(c byte) bool { return c >= 0x80 && c < 0xc0 }))
		if s.apply(shapeMoney, s.s[i:k], k) {
			return k
		}
	case c == ' ' && isLetter(byteAtOrZero(s.s, end+1)):
		stop := runLength(s.s, end+1, isLetter)
		bits := s.set.wordBits(s.s[end+1 : stop])
		if bits&s.set.currency != 0 && isUpper(s.s[end+1]) && !isWord(byteAtOrZero(s.s, stop)) && s.apply(shapeMoney, s.s[i:stop], stop) {
			return stop
		}
		if k := findSizeEnd(s.set, s.s, end); k > 0 && s.apply(shapeSize, s.s[i:k], k) {
			return k
		}
	}
	sh := classifyNumber(text)
	switch n := parseSmallNumber(text); {
	case sh == shapeCode && s.before[0]&(s.set.portWord|s.set.portNamed) != 0 && s.isEphemeralPort(text):
		sh = shapePortHigh
	case sh == shapeLong && n < 1<<30 && n&(n-1) == 0 && s.match(shapeRound, end) != nil:
		sh = shapeRound
	case (sh == shapeCode || sh == shapeStatus) && s.scanVendorCode(i, end) && s.match(shapeVendor, end) != nil:
		sh = shapeVendor
	}
	if len(text) == 5 && s.set.words[text]&s.set.sqlstates != 0 && s.match(shapeSQLStateNumber, end) != nil {
		sh = shapeSQLStateNumber
	}
	if sh == shapeStatus && isSMTPCode(s.s, end) {
		k := end
		if byteAtOrZero(s.s, end) == ',' {
			k += 4
		} else {
			k++
		}
		if isSMTPCode(s.s, k-1) || byteAtOrZero(s.s, k-1) == '\'' && k+5 <= len(s.s) && s.s[k+1] == '.' && isDigit(s.s[k]) {
			k += 5
		}
		if s.apply(shapeSMTP, s.s[i:k], k) {
			return k
		}
	}
	if s.key != 0 && s.apply(shapeMember, text, end) {
		return end
	}
	s.applyOr(sh, text, end)
	return end
}

// scanVendorCode reports whether a number is a database error code: it is next to a SQLSTATE, or is
// the first part of an error as Python prints it, such as (1062, "Duplicate entry").
func (s *scanner) scanVendorCode(i, end int) bool {
	if s.gap == '(' && (i == 1 || strings.HasSuffix(s.s[:i], ": (")) &&
		(strings.HasPrefix(s.s[end:], `, "`) || strings.HasPrefix(s.s[end:], ", '")) {
		return true
	}
	if s.gap == 0 && strings.HasSuffix(s.s[:i], "Msg ") && strings.HasPrefix(s.s[end:], ", Level ") { // SQL Server
		return true
	}
	return s.vendored && s.gap != 0 && strings.IndexByte(":([", s.gap) >= 0
}

// isSMTPCode reports whether an enhanced status code such as 5.1.1 follows.
func isSMTPCode(s string, end int) bool {
	if strings.HasPrefix(s[end:], ", b'") {
		return true
	}
	return end+6 <= len(s) && (s[end] == ' ' || s[end] == '-') && strings.IndexByte("245", s[end+1]) >= 0 &&
		s[end+2] == '.' && isDigit(s[end+3]) && s[end+4] == '.' && isDigit(s[end+5])
}

// classifyNumber returns the shape of a number.
func classifyNumber(text string) shape {
	digits := runLength(text, countSigns(text, 0), isDigit)
	switch {
	case digits < len(text):
		if strings.Count(text, ".") > 1 && findGroupsEnd(text, runLength(text, 0, isDigit)) == 0 {
			return shapeVersion
		}
		return shapeDecimal
	case digits == 3 && text[0] >= '1' && text[0] <= '5':
		return shapeStatus
	case digits <= 6:
		return shapeCode
	}
	return shapeLong
}

// scanMoney reads an amount of money whose currency begins at i and whose number begins at k.
func (s *scanner) scanMoney(i, k int) int {
	end := findNumberEnd(s.s, k)
	if isWord(byteAtOrZero(s.s, end)) {
		end = runLength(s.s, end, isWord)
	}
	s.applyOr(shapeMoney, s.s[i:end], end)
	return end
}
