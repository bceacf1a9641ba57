package access

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"tasker.example/tasker"
)

// A Rule says who may use a route. It has exactly one of Needs, Anyone and Public.
type Rule struct {
	Needs  Permission
	Also   Permission // beside Needs; empty: nothing else
	Anyone bool       // who is known
	Public bool       // also who is not

	of Kind   // what the path names by its id; empty: nothing
	id string // the parameter with that id
}

// Parameters says what the parameters of paths are.
type Parameters struct {
	Resources map[string]Kind // ids. A resource belongs to namespaces, which decide who may see it
	Within    []string        // what is told apart by a parameter before it, or by the permission
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

// For returns the rule for a route with a path, or why nobody can tell who may use that: no
// server starts with such a route.
func (r Rule) For(path string, p Parameters) (Rule, error) {
	rules := 0
	for _, has := range []bool{r.Needs != "", r.Anyone, r.Public} {
		if has {
			rules++
		}
	}
	if rules != 1 || r.Needs != "" && !slices.Contains(Permissions(), r.Needs) || r.Also != "" && (r.Needs == "" || !slices.Contains(Permissions(), r.Also)) {
		return r, fmt.Errorf("%s must have one rule of access: a permission that there is, anyone or public", path)
	}
	for _, found := range inPath.FindAllStringSubmatch(path, -1) {
		name := found[1]
		kind, ok := p.Resources[name]
		switch {
		case ok && r.of == "":
			r.of, r.id = kind, name
		case !slices.Contains(p.Within, name): // of two resources nothing says which one decides
			return r, fmt.Errorf("%s: nothing says to which namespace {%s} belongs", path, name)
		}
	}
	return r, nil
}

// Names returns what the path names by its id, and the parameter with it; empty for
// nothing.
func (r Rule) Names() (of Kind, parameter string) { return r.of, r.id }

// Refusal returns why a caller who is known may not use the route for any namespace; nil
// when they may for some.
func (r Rule) Refusal(id *Identity) error {
	for _, p := range []Permission{r.Needs, r.Also} {
		if p != "" && id.Scope(p).Empty() {
			return id.Refusal(p)
		}
	}
	return nil
}

// Admit returns the context of a request of a caller, with what they may see, or why they may
// not make it. It asks for the id of what the path names.
func (r Rule) Admit(ctx context.Context, id *Identity, find Finder, idOf func(parameter string) (tasker.ID, error)) (context.Context, error) {
	if err := r.Refusal(id); err != nil || r.Needs == "" {
		return ctx, err
	}
	ctx = Within(ctx, id, r.Needs)
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
