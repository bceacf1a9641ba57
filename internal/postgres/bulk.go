package postgres

import (
	"fmt"
	"slices"
	"strings"
)

// Many rows travel to a statement as one array for each column.

// columns are what of a T travels, in the order of the parameters.
type columns[T any] []columnOf[T]

type columnOf[T any] struct {
	name, kind string             // kind is its type in PostgreSQL
	array      func(rows []T) any // a []V
}

// col returns a column that value reads from a row; definition is its name and PostgreSQL type.
func col[T, V any](definition string, value func(row *T) V) columnOf[T] {
	name, kind, _ := strings.Cut(definition, " ")
	return columnOf[T]{name: name, kind: kind, array: func(rows []T) any {
		values := make([]V, len(rows))
		for i := range rows {
			values[i] = value(&rows[i])
		}
		return values
	}}
}

// only returns the columns of these names.
func (c columns[T]) only(names ...string) columns[T] {
	return slices.DeleteFunc(slices.Clone(c), func(column columnOf[T]) bool { return !slices.Contains(names, column.name) })
}

// unnest returns the rows for a FROM clause; their arrays are the parameters from first on.
func (c columns[T]) unnest(name string, first int) string {
	arrays, names := make([]string, len(c)), make([]string, len(c))
	for i, column := range c {
		arrays[i], names[i] = fmt.Sprintf("$%d::%s[]", first+i, column.kind), column.name
	}
	return "unnest(" + strings.Join(arrays, ", ") + ") AS " + name + " (" + strings.Join(names, ", ") + ")"
}

// arrays returns the parameters of rows, one array for each column.
func (c columns[T]) arrays(rows []T) []any {
	out := make([]any, len(c))
	for i, column := range c {
		out[i] = column.array(rows)
	}
	return out
}
