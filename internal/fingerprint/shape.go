package fingerprint

import "strings"

// shape classifies a piece of a message by its form.
type shape int

const (
	shapeUUID shape = iota
	shapeTime
	shapeEmail
	shapeIP
	shapeLocal
	shapeEndpoint
	shapeEndpointHigh
	shapePort
	shapePortHigh
	shapeDuration
	shapeSize
	shapeMoney
	shapePercent
	shapePointer
	shapeResult
	shapeStatus
	shapeCode
	shapeLong
	shapeDecimal
	shapeVersion
	shapeSQLState
	shapePrefixed
	shapeLettered
	shapeSMTP
	shapeCompound
	shapeSlug
	shapeTitle
	shapeCompany
	shapeWord
	shapeHex
	shapeRandom
	shapePart
	shapeNamed
	shapeMixed
	shapeSegment
	shapeSlugSegment
	shapeQuery
	shapeTemp
	shapeFile
	shapeSubject
	shapeArgument
	shapeQuotedEmpty
	shapeRest
	shapeQuotedPath
	shapeSubjectID
	shapeQuotedFile
	shapeQuotedRefused
	shapeLastPart
	shapeLibrary
	shapeQuotedLiteral
	shapeOwnID
	shapeCapitals
	shapeBareName
	shapeHome
	shapeEscaped
	shapeSQLStateNumber
	shapePair
	shapeQuotedName
	shapeQuotedData
	shapeQuotedTitle
	shapeQuotedText
	shapeMember
	shapeTuple
	shapeData
	shapeProcess
	shapeBlob
	shapeVendor
	shapeRound
	shapes
)

// shapeNames contains the names of the shapes in rules.toml and in the documentation.
var shapeNames = [shapes]string{
	shapeUUID: "uuid", shapeTime: "time", shapeEmail: "email", shapeIP: "ip", shapeLocal: "local-endpoint",
	shapeEndpoint: "endpoint", shapeEndpointHigh: "client-endpoint", shapePort: "port", shapePortHigh: "high-port",
	shapeDuration: "duration", shapeSize: "size", shapeMoney: "money", shapePercent: "percent", shapePointer: "pointer",
	shapeResult: "result-code", shapeStatus: "status", shapeCode: "code", shapeLong: "long-number", shapeDecimal: "decimal",
	shapeVersion: "version", shapeSQLState: "sqlstate", shapePrefixed: "prefixed-code", shapeLettered: "lettered-code",
	shapeSMTP: "smtp-code", shapeCompound: "compound", shapeSlug: "slug", shapeTitle: "title", shapeCompany: "company", shapeWord: "word",
	shapeHex: "hex", shapeRandom: "random", shapePart: "part", shapeNamed: "named-part", shapeMixed: "mixed-part",
	shapeSegment: "segment", shapeSlugSegment: "slug-segment", shapeQuery: "query", shapeTemp: "temporary-file",
	shapeFile: "data-file", shapeSubject: "subject", shapeArgument: "argument", shapeQuotedEmpty: "quoted-empty",
	shapeRest: "rest", shapeQuotedPath: "quoted-path", shapeSubjectID: "subject-id", shapeQuotedFile: "quoted-file",
	shapeQuotedRefused: "quoted-refused", shapeLastPart: "last-part", shapeLibrary: "library-code",
	shapeQuotedLiteral: "quoted-literal", shapeOwnID: "own-id", shapeCapitals: "capitals", shapeBareName: "bare-name",
	shapeHome: "home-segment", shapeEscaped: "escaped", shapeSQLStateNumber: "sqlstate-number", shapePair: "pair-value",
	shapeQuotedName: "quoted-name", shapeQuotedData: "quoted-data",
	shapeQuotedTitle: "quoted-title", shapeQuotedText: "quoted-text", shapeMember: "member", shapeTuple: "tuple", shapeData: "data",
	shapeProcess: "process", shapeBlob: "blob", shapeVendor: "vendor-code", shapeRound: "round-number",
}

// labels contains all placeholders that occur in patterns.
var labels = map[string]bool{
	"<id>": true, "<n>": true, "<val>": true, "<time>": true, "<email>": true, "<ip>": true, "<port>": true, "<dur>": true, "<size>": true,
	"<money>": true, "<ptr>": true, "<tmp>": true, "<data>": true, "<addr>": true, "<name>": true,
}

const classDigit, classLower, classUpper, classHigh = 1, 2, 4, 8

