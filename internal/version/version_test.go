package version_test

import (
	"testing"

	"tasker.example/tasker/internal/version"
)

func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		a, b           string
		older, atLeast bool
	}{
		{"1.5.9", "1.6.0", true, false}, {"1.6.0", "1.6.0", false, true}, {"v1.6.0", "1.6", false, true}, {"1.10.0", "1.9.0", false, true},
		{"1.6.0-rc.1", "1.6.0", true, false}, {"2", "1.6", false, true}, {"", "1.6.0", false, false}, {"abc", "1.6.0", false, false}, {"abc", "abc", false, true},
		{"1.6.0", "abc", false, false},
	} {
		if older, atLeast := version.Older(tt.a, tt.b), version.AtLeast(tt.a, tt.b); older != tt.older || atLeast != tt.atLeast {
			t.Errorf("%q and %q: older %v, at least %v", tt.a, tt.b, older, atLeast)
		}
	}
}
