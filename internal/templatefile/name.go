package templatefile

import (
	"regexp"
	"strings"
)

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	shortVersion = regexp.MustCompile(`^v?\d+(\.\d+)?$`)
)

// isName reports whether a key needs no quotes in the path of a fault.
func isName(s string) bool { return namePattern.MatchString(s) }

// notAVersion notes why a value is not a semantic version.
func (v value) notAVersion() {
	version, s := documentSchema.Properties["version"], v.node.Value
	switch {
	case isNumber(v.node):
		v.fault("must be a semantic version such as 1.0.0, and %s is read as a number; write it in quotes with all three parts: %s",
			quote(s), complete(s))
	case isText(v.node) && shortVersion.MatchString(s):
		v.fault("must be a semantic version with all three parts, such as %s", complete(s))
	case isText(v.node) && version.Pattern.MatchString(strings.TrimPrefix(s, "v")):
		v.fault("must be a semantic version of at most %d characters without a leading v", *version.MaxLength)
	default:
		v.wrong("a semantic version such as 1.0.0")
	}
}

// complete returns the version that a short one probably means, in quotes.
func complete(s string) string {
	if !shortVersion.MatchString(s) {
		return `"1.0.0"`
	}
	s = strings.TrimPrefix(s, "v")
	for strings.Count(s, ".") < 2 {
		s += ".0"
	}
	return `"` + s + `"`
}
