package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/number"
)

// nameAttributes stores the types of the attributes that a template declares. It returns a Conflict
// if another template in the namespace declares a different type.
func (tx *Tx) nameAttributes(ctx context.Context, t tasker.Template, id tasker.ID) error {
	if len(t.Search) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(t.Search))
	types := make([]string, len(names))
	for i, name := range names {
		types[i] = string(t.Search[name].Type)
	}
	if _, err := tx.Exec(ctx, statement("nameAttributes"), t.Namespace, names, types); err != nil {
		return fmt.Errorf("store the attributes of a template: %w", err)
	}
	type row struct{ Name, Type, Template string }
	others, err := collect[row](ctx, tx, statement("otherTypes"), t.Namespace, names, types, id)
	if err != nil {
		return fmt.Errorf("compare the attributes of a template: %w", err)
	}
	for _, o := range others {
		if o.Template != "" {
			return tasker.Errorf(tasker.Conflict, "search.%s: type %s conflicts with type %s in template %s/%s: "+
				"an attribute has one type within a namespace",
				o.Name, t.Search[o.Name].Type, o.Type, t.Namespace, o.Template)
		}
		_, err := tx.Exec(ctx, statement("widenAttribute"), t.Namespace, o.Name, string(t.Search[o.Name].Type))
		if err != nil {
			return fmt.Errorf("store the attributes of a template: %w", err)
		}
	}
	return nil
}

// Attributes lists the declared attributes of a namespace, or of all namespaces if namespace is
// empty. It reports whether there are more.
func (db *DB) Attributes(ctx context.Context, namespace string, limit, offset int) ([]tasker.Attribute, bool, error) {
	return listAttributes(ctx, db.pool, namespace, limit, offset)
}

func listAttributes(ctx context.Context, q querier, namespace string, limit, offset int) ([]tasker.Attribute, bool,
	error) {
	list, err := collect[tasker.Attribute](ctx, q, statement("selectAttributes"), namespace, access.ScopeFromContext(ctx).List(), limit+1, offset)
	list, more := trimPage(list, limit)
	return list, more, wrapError(err, "list attributes")
}

// operators may precede a number or a time in an attribute filter.
var operators = []string{">=", "<=", ">", "<"}

// comparison is a parsed attribute condition.
type comparison struct {
	name, column, operator string
	value                  any
}

// isRange reports whether the condition can match more than one value.
func (c comparison) isRange() bool { return c.operator != "=" }

// buildComparisons parses the attribute conditions of a filter. It considers namespaces that the
// caller may read. It returns Invalid if an attribute is unknown or a value has the wrong type.
func buildComparisons(ctx context.Context, q querier, namespace string,
	filters []tasker.AttributeFilter) ([]comparison, error) {
	if len(filters) == 0 {
		return nil, nil
	}
	if len(filters) > tasker.MaxSearchConditions {
		return nil, tasker.Errorf(tasker.Invalid,
			"too many attribute conditions: got %d, the limit is %d", len(filters), tasker.MaxSearchConditions)
	}
	type row struct {
		Name string
		Type tasker.AttributeType
	}
	names := collectValues(filters, func(a *tasker.AttributeFilter) string { return a.Name })
	known, err := collect[row](ctx, q, statement("typesOfAttributes"), namespace, access.ScopeFromContext(ctx).List(),
		names)
	if err != nil {
		return nil, fmt.Errorf("read the types of attributes: %w", err)
	}
	types := map[string][]tasker.AttributeType{}
	for _, k := range known {
		types[k.Name] = append(types[k.Name], k.Type)
	}
	list := make([]comparison, len(filters))
	for i, a := range filters {
		is := types[a.Name]
		switch len(is) {
		case 0:
			return nil, newUnknownAttributeError(ctx, q, namespace, a.Name)
		case 1:
		default:
			return nil, tasker.Errorf(tasker.Invalid,
				"attribute %q has type %s in one namespace and %s in another: select a namespace", a.Name, is[0], is[1])
		}
		if list[i], err = toComparison(a, is[0]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// newUnknownAttributeError returns an Invalid that lists up to 20 declared attributes.
func newUnknownAttributeError(ctx context.Context, q querier, namespace, name string) error {
	const most = 20
	list, more, err := listAttributes(ctx, q, namespace, most, 0)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return tasker.Errorf(tasker.Invalid, "unknown attribute %q: no template declares search attributes", name)
	}
	names := collectValues(list, func(a *tasker.Attribute) string { return a.Name })
	slices.Sort(names)
	ending := ""
	if more {
		ending = " and others"
	}
	return tasker.Errorf(tasker.Invalid,
		"unknown attribute %q: must be one of %s%s", name, strings.Join(slices.Compact(names), ", "), ending)
}

func toComparison(a tasker.AttributeFilter, is tasker.AttributeType) (comparison, error) {
	c := comparison{name: a.Name, operator: "=", value: a.Value, column: "text_value"}
	text := a.Value
	if is == tasker.AttributeNumber || is == tasker.AttributeTime {
		for _, o := range operators {
			if rest, found := strings.CutPrefix(text, o); found {
				c.operator, text = o, rest
				break
			}
		}
	}
	switch is {
	case tasker.AttributeText:
	case tasker.AttributeBool:
		if text != "true" && text != "false" {
			return c, tasker.Errorf(tasker.Invalid, "attribute %s must be true or false, not %q", a.Name, text)
		}
	case tasker.AttributeNumber:
		c.column = "number_value"
		n, ok := parseNumeric(text)
		if !ok {
			return c, tasker.Errorf(tasker.Invalid,
				"attribute %s must be a number such as 0.5 or >0.5, not %q", a.Name, text)
		}
		c.value = n
	case tasker.AttributeTime:
		c.column = "time_value"
		at, err := time.Parse(time.RFC3339, text)
		if c.value = at; err != nil {
			return c, tasker.Errorf(tasker.Invalid, "attribute %s must be a time such as 2026-01-31T12:00:00Z or "+
				">2026-01-31T12:00:00Z, not %q", a.Name, text)
		}
	}
	return c, nil
}

// parseNumeric parses a JSON number within the range of 64-bit floats.
func parseNumeric(text string) (n pgtype.Numeric, ok bool) {
	_, err := strconv.ParseFloat(text, 64)
	if err != nil || !json.Valid([]byte(text)) || strings.TrimSpace(text) != text {
		return n, false
	}
	return n, n.Scan(number.Parse(text).String()) == nil
}
