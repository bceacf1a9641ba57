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
	faultsNamed = 3   // in the error message
	textShown   = 64  // bytes of quoted text in a fault
)

// faults collects the faults and warnings of one document.
type faults struct {
	list     []tasker.Fault
	more     bool // the list is incomplete
	warnings []tasker.Fault

	renamed    map[*yaml.Node]string // canonical names of alias keys
	incomplete bool                  // a list was too long and is truncated
}

// rename sets the canonical name of a key.
func (f *faults) rename(key *yaml.Node, name string) {
	if f.renamed == nil {
		f.renamed = map[*yaml.Node]string{}
	}
	f.renamed[key] = name
}

// nameOf returns the canonical name of a key.
func (f *faults) nameOf(key *yaml.Node) string { return cmp.Or(f.renamed[key], key.Value) }

// warn adds a warning unless the list is full.
func (f *faults) warn(fault tasker.Fault) {
	if len(f.warnings) < maxFaults {
		f.warnings = append(f.warnings, fault)
	}
}

func (f *faults) add(fault tasker.Fault) {
	if f.isFull() {
		f.more = true
		return
	}
	f.list = append(f.list, fault)
}

func (f *faults) isFull() bool { return len(f.list) >= maxFaults }

// err returns all faults as one error, ordered by line, or nil if there are none.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	slices.SortStableFunc(f.list, comparePlaces)
	return tasker.Errorf(tasker.Invalid, "template has %s", summarize(f.list, f.more)).WithDetails(f.list)
}

func comparePlaces(a, b tasker.Fault) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// WarningsAsError returns the warnings of [Parse] as an error, or nil if there are none.
func WarningsAsError(warnings []tasker.Fault) error {
	f := faults{list: slices.Clone(warnings)}
	return f.err()
}

// summarize formats the number of faults and the first few of them.
func summarize(list []tasker.Fault, more bool) string {
	var b strings.Builder
	switch {
	case more:
		fmt.Fprintf(&b, "more than %d errors", len(list))
	default:
		b.WriteString(formatCount(len(list), "error"))
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

// quoteText quotes text from the document, truncated and on one line.
func quoteText(text string) string {
	return strconv.Quote(payload.CleanText(text, textShown))
}
