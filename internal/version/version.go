// Package version compares worker versions.
package version

import (
	"strings"

	"golang.org/x/mod/semver"
)

// Valid reports whether a version has the form of semantic versioning, such as 1.6.0 or v1.6;
// others cannot be compared.
func Valid(version string) bool { return semver.IsValid(canonical(version)) }

// Older reports whether a version is older than another. Versions that cannot be compared are
// not.
func Older(version, than string) bool {
	return Valid(version) && Valid(than) && semver.Compare(canonical(version), canonical(than)) < 0
}

// AtLeast reports whether a version is another one or a newer one. Versions that cannot be
// compared are not, unless they are the same.
func AtLeast(version, least string) bool {
	return version == least || Valid(version) && Valid(least) && semver.Compare(canonical(version), canonical(least)) >= 0
}

func canonical(version string) string { return "v" + strings.TrimPrefix(version, "v") }
