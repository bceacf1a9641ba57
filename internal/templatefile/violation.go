package templatefile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker/internal/payload"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

const (
	maxViolation    = 300            // bytes of one message, which may quote the document
	maxViolations   = 10 * maxFaults // collected, so that the listed ones have a fixed order
	maxAlternatives = 5              // listed of an anyOf or oneOf
)

// violation is a violation of a schema at one place in a document.
type violation struct {
	tokens  []string // path of keys and indexes
	path    string   // the path in the format of faults
	message string
}

var english = message.NewPrinter(language.English)

// collectViolations returns all violations in a fixed order. It combines alternatives that all fail
// into one violation.
func collectViolations(err *jsonschema.ValidationError, doc any) []violation {
	var list []violation
	collect(err, func(e *jsonschema.ValidationError, text string) bool {
		list = append(list, violation{
			tokens:  e.InstanceLocation,
			path:    formatPath(e.InstanceLocation, doc),
			message: payload.CleanText(text, maxViolation),
		})
		return len(list) < maxViolations
	})
	slices.SortFunc(list, func(a, b violation) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.message, b.message))
	})
	return slices.CompactFunc(list, func(a, b violation) bool { return a.path == b.path && a.message == b.message })
}

// collect calls found for each cause that an author can fix, until found returns false.
func collect(e *jsonschema.ValidationError, found func(e *jsonschema.ValidationError, text string) bool) bool {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		if len(e.Causes) > 0 {
			return found(e, "fits none of the alternatives: "+formatAlternatives(e.Causes))
		}
	}
	if len(e.Causes) == 0 {
		return found(e, explain(e))
	}
	for _, cause := range e.Causes {
		if !collect(cause, found) {
			return false
		}
	}
	return true
}

// formatAlternatives describes the first mismatch of each branch.
func formatAlternatives(branches []*jsonschema.ValidationError) string {
	var reasons []string
	for _, branch := range branches[:min(len(branches), maxAlternatives)] {
		for len(branch.Causes) > 0 {
			branch = branch.Causes[0]
		}
		if text := explain(branch); !slices.Contains(reasons, text) {
			reasons = append(reasons, text)
		}
	}
	if len(branches) > maxAlternatives {
		reasons = append(reasons, "…")
	}
	return strings.Join(reasons, "; or ")
}

// explain describes a violation. For common ones, it uses the words of this package instead of
// those of the library.
func explain(e *jsonschema.ValidationError) string {
	switch k := errorKind(e).(type) {
	case *kind.Type:
		return fmt.Sprintf("must be of type %s, not %s", formatList(k.Want), k.Got)
	case *kind.Required:
		return "is missing " + formatQuoted(k.Missing)
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		return "has " + formatQuoted(k.Properties) + ", which the schema does not allow"
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.Format:
		return fmt.Sprintf("%s is not a valid %s: %v", quoteText(fmt.Sprint(k.Got)), k.Want, k.Err)
	case *kind.Pattern:
		return fmt.Sprintf("%s does not match the pattern %s", quoteText(k.Got), quoteText(k.Want))
	default:
		return k.LocalizedString(english)
	}
}

// errorKind returns the violated assertion, regardless of whether the library or this package found
// it.
func errorKind(e *jsonschema.ValidationError) jsonschema.ErrorKind {
	if format, ok := e.ErrorKind.(*kind.Format); ok {
		if ours, ok := errors.AsType[failure](format.Err); ok {
			return ours.ErrorKind
		}
	}
	return e.ErrorKind
}

func formatQuoted(words []string) string {
	shown := make([]string, min(len(words), 10))
	for i := range shown {
		shown[i] = quoteText(words[i])
	}
	if len(words) > len(shown) {
		shown = append(shown, "…")
	}
	return strings.Join(shown, ", ")
}

// formatPath formats the path to a place of a document as items[3].name.
func formatPath(tokens []string, doc any) string {
	var b strings.Builder
	for _, token := range tokens {
		switch d := doc.(type) {
		case []any:
			fmt.Fprintf(&b, "[%s]", token)
			doc = findElement(d, token)
			continue
		case map[string]any:
			doc = d[token]
		}
		switch {
		case !namePattern.MatchString(token):
			b.WriteString("[" + quoteText(token) + "]")
		case b.Len() > 0:
			b.WriteString("." + token)
		default:
			b.WriteString(token)
		}
	}
	return b.String()
}

func findElement(items []any, token string) any {
	var i int
	if _, err := fmt.Sscan(token, &i); err != nil || i < 0 || i >= len(items) {
		return nil
	}
	return items[i]
}
