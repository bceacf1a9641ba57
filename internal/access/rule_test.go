package access_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

func TestRules(t *testing.T) {
	t.Parallel()
	parameters := access.Parameters{Resources: map[string]access.Kind{"task": access.TaskKind, "task_uuid": access.TaskKind}, Within: []string{"step"}}
	for _, c := range []struct {
		rule  access.Rule
		path  string
		fault string
	}{
		{access.Rule{}, "/x", "exactly one access rule"},
		{access.Rule{Anyone: true, Public: true}, "/x", "exactly one access rule"},
		{access.Rule{Needs: access.ReadTasks, Anyone: true}, "/x", "exactly one access rule"},
		{access.Rule{Needs: "tasks:see"}, "/x", "exactly one access rule"},
		{access.Rule{Also: access.ReadTasks, Anyone: true}, "/x", "exactly one access rule"},
		{access.Rule{Needs: access.ReadTasks, Also: "tasks:see"}, "/x", "exactly one access rule"},
		{access.Rule{Needs: access.ReadTasks}, "/x/{id}", "{id}"},
		{access.Rule{Needs: access.ReadTasks}, "/x/{task}/{task_uuid}", "{task_uuid}"},
		{access.Rule{Needs: access.ReadTasks}, "/x/{task}/{step}", ""},
		{access.Rule{Public: true}, "/x", ""},
	} {
		_, err := c.rule.For(c.path, parameters)
		if c.fault == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%+v for %s: %v", c.rule, c.path, err)
		}
	}
	rule, err := access.Rule{Needs: access.CancelTasks}.For("/x/{task}/{step}", parameters)
	if err != nil {
		t.Fatal(err)
	}
	find := access.Finder(func(context.Context, access.Kind, tasker.ID) ([]string, error) { return []string{"shop"}, nil })
	for grant, want := range map[string]tasker.Code{
		"operator@shop": "", "admin@*": "", "viewer@shop": tasker.Forbidden, "viewer@*": tasker.Forbidden, "operator@attic": tasker.NotFound, "worker@attic": tasker.Forbidden,
	} {
		grants, err := access.ParseGrants([]string{grant})
		if err != nil {
			t.Fatal(err)
		}
		asked := ""
		ctx, err := rule.Admit(t.Context(), access.NewIdentity("key:ann", grants), find, func(name string) (tasker.ID, error) {
			asked = name
			return tasker.NewID(), nil
		})
		if tasker.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", grant, err, want)
		}
		if want == "" && (asked != "task" || grant == "operator@shop" && !slices.Equal(access.ScopeFromContext(ctx).List(), []string{"shop"})) {
			t.Errorf("%s: asked for %q, sees %v", grant, asked, access.ScopeFromContext(ctx))
		}
	}
	malformed := errors.New("not an id")
	if _, err := rule.Admit(t.Context(), access.Local(), find, func(string) (tasker.ID, error) { return tasker.ID{}, malformed }); !errors.Is(err, malformed) {
		t.Errorf("an id that is none: %v", err)
	}
}

// A rule with two permissions needs both of them, for the namespace of what the path names.
func TestARuleWithTwoPermissions(t *testing.T) {
	t.Parallel()
	rule, err := access.Rule{Needs: access.ReadInvestigations, Also: access.ReadPayloads}.For("/x/{task}", access.Parameters{Resources: map[string]access.Kind{"task": access.TaskKind}})
	if err != nil {
		t.Fatal(err)
	}
	find := access.Finder(func(context.Context, access.Kind, tasker.ID) ([]string, error) { return []string{"shop"}, nil })
	for grants, want := range map[string]string{
		"operator@shop": "", "viewer@shop worker@shop": "", "viewer@shop": "payloads:read", "worker@shop": "investigations:read",
		"viewer@shop operator@attic": "payloads:read", "worker@shop operator@attic": "investigations:read", "operator@attic": "not found",
	} {
		list, err := access.ParseGrants(strings.Fields(grants))
		if err != nil {
			t.Fatal(err)
		}
		_, err = rule.Admit(t.Context(), access.NewIdentity("key:ann", list), find, func(string) (tasker.ID, error) { return tasker.NewID(), nil })
		if want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", grants, err, want)
		}
	}
}
