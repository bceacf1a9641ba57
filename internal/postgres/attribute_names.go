package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const nameAttributes = `
INSERT INTO tasker.attribute_names (namespace, name, type)
SELECT $1, u.name, u.type FROM unnest($2::text[], $3::text[]) AS u (name, type)
ORDER BY u.name
ON CONFLICT DO NOTHING`

// otherTypes finds the templates that declare an attribute with another type. One that is no
// longer there has left its name only.
const otherTypes = `
SELECT n.name, n.type, coalesce(o.template, '') AS template
FROM unnest($2::text[], $3::text[]) AS u (name, type)
JOIN tasker.attribute_names n ON n.namespace = $1 AND n.name = u.name AND n.type <> u.type
LEFT JOIN LATERAL (
    SELECT m.name || ' ' || m.version AS template
    FROM tasker.task_templates m
    WHERE m.namespace = $1 AND m.configuration -> 'search' -> u.name ->> 'type' = n.type
    ORDER BY m.created_at DESC LIMIT 1
) o ON true
ORDER BY n.name`

// nameAttributes notes the attributes of a template. The error is a Conflict when one has another type in
// another template of the namespace.
func (tx *Tx) nameAttributes(ctx context.Context, t tasker.Template) error {
	if len(t.Search) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(t.Search))
	types := make([]string, len(names))
	for i, name := range names {
		types[i] = string(t.Search[name].Type)
	}
	if _, err := tx.Exec(ctx, nameAttributes, t.Namespace, names, types); err != nil {
		return fmt.Errorf("name the attributes of a template: %w", err)
	}
	type row struct{ Name, Type, Template string }
	others, err := collect[row](ctx, tx, otherTypes, t.Namespace, names, types)
	if err != nil {
		return fmt.Errorf("compare the attributes of a template: %w", err)
	}
	for _, o := range others {
		if o.Template != "" {
			return tasker.Errorf(tasker.Conflict, "search.%s: is %s here and %s in template %s/%s; a name has one type within a namespace",
				o.Name, t.Search[o.Name].Type, o.Type, t.Namespace, o.Template)
		}
		_, err := tx.Exec(ctx, `UPDATE tasker.attribute_names SET type = $3 WHERE namespace = $1 AND name = $2`, t.Namespace, o.Name, string(t.Search[o.Name].Type))
		if err != nil {
			return fmt.Errorf("name the attributes of a template: %w", err)
		}
	}
	return nil
}

// maxAttributes bounds a list of attributes.
const maxAttributes = 1000

const selectAttributes = `
SELECT n.namespace, n.name, n.type, coalesce(o.templates, '{}') AS templates
FROM tasker.attribute_names n
CROSS JOIN LATERAL (
    SELECT array_agg(DISTINCT m.name ORDER BY m.name) AS templates
    FROM tasker.task_templates m
    WHERE m.namespace = n.namespace AND m.configuration -> 'search' ? n.name
) o
WHERE ($1 = '' OR n.namespace = $1) AND ($2::text[] IS NULL OR n.namespace = ANY ($2))
ORDER BY n.namespace, n.name LIMIT $3`

// Attributes lists what tasks are found by as templates declare it, by namespace and name, up to
// 1000; of a namespace, or of all when it is empty.
func (db *DB) Attributes(ctx context.Context, namespace string) ([]tasker.Attribute, error) {
	list, err := collect[tasker.Attribute](ctx, db.pool, selectAttributes, namespace, access.ScopeOf(ctx).List(), maxAttributes)
	if err != nil {
		return nil, fmt.Errorf("list attributes: %w", err)
	}
	return list, nil
}

// operators are what the value of a number or a time may begin with.
var operators = []string{">=", "<=", ">", "<"}

// A comparison is a condition on an attribute, ready for a statement.
type comparison struct {
	name, column, operator string
	value                  any
}

// ranged reports whether more than one value fits.
func (c comparison) ranged() bool { return c.operator != "=" }

// compare reads the conditions on attributes of a filter. What the caller may not read is not
// searched either. The error is Invalid when an attribute is not known, or a value not of its type.
func (db *DB) compare(ctx context.Context, f tasker.TaskFilter) ([]comparison, error) {
	if len(f.Attributes) == 0 {
		return nil, nil
	}
	known, err := db.Attributes(ctx, f.Namespace)
	if err != nil {
		return nil, err
	}
	list := make([]comparison, len(f.Attributes))
	for i, a := range f.Attributes {
		if list[i], err = comparisonOf(a, known); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// comparisonOf reads a condition on an attribute.
func comparisonOf(a tasker.AttributeFilter, known []tasker.Attribute) (comparison, error) {
	var is tasker.AttributeType
	var names []string
	for _, k := range known {
		names = append(names, k.Name)
		switch {
		case k.Name != a.Name || k.Type == is:
		case is != "":
			return comparison{}, tasker.Errorf(tasker.Invalid, "attribute %q is %s in one namespace and %s in another; name a namespace", a.Name, is, k.Type)
		default:
			is = k.Type
		}
	}
	if is == "" {
		slices.Sort(names)
		return comparison{}, unknownAttribute(a.Name, slices.Compact(names))
	}
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
			return c, tasker.Errorf(tasker.Invalid, "attribute %s is true or false, not %q", a.Name, text)
		}
	case tasker.AttributeNumber:
		c.column = "number_value"
		var n pgtype.Numeric
		if c.value = text; n.Scan(text) != nil || n.NaN || n.InfinityModifier != pgtype.Finite {
			return c, tasker.Errorf(tasker.Invalid, "attribute %s is a number, such as 0.5 or >0.5, not %q", a.Name, text)
		}
		c.value = n
	case tasker.AttributeTime:
		c.column = "time_value"
		at, err := time.Parse(time.RFC3339, text)
		if c.value = at; err != nil {
			return c, tasker.Errorf(tasker.Invalid, "attribute %s is a time, such as 2026-01-31T12:00:00Z or >2026-01-31T12:00:00Z, not %q", a.Name, text)
		}
	}
	return c, nil
}

func unknownAttribute(name string, known []string) error {
	if len(known) == 0 {
		return tasker.Errorf(tasker.Invalid, "there is no attribute %q: no template declares one in search", name)
	}
	return tasker.Errorf(tasker.Invalid, "there is no attribute %q; there are %s", name, strings.Join(known, ", "))
}
