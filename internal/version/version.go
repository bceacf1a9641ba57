// Package version compares worker versions.
package version

import (
	"strings"

	"golang.org/x/mod/semver"
)

// Valid reports whether a version is a semantic version, such as 1.6.0 or v1.6. Other versions
// cannot be compared.
func Valid(version string) bool { return semver.IsValid(toCanonical(version)) }

// Older reports whether version is older than than. It returns false if they cannot be compared.
func Older(version, than string) bool {
	return Valid(version) && Valid(than) && semver.Compare(toCanonical(version), toCanonical(than)) < 0
}

// AtLeast reports whether version equals least or is newer. If they cannot be compared, it returns
// true only if they are equal.
func AtLeast(version, least string) bool {
	return version == least || Valid(version) && Valid(least) &&
		semver.Compare(toCanonical(version), toCanonical(least)) >= 0
}

func toCanonical(version string) string { return "v" + strings.TrimPrefix(version, "v") }
