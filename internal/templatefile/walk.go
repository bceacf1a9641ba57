package templatefile

import (
	"reflect"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// subschemas returns every schema that is reachable from s, each once.
func subschemas(s *jsonschema.Schema) []*jsonschema.Schema {
	var list []*jsonschema.Schema
	visitSubschema(reflect.ValueOf(s), map[*jsonschema.Schema]bool{},
		func(s *jsonschema.Schema) { list = append(list, s) })
	return list
}

// visitSubschema visits every schema that is reachable from a value, each once.
func visitSubschema(v reflect.Value, seen map[*jsonschema.Schema]bool, visit func(*jsonschema.Schema)) {
	switch v.Kind() {
	case reflect.Interface:
		visitSubschema(v.Elem(), seen, visit)
	case reflect.Slice:
		for i := range v.Len() {
			visitSubschema(v.Index(i), seen, visit)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			visitSubschema(v.MapIndex(key), seen, visit)
		}
	case reflect.Pointer:
		visitSubschemas(v, seen, visit)
	default:
	}
}

func visitSubschemas(v reflect.Value, seen map[*jsonschema.Schema]bool, visit func(*jsonschema.Schema)) {
	switch pointer := v.Interface().(type) {
	case *jsonschema.DynamicRef:
		if pointer != nil {
			visitSubschemas(reflect.ValueOf(pointer.Ref), seen, visit)
		}
	case *jsonschema.Schema:
		if pointer == nil || seen[pointer] {
			return
		}
		seen[pointer] = true
		for i := range v.Elem().NumField() {
			if v.Elem().Type().Field(i).IsExported() {
				visitSubschema(v.Elem().Field(i), seen, visit)
			}
		}
		visit(pointer)
	}
}

// countChains returns, for each schema, the maximum number of schemas that the library applies to a
// value before this one, through $ref, allOf and the like. The library traverses all of them each
// time and creates an error for most of them.
//
// Schemas on or behind a cycle have the largest number: the library follows a cycle once and then
// rejects the document.
func countChains(all []*jsonschema.Schema) map[*jsonschema.Schema]int {
	next := groupSameValue(all)
	before := make(map[*jsonschema.Schema]int, len(all)) // not yet counted predecessors
	for _, targets := range next {
		for _, target := range targets {
			before[target]++
		}
	}
	chain := make(map[*jsonschema.Schema]int, len(all))
	var ready []*jsonschema.Schema
	for _, s := range all {
		if before[s] == 0 {
			ready = append(ready, s)
		}
	}
	counted := 0
	for ; counted < len(ready); counted++ {
		s := ready[counted]
		for _, target := range next[s] {
			chain[target] = max(chain[target], chain[s]+1)
			if before[target]--; before[target] == 0 {
				ready = append(ready, target)
			}
		}
	}
	for _, s := range all {
		if before[s] > 0 {
			chain[s] = len(all)
		}
	}
	return chain
}

// groupSameValue returns, for each schema, the schemas that it applies to the same value as itself.
func groupSameValue(all []*jsonschema.Schema) map[*jsonschema.Schema][]*jsonschema.Schema {
	anchors := map[string][]*jsonschema.Schema{}
	var recursive []*jsonschema.Schema
	for _, s := range all {
		if s.DynamicAnchor != "" {
			anchors[s.DynamicAnchor] = append(anchors[s.DynamicAnchor], s)
		}
		if s.RecursiveAnchor {
			recursive = append(recursive, s)
		}
	}
	next := make(map[*jsonschema.Schema][]*jsonschema.Schema, len(all))
	for _, s := range all {
		list := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
		for _, more := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
			list = append(list, more...)
		}
		for _, target := range s.DependentSchemas {
			list = append(list, target)
		}
		for _, target := range s.Dependencies {
			if target, ok := target.(*jsonschema.Schema); ok {
				list = append(list, target)
			}
		}
		if s.RecursiveRef != nil && s.RecursiveRef.RecursiveAnchor {
			list = append(list, recursive...)
		}
		if s.DynamicRef != nil {
			list = append(list, s.DynamicRef.Ref)
			list = append(list, anchors[s.DynamicRef.Anchor]...)
		}
		for _, target := range list {
			if target != nil {
				next[s] = append(next[s], target)
			}
		}
	}
	return next
}
