// Package redact removes secrets from logs and error texts: values under secret-looking keys, embedded
// credentials and paths that the operator configured.
package redact

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Hidden replaces redacted values.
const Hidden = "[redacted]"

// DefaultKeys is the default list of hidden keys. docs/reference/configuration.md describes the
// syntax.
const DefaultKeys = "*password*, *passwd*, *passphrase, *pwd, *secret*, *token, token, =tokens, " +
	"!*tokencount, !*tokenlimit, !*tokentype, !*tokenusage, *apikey*, *accesskey*, *accountkey*, *privatekey*, *signingkey*, " +
	"*credential*, *authorization, authorizationheader, authheader, basicauth, =auth, bearer, jwt, otp, pin, =session, " +
	"sessionid, sessionkey, cookie, cookies, cardnumber, cvv, cvc, iban, ssn, dsn, databaseurl, connectionstring, *signature"

// Rules determines what is hidden. The zero value hides nothing.
type Rules struct {
	names []name
	keys  *regexp.Regexp // hidden words of a key
	shown *regexp.Regexp // exceptions
	texts []*regexp.Regexp
	paths [][]string
}

// New parses comma-separated names of keys and paths. A path is a JSON path in the snapshot of a
// task, such as $.task.context.customer.email or $.steps[*].results.result.
func New(keys, paths string) (Rules, error) {
	var r Rules
	for text := range splitFields(keys) {
		n, err := parseName(text)
		if err != nil {
			return Rules{}, err
		}
		r.names = append(r.names, n)
	}
	if pattern := joinAlternatives(r.names, name.isHidden); pattern != "" {
		r.keys = regexp.MustCompile(pattern)
		for _, text := range r.Texts() {
			r.texts = append(r.texts, regexp.MustCompile(text))
		}
	} else if len(r.names) > 0 {
		return Rules{}, fmt.Errorf("invalid redaction keys %q: at least one name must not begin with an "+
			"exclamation mark", keys)
	}
	if pattern := joinAlternatives(r.names, name.isExempt); pattern != "" {
		r.shown = regexp.MustCompile(pattern)
	}
	for path := range splitFields(paths) {
		steps, err := parsePath(path)
		if err != nil {
			return Rules{}, err
		}
		if first := steps[0]; first != "*" && !slices.Contains(Places, first) {
			return Rules{}, fmt.Errorf("invalid redaction path %q: unknown field %q: must begin with * or "+
				"one of %s", path, first, strings.Join(Places, ", "))
		}
		r.paths = append(r.paths, steps)
	}
	return r, nil
}

// splitFields yields the comma-separated fields of a list. Commas in quotes do not separate fields.
func splitFields(list string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		quoted := false
		for _, f := range strings.FieldsFunc(list, func(c rune) bool {
			if c == '\'' {
				quoted = !quoted
			}
			return c == ',' && !quoted
		}) {
			if f = strings.TrimSpace(f); f != "" && !yield(f) {
				return
			}
		}
	}
}

// Places lists the top-level members of a snapshot. A path must begin with one of them.
var Places = []string{
	"detected_at", "detected_by", "edges", "current_state", "namespace", "original_state", "priority", "schema_version", "steps",
	"task", "task_age_minutes", "task_name", "task_uuid", "task_version", "template", "threshold_minutes", "thresholds",
	"time_in_state_minutes", "transitions",
}

// pathStep matches one element of a path, such as .name, .*, [0], [*] or ['any name'].
var pathStep = regexp.MustCompile(`^(?:\.([A-Za-z_][A-Za-z0-9_-]*|\*)|\[(\*|[0-9]{1,9})\]|\['([^']+)'\])`)

func parsePath(path string) ([]string, error) {
	rest, ok := strings.CutPrefix(path, "$")
	var steps []string
	for ok && rest != "" {
		m := pathStep.FindStringSubmatch(rest)
		if m == nil {
			ok = false
			break
		}
		steps = append(steps, m[1]+m[2]+m[3])
		rest = rest[len(m[0]):]
	}
	if !ok || len(steps) == 0 {
		return nil, fmt.Errorf("invalid redaction path %q: must be such as $.task.context.customer.email, with "+
			"[*] for each element "+
			"and ['a name'] for names with other characters", path)
	}
	return steps, nil
}

// Paths returns the hidden paths; * matches each key or element.
func (r Rules) Paths() [][]string {
	if r.paths == nil {
		return [][]string{}
	}
	return r.paths
}
