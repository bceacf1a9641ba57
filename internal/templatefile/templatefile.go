// Package templatefile parses and validates template files in YAML or JSON. It reports every error of
// a file at once, with line numbers.
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
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/number"
	"tasker.example/tasker/internal/payload"
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
	if root := read(payload.TrimBOM(doc), &found); root != nil {
		t = readTemplate(value{node: root, faults: &found})
	}
	if err := found.err(); err != nil {
		return tasker.Template{}, nil, err
	}
	slices.SortStableFunc(found.warnings, byPlace)
	return t, found.warnings, nil
}

// Checksum returns the SHA-256 of the meaning of a template, in hex. Two
// documents that mean the same have the same one, however they are spelled: the
// order of keys and of one step's dependencies, defaults written or left out,
// YAML or JSON, 1.0 or 1.
//
// It has no error: raw JSON in a template that was not parsed, and that is not
// JSON, counts as the text that it is.
func Checksum(t tasker.Template) string {
	sum := sha256.Sum256(meaning(t))
	return hex.EncodeToString(sum[:])
}

// meaning writes a template as JSON in the one spelling that all others share.
func meaning(t tasker.Template) []byte {
	t.Metadata = nil // it has no effect, and versions that do not know it have stored the same template without it
	t.InputSchema = canonical(t.InputSchema)
	t.Triage.Keys = slices.Sorted(slices.Values(t.Triage.Keys))
	t.Steps = slices.Clone(t.Steps)
	for i, s := range t.Steps {
		t.Steps[i].Dependencies = slices.Sorted(slices.Values(s.Dependencies))
		t.Steps[i].Handler.Initialization = canonical(s.Handler.Initialization)
	}
	environments := make(map[string]tasker.Override, len(t.Environments))
	for name, o := range t.Environments {
		o.Steps = slices.Clone(o.Steps)
		for i, s := range o.Steps {
			o.Steps[i].Initialization = canonical(s.Initialization)
		}
		environments[name] = o
	}
	t.Environments = environments
	raw, err := json.Marshal(t)
	if err != nil { // unreachable: all raw JSON in it has just been written by canonical
		panic("templatefile: a template that has no JSON: " + err.Error())
	}
	return raw
}

// canonical writes a JSON document in one way: keys sorted, no space, each
// number as its digits. What is not JSON becomes a JSON string of itself.
func canonical(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return nil
	}
	raw, err := payload.CanonicalBy(doc, canonicalNumber)
	if err != nil {
		return appendString(nil, string(doc))
	}
	return raw
}

// canonicalNumber writes 100, 100.0 and 1e2 as 1e2, whatever their size.
func canonicalNumber(text string) string {
	d := number.Parse(text)
	if d.Digits == "" {
		return "0"
	}
	return d.Sign() + d.Digits + "e" + strconv.Itoa(d.Exponent)
}
