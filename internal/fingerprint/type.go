package fingerprint

import "strings"

// anonymous lists generic error types. They are ignored, because they depend only on how the error
// was wrapped.
var anonymous = map[string]bool{
	"*errors.errorString": true, "*errors.joinError": true, "*fmt.wrapError": true, "*fmt.wrapErrors": true,
	"errors.errorString": true, "error": true,
}

// normalizeType removes addresses and the compiler-generated numbers of lambdas and closures from
// the type of an error. It returns "" for a generic type.
func normalizeType(t string) string {
	t = strings.TrimSpace(toPrintable(t[:min(len(t), maxMask*4)]))
	if inner, ok := strings.CutPrefix(t, "<class '"); ok {
		t = strings.TrimSuffix(inner, "'>")
	}
	if anonymous[t] {
		return ""
	}
	for _, mark := range []string{"$$Lambda", "@"} {
		if i := strings.Index(t, mark); i > 0 {
			t = t[:i]
		}
	}
	var b strings.Builder
	for i := 0; i < len(t); {
		end, marked := runLength(t, i, isDigit), i > 0 && strings.IndexByte("$`_", t[i-1]) >= 0
		switch {
		case end == i:
			b.WriteByte(t[i])
			i++
		case marked && (end == len(t) || !isWord(t[end])):
			i = end // the number of a closure
		case end-i > 4:
			b.WriteString("<n>")
			i = end
		default:
			b.WriteString(t[i:end])
			i = end
		}
	}
	return b.String()
}
