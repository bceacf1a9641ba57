package access

import (
	"slices"
	"strings"

	"tasker.example/tasker"
)

// Bindings maps groups of the identity provider to grants. The group * contains all authenticated
// callers.
type Bindings map[string][]Grant

// ParseBindings parses a comma-separated list of group=role@namespace. The error is Invalid.
func ParseBindings(text string) (Bindings, error) {
	b := Bindings{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		at := strings.LastIndex(part, "=")
		if at < 1 {
			return nil, tasker.Errorf(tasker.Invalid, "invalid binding %q: must be group=role@namespace", part)
		}
		g, err := ParseGrant(part[at+1:])
		if err != nil {
			return nil, err
		}
		b[part[:at]] = append(b[part[:at]], g)
	}
	return b, nil
}

// Grants returns the sorted grants of the groups, at most [MaxGrants].
func (b Bindings) Grants(groups []string) []string {
	var list []string
	for _, group := range append([]string{"*"}, groups...) {
		for _, g := range b[group] {
			if text := g.String(); !slices.Contains(list, text) && len(list) < MaxGrants {
				list = append(list, text)
			}
		}
	}
	slices.Sort(list)
	return list
}