// class classifies each byte that can be part of a word. It is 0 for other bytes.
var class = func() (t [256]uint8) {
	for c := range 256 {
		switch {
		case c >= '0' && c <= '9':
			t[c] = classDigit
		case c >= 'a' && c <= 'z' || c == '_':
			t[c] = classLower
		case c >= 'A' && c <= 'Z':
			t[c] = classUpper
		case c >= 0x80:
			t[c] = classHigh
		}
	}
	return t
}()

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isWord(c byte) bool  { return class[c] != 0 }
func isHex(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// byteAtOrZero returns the byte of s at i, or 0 if i is out of range.
func byteAtOrZero(s string, i int) byte {
	if i >= 0 && i < len(s) {
		return s[i]
	}
	return 0
}

// runLength returns the end of the longest sequence of bytes from i on that satisfy ok.
func runLength(s string, i int, ok func(byte) bool) int {
	for i < len(s) && ok(s[i]) {
		i++
	}
	return i
}

// lengthUntil returns the index of the first character of chars in s, or the length of s.
func lengthUntil(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// findPartEnd returns the end of the letters and digits from i on. An underscore is not one of
// them.
func findPartEnd(s string, i int) int {
	return runLength(s, i, func(c byte) bool { return class[c] != 0 && c != '_' })
}

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

// findUUIDEnd returns the end of a UUID at i, or 0.
func findUUIDEnd(s string, i int) int {
	if i+36 > len(s) || s[i+8] != '-' || s[i+13] != '-' || s[i+18] != '-' || s[i+23] != '-' {
		return 0
	}
	for k := range 36 {
		if c := s[i+k]; c != '-' && !isHex(c) || c == '-' && k != 8 && k != 13 && k != 18 && k != 23 {
			return 0
		}
	}
	end := i + 36
	if byteAtOrZero(s, end) == '_' { // a session of this id
		return runLength(s, end, isWord)
	}
	if isWord(byteAtOrZero(s, end)) {
		return 0
	}
	return end
}

// findPairsEnd returns the end of four or more colon-separated pairs of hexadecimal digits, as in a
// MAC address or a certificate fingerprint, or 0.
func findPairsEnd(s string, i int) int {
	pairs := 0
	for isHex(byteAtOrZero(s, i)) && isHex(byteAtOrZero(s, i+1)) && !isWord(byteAtOrZero(s, i+2)) {
		pairs++
		i += 2
		if c := byteAtOrZero(s, i); c != ':' || !isHex(byteAtOrZero(s, i+1)) {
			break
		}
		i++
	}
	if pairs < 4 || isWord(byteAtOrZero(s, i)) {
		return 0
	}
	return i
}

// findIPv4End returns the end of an IPv4 address at i, or 0.
func findIPv4End(s string, i int) int {
	for part := range 4 {
		end := runLength(s, i, isDigit)
		if end == i || end-i > 3 {
			return 0
		}
		i = end
		if part < 3 {
			if byteAtOrZero(s, i) != '.' {
				return 0
			}
			i++
		}
	}
	if c := byteAtOrZero(s, i); isWord(c) || c == '.' && isDigit(byteAtOrZero(s, i+1)) {
		return 0
	}
	return i
}

// findIPv6End returns the end of an IPv6 address at i, or 0.
func findIPv6End(s string, i int) int {
	start, groups, colons, double := i, 0, 0, false
	for i < len(s) && i-start < 46 {
		switch {
		case s[i] == ':':
			colons++
			double = double || byteAtOrZero(s, i+1) == ':'
			i++
		case isHex(s[i]):
			end := runLength(s, i, isHex)
			if end-i > 4 {
				return 0
			}
			groups++
			i = end
		case s[i] == '.' && colons > 0: // ::ffff:10.0.3.7
			i = runLength(s, i, func(c byte) bool { return isDigit(c) || c == '.' })
		default:
			goto done
		}
	}
done:
	if i > start && s[i-1] == ':' && !strings.HasSuffix(s[start:i], "::") {
		i--
		colons--
	}
	if colons < 2 || !double && colons != 7 || groups == 0 && i-start != 2 || isWord(byteAtOrZero(s, i)) {
		return 0
	}
	if byteAtOrZero(s, i) == '%' { // a zone
		i = runLength(s, i+1, isWord)
	}
	return i
}

// isRandomPart reports whether a sequence of letters and digits is machine-generated: letters and
// digits alternate, or upper and lower case alternate.
func (set *ruleSet) isRandomPart(p string) bool {
	if len(p) < 5 || len(p) > 512 {
		return len(p) > 512
	}
	var digits, changes, longest, letters, lower, upper, hexes int
	for i := range len(p) {
		c := p[i]
		if c >= 0x80 {
			return false
		}
		if isHex(c) {
			hexes++
		}
		if isDigit(c) {
			digits++
			letters = 0
		} else {
			letters++
			longest = max(longest, letters)
			if isUpper(c) {
				upper++
			} else {
				lower++
			}
		}
		if i > 0 && isDigit(c) != isDigit(p[i-1]) {
			changes++
		}
	}
	switch {
	case digits == 0 || digits == len(p) || set.wordBits(p)&set.wordy != 0:
		return false
	case hexes == len(p) && len(p) >= 6 && upper*lower == 0:
		return true
	case changes >= 4:
		return true
	case longest >= 4 && changes <= 3 && isPronounceable(p):
		return false
	case changes >= 2 && len(p) >= 6:
		return true
	case changes == 1 && isDigit(p[0]):
		return len(p) >= 6
	case changes >= 2:
		return longest <= 2 || !isPronounceable(p)
	}
	return digits == 1 && len(p) >= 7 && isScrambled(strings.TrimRight(p, "0123456789")) ||
		len(p) >= 7 && !isPronounceable(p) && lower > 0
}

// isScrambled reports whether letters change case more often than in camel-case words.
func isScrambled(p string) bool {
	humps := 0
	for i := range len(p) {
		if !isLetter(p[i]) {
			return false
		}
		if i == 0 || isUpper(p[i]) && (!isUpper(p[i-1]) || i+1 < len(p) && !isUpper(p[i+1])) {
			humps++
		}
	}
	return len(p) >= 7 && humps >= 3 && len(p)*10 <= humps*26
}

// isPronounceable reports whether the longest run of letters in p can be a word.
func isPronounceable(p string) bool {
	best, at := 0, 0
	for i := 0; i < len(p); {
		end := runLength(p, i, isLetter)
		if end-i > best {
			best, at = end-i, i
		}
		i = max(end, i+1)
	}
	word := p[at : at+best]
	vowels, consonants, longest, humps := 0, 0, 0, 0
	for i := range len(word) {
		if strings.IndexByte("aeiouyAEIOUY", word[i]) >= 0 {
			vowels++
			consonants = 0
		} else {
			consonants++
			longest = max(longest, consonants)
		}
		if i > 0 && isUpper(word[i]) && !isUpper(word[i-1]) {
			humps++
		}
	}
	return vowels > 0 && longest <= 4 && vowels*5 >= len(word) && humps*3 <= len(word)
}
