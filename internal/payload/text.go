package payload

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckText describes what is wrong with a short text such as a name, or returns "". An empty text
// is valid; a text that contains only invisible characters is not.
func CheckText(s string, limit int) string {
	switch {
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return "contains NUL or is not valid UTF-8"
	case s != "" && IsBlank(s):
		return "is blank: omit it, or add a visible character"
	case utf8.RuneCountInString(s) > limit:
		return fmt.Sprintf("has %d characters; the limit is %d", utf8.RuneCountInString(s), limit)
	}
	return ""
}

// IsBlank reports whether a text has no visible characters.
func IsBlank(s string) bool { return !strings.ContainsFunc(s, isVisible) }

func isVisible(r rune) bool {
	return unicode.IsGraphic(r) && !unicode.IsSpace(r) &&
		!unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
