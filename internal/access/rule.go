package access

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"tasker.example/tasker"
)

// Rule defines who may use a route. Exactly one of Needs, Anyone and Public is set.
type Rule struct {
	Needs  Permission
	Also   Permission // second required permission, if any
	Anyone bool       // all authenticated callers
	Public bool       // all callers

	of Kind   // kind of the resource in the path, if any
	id string // path parameter with its id
}

// Parameters describes the path parameters.
type Parameters struct {
	Resources map[string]Kind // ids of resources, which belong to namespaces
	Within    []string        // other parameters, which do not determine the access
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

// For returns the rule for a path. It returns an error if the rule is incomplete or it is
// ambiguous which namespace the path belongs to. A server with such a route does not start.
func (r Rule) For(path string, p Parameters) (Rule, error) {
	rules := 0
	for _, has := range []bool{r.Needs != "", r.Anyone, r.Public} {
		if has {
			rules++
		}
	}
	if rules != 1 || r.Needs != "" && !slices.Contains(Permissions(), r.Needs) || r.Also != "" && (r.Needs == "" || !slices.Contains(Permissions(), r.Also)) {
		return r, fmt.Errorf("%s must have exactly one access rule: a known permission, anyone or public", path)
	}
	for _, found := range inPath.FindAllStringSubmatch(path, -1) {
		name := found[1]
		kind, ok := p.Resources[name]
		switch {
		case ok && r.of == "":
			r.of, r.id = kind, name
		case !slices.Contains(p.Within, name): // with two resources the namespace is ambiguous
			return r, fmt.Errorf("%s: cannot determine the namespace of {%s}", path, name)
		}
	}
	return r, nil
}

// ResourceParameter returns the kind of the resource in the path and the path parameter with its
// id. Both are empty if there is none.
func (r Rule) ResourceParameter() (of Kind, parameter string) { return r.of, r.id }

// CheckIdentity returns an error if an authenticated caller lacks one of the permissions in every
// namespace.
func (r Rule) CheckIdentity(id *Identity) error {
	for _, p := range []Permission{r.Needs, r.Also} {
		if p != "" && id.Scope(p).IsEmpty() {
			return id.CheckPermission(p)
		}
	}
	return nil
}

// Admit returns the context of a request, limited to what the caller may see, or an error if the
// caller lacks a permission. It calls idOf to parse the id of the resource in the path.
func (r Rule) Admit(ctx context.Context, id *Identity, find Finder, idOf func(parameter string) (tasker.ID, error)) (context.Context, error) {
	if err := r.CheckIdentity(id); err != nil || r.Needs == "" {
		return ctx, err
	}
	ctx = WithPermissionScope(ctx, id, r.Needs)
	if r.of == "" {
		return ctx, nil
	}
	resource, err := idOf(r.id)
	if err != nil {
		return ctx, err
	}
	if ctx, err = find.Check(ctx, id, r.Needs, Resource{Kind: r.of, ID: resource}); err != nil || r.Also == "" {
		return ctx, err
	}
	return find.Check(ctx, id, r.Also, Resource{Kind: r.of, ID: resource})
}
