package templatefile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

const (
	maxFaults   = 100 // listed for one document
	faultsNamed = 3   // in the message of its error
	textShown   = 64  // bytes of the author's own text in a fault
)

// faults collects what is wrong with one document, and what in it has no effect.
type faults struct {
	list     []tasker.Fault
	more     bool // there are more than the list has room for
	warnings []tasker.Fault

	renamed    map[*yaml.Node]string // keys that the schema has under another name
	incomplete bool                  // a list was too long, and most of it was not read
}

// rename gives a key the name that the schema has for it.
func (f *faults) rename(key *yaml.Node, name string) {
	if f.renamed == nil {
		f.renamed = map[*yaml.Node]string{}
	}
	f.renamed[key] = name
}

// nameOf returns the name of a key.
func (f *faults) nameOf(key *yaml.Node) string { return cmp.Or(f.renamed[key], key.Value) }

// warn adds a warning, as long as they fit in a list.
func (f *faults) warn(fault tasker.Fault) {
	if len(f.warnings) < maxFaults {
		f.warnings = append(f.warnings, fault)
	}
}

func (f *faults) add(fault tasker.Fault) {
	if f.full() {
		f.more = true
		return
	}
	f.list = append(f.list, fault)
}

// full reports whether one more fault would not be listed.
func (f *faults) full() bool { return len(f.list) >= maxFaults }

// err returns all faults as one error, in the order of the lines.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	slices.SortStableFunc(f.list, byPlace)
	return tasker.Errorf(tasker.Invalid, "template has %s", summary(f.list, f.more)).WithDetails(f.list)
}

func byPlace(a, b tasker.Fault) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// Strict returns warnings of [Parse] as the error that faults are; nil when there are
// none.
func Strict(warnings []tasker.Fault) error {
	f := faults{list: slices.Clone(warnings)}
	return f.err()
}

// summary counts the faults and names the first of them.
func summary(list []tasker.Fault, more bool) string {
	var b strings.Builder
	switch {
	case more:
		fmt.Fprintf(&b, "more than %d faults", len(list))
	case len(list) == 1:
		b.WriteString("1 fault")
	default:
		fmt.Fprintf(&b, "%d faults", len(list))
	}
	separator := ": "
	for _, fault := range list[:min(faultsNamed, len(list))] {
		b.WriteString(separator + fault.String())
		separator = "; "
	}
	if len(list) > faultsNamed {
		b.WriteString("; …")
	}
	return b.String()
}

// quote shows text that the author wrote, on one line and cut.
func quote(text string) string {
	return strconv.Quote(payload.CleanText(text, textShown))
}
