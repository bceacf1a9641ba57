package postgres

import (
	"slices"
	"strings"
)

// columns passes many rows to a statement: each column is an array parameter.
type columns[T any] []columnDef[T]

type columnDef[T any] struct {
	name, kind string // kind is the PostgreSQL type
	array      func(rows []T) any
}

// newColumn returns a column whose values are read by value. The definition consists of the name
// and the PostgreSQL type.
func newColumn[T, V any](definition string, value func(row *T) V) columnDef[T] {
	name, kind, _ := strings.Cut(definition, " ")
	return columnDef[T]{name: name, kind: kind, array: func(rows []T) any { return collectValues(rows, value) }}
}

// collectValues returns a value for each row.
func collectValues[T, V any](rows []T, value func(row *T) V) []V {
	values := make([]V, len(rows))
	for i := range rows {
		values[i] = value(&rows[i])
	}
	return values
}

// pick returns the columns with the given names.
func (c columns[T]) pick(names ...string) columns[T] {
	return slices.DeleteFunc(slices.Clone(c), func(column columnDef[T]) bool { return !slices.Contains(names, column.name) })
}

// toArrays returns the parameters for rows, one array per column.
func (c columns[T]) toArrays(rows []T) []any {
	return collectValues(c, func(column *columnDef[T]) any { return column.array(rows) })
}
