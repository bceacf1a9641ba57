// Package redact knows what must not be shown: the values of keys that look
// secret, and places that the operator names. Evidence of investigations is
// redacted by the database as it is written, by the same rules (function
// redact_snapshot); logs are redacted here.
package redact

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Hidden is what stands where something was.
const Hidden = "[redacted]"

// DefaultKeys is what is hidden unless configured otherwise. A name stands for
// keys in any case, with or without dashes, underscores and blanks; * stands for
// any letters.
const DefaultKeys = "*password*, *passwd*, passphrase, *secret*, *token, *apikey, *accesskey*, *privatekey, *credential*, " +
	"authorization, proxyauthorization, cookie, setcookie, cardnumber, cvv, cvc, iban, ssn"

// Rules say what is hidden. The zero value hides nothing.
type Rules struct {
	names []string // as keys are compared
	keys  *regexp.Regexp
	paths [][]string
}

// New reads the names of keys and the paths, both with commas between them. A
// path is a JSON path in the snapshot of a task, such as
// $.task.context.customer.email or $.steps[*].results.result.
func New(keys, paths string) (Rules, error) {
	var r Rules
	var alternatives []string
	for name := range fields(keys) {
		plain := normal(name)
		if strings.Trim(plain, "*") == "" || strings.ContainsFunc(plain, func(c rune) bool {
			return c != '*' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
		}) {
			return Rules{}, fmt.Errorf("%q is no name of a key: give letters and digits, and * for any letters, such as *password*", name)
		}
		r.names = append(r.names, plain)
		alternatives = append(alternatives, strings.ReplaceAll(plain, "*", ".*"))
	}
	if len(alternatives) > 0 {
		r.keys = regexp.MustCompile("^(" + strings.Join(alternatives, "|") + ")$")
	}
	for path := range fields(paths) {
		steps, err := parsePath(path)
		if err != nil {
			return Rules{}, err
		}
		if first := steps[0]; first != "*" && !slices.Contains(Places, first) {
			return Rules{}, fmt.Errorf("%q hides nothing: a snapshot has no %q; it has %s", path, first, strings.Join(Places, ", "))
		}
		r.paths = append(r.paths, steps)
	}
	return r, nil
}

// fields yields what stands between commas outside of quotes.
func fields(list string) func(yield func(string) bool) {
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

// normal is a key as it is compared.
func normal(key string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(key))
}

// Places are what a snapshot consists of: where a path begins. A path that begins
// elsewhere hides nothing, which its author does not expect.
var Places = []string{
	"detected_at", "detected_by", "edges", "current_state", "namespace", "original_state", "priority", "schema_version", "steps",
	"task", "task_age_minutes", "task_name", "task_uuid", "task_version", "template", "threshold_minutes", "thresholds",
	"time_in_state_minutes", "transitions",
}

// pathStep matches one step of a path: .name, .*, [0], [*] or ['any name'].
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
		return nil, fmt.Errorf("%q is no path: write $.task.context.customer.email, with [*] for each element and ['a name'] for names with other characters", path)
	}
	return steps, nil
}

// Pattern is a regular expression of the keys, as normal spells them; it matches
// nothing when none is hidden.
func (r Rules) Pattern() string {
	if r.keys == nil {
		return "^$"
	}
	return r.keys.String()
}

// Words are the longest literal parts of the keys: a text without any of them
// holds no such key.
func (r Rules) Words() []string {
	words := []string{}
	for _, name := range r.names {
		parts := strings.Split(name, "*")
		longest := slices.MaxFunc(parts, func(a, b string) int { return len(a) - len(b) })
		if !slices.Contains(words, longest) {
			words = append(words, longest)
		}
	}
	return words
}

// Paths are the places that are hidden, step by step; * is each key or element.
func (r Rules) Paths() [][]string {
	if r.paths == nil {
		return [][]string{}
	}
	return r.paths
}

// hides reports whether the values of a key are hidden.
func (r Rules) hides(key string) bool { return r.keys != nil && r.keys.MatchString(normal(key)) }
