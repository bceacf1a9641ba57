// Package templatefile parses and validates template files in YAML or JSON. It reports every error of
// a file at once, with line numbers.
//
// A document is accepted completely or not at all. Unknown keys are faults, because their author
// expects an effect. Keys that other engines define and that have no effect there are warnings.
//
// Only plain YAML is accepted: no anchors, aliases, merge keys or tags, and one document per file.
// Templates do not need them, and each allows a small document to expand to a huge or a surprising
// one.
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

// Parse parses a YAML or JSON document. The error is a [tasker.Error]: TooLarge, or Invalid with
// all faults as details, a slice of [tasker.Fault]. Warnings are ordered by line and refer to parts
// without effect; [WarningsAsError] turns them into an error.
func Parse(doc []byte) (t tasker.Template, warnings []tasker.Fault, err error) {
	return parse(doc, parseYAMLTree)
}

// ParseJSON is like [Parse] for a document that must be JSON.
func ParseJSON(doc []byte) (t tasker.Template, warnings []tasker.Fault, err error) {
	return parse(doc, parseJSONTree)
}

// reader parses a document into its tree and records faults. It returns nil if there is no usable
// tree.
type reader func(doc []byte, faults *faults) *yaml.Node

func parse(doc []byte, read reader) (t tasker.Template, warnings []tasker.Fault, err error) {
	if len(doc) > tasker.MaxTemplateBytes {
		return t, nil, tasker.Errorf(tasker.TooLarge,
			"the template has %d bytes; the limit is %d", len(doc), tasker.MaxTemplateBytes)
	}
	var found faults
	if root := read(payload.TrimBOM(doc), &found); root != nil {
		t = readTemplate(value{node: root, faults: &found})
	}
	if err := found.err(); err != nil {
		return tasker.Template{}, nil, err
	}
	slices.SortStableFunc(found.warnings, comparePlaces)
	return t, found.warnings, nil
}

// Checksum returns the SHA-256 of the meaning of a template, in hex. It does not depend on the
// order of keys or of a step's dependencies, on explicit defaults, on the format (YAML or JSON),
// or on the notation of numbers (1.0 or 1). Invalid raw JSON in a template that was not parsed
// counts as text.
func Checksum(t tasker.Template) string {
	sum := sha256.Sum256(encodeMeaning(t))
	return hex.EncodeToString(sum[:])
}

// encodeMeaning returns the canonical JSON of a template, from which the checksum is computed.
func encodeMeaning(t tasker.Template) []byte {
	t.Metadata = nil // it has no effect, and older versions stored the same template without it
	t.InputSchema = canonicalizeJSON(t.InputSchema)
	t.Triage.Keys = slices.Sorted(slices.Values(t.Triage.Keys))
	t.Steps = slices.Clone(t.Steps)
	for i, s := range t.Steps {
		t.Steps[i].Dependencies = slices.Sorted(slices.Values(s.Dependencies))
		t.Steps[i].Handler.Initialization = canonicalizeJSON(s.Handler.Initialization)
	}
	environments := make(map[string]tasker.Override, len(t.Environments))
	for name, o := range t.Environments {
		o.Steps = slices.Clone(o.Steps)
		for i, s := range o.Steps {
			o.Steps[i].Initialization = canonicalizeJSON(s.Initialization)
		}
		environments[name] = o
	}
	t.Environments = environments
	raw, err := json.Marshal(t)
	if err != nil { // unreachable: canonical wrote all raw JSON in it
		panic("templatefile: a template that has no JSON: " + err.Error())
	}
	return raw
}

// canonicalizeJSON returns a JSON document with sorted keys, canonical numbers and no white space.
// It encodes invalid JSON as a JSON string.
func canonicalizeJSON(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return nil
	}
	raw, err := payload.CanonicalBy(doc, canonicalizeNumber)
	if err != nil {
		return appendString(nil, string(doc))
	}
	return raw
}

// canonicalizeNumber formats a number of any size as its significant digits and an exponent: 100,
// 100.0 and 1e2 all become 1e2.
func canonicalizeNumber(text string) string {
	d := number.Parse(text)
	if d.Digits == "" {
		return "0"
	}
	return d.Sign() + d.Digits + "e" + strconv.Itoa(d.Exponent)
}
