// Package templatefile turns documents into templates: YAML or JSON, written by
// hand or by programs, into [tasker.Template].
//
// A document is taken whole or not at all. What is wrong with it is listed
// completely, each fault with its line, so that an author fixes it in one
// round. Nothing is ignored in silence: an unknown key is a fault, because its
// author believes that it has an effect. Keys that other engines know, and that have no
// effect there either, are warnings.
//
// Only the plain part of YAML is accepted: no anchors, aliases, merge keys or
// tags, and one document per file. A template needs none of them, and each of
// them lets a small document mean a huge or a surprising one.
//
// The package does not know where documents come from or where templates go.
package templatefile

import (
	"slices"

	"tasker.example/tasker"

	"go.yaml.in/yaml/v3"
)

// Parse reads a YAML document; JSON is read as the YAML that it is. The error
// is a [tasker.Error]: TooLarge, or Invalid with all its faults, a slice of
// [tasker.Fault], as details. The warnings name what has no effect, in the order of the
// lines; [Strict] makes an error of them.
func Parse(doc []byte) (t tasker.Template, warnings []tasker.Fault, err error) {
	return parse(doc, yamlTree)
}

// ParseJSON is Parse for a document that must be JSON.
func ParseJSON(doc []byte) (t tasker.Template, warnings []tasker.Fault, err error) {
	return parse(doc, jsonTree)
}

// A reader turns the text of a document into its tree and notes what it
// refuses; nil means that there is no tree to go on with.
type reader func(doc []byte, faults *faults) *yaml.Node

func parse(doc []byte, read reader) (t tasker.Template, warnings []tasker.Fault, err error) {
	if len(doc) > tasker.MaxTemplateBytes {
		return t, nil, tasker.Errorf(tasker.TooLarge,
			"the template has %d bytes; %d is the limit", len(doc), tasker.MaxTemplateBytes)
	}
	var found faults
	if root := read(doc, &found); root != nil {
		t = readTemplate(value{node: root, faults: &found})
	}
	if err := found.err(); err != nil {
		return tasker.Template{}, nil, err
	}
	slices.SortStableFunc(found.warnings, byPlace)
	return t, found.warnings, nil
}
