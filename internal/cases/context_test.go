package cases_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/redact"
)

// compared makes so many tasks whose step charge has succeeded, and as many whose failed, and returns
// the case and the tasks.
func (h *harness) compared(each int) (of tasker.ID, succeeded, failed []tasker.ID) {
	h.Helper()
	h.Exec(`UPDATE tasker.workers SET max_concurrency = 1000`)
	for range each {
		succeeded = append(succeeded, h.Create("order"))
	}
	h.complete()
	h.complete()
	failed = h.stuck(orders(503, each)...)
	return h.only().ID, succeeded, failed
}

// contexts gives tasks a context each, by their number.
func (h *harness) contexts(tasks []tasker.ID, context func(n int) string) {
	h.Helper()
	list := make([]string, len(tasks))
	for n := range tasks {
		list[n] = context(n)
	}
	h.Exec(`UPDATE tasker.tasks t SET context = u.context::jsonb FROM unnest($1::uuid[], $2::text[]) AS u (task_uuid, context) WHERE t.task_uuid = u.task_uuid`, tasks, list)
}

// triage has the template order name keys.
func (h *harness) triage(version string, keys ...string) {
	h.Helper()
	_, _, err := h.Engine.RegisterTemplate(h.Context(), tasker.Template{
		Namespace: h.Space, Name: "order", Version: version, Triage: tasker.Triage{Keys: keys},
		Steps: []tasker.StepTemplate{enginetest.Step("charge"), enginetest.Step("ship", "charge")},
	}, "")
	h.Must(err)
}

// redacts has evidence hide what it hides unless configured otherwise, and some paths.
func (h *harness) redacts(paths string) {
	h.Helper()
	r, err := redact.New(redact.DefaultKeys, paths)
	h.Must(err)
	h.Must(h.DB.SetRedaction(h.Context(), postgres.Redaction{KeyPattern: r.Pattern(), Document: r.Document(), TextPatterns: r.Texts(), Paths: r.Paths()}))
}

// Keys of the context are compared when the newest version of the template names them, with what the caller
// may read only.
func TestKeysOfTheContextThatDiffer(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.redacts("$.task.context.customer.tax")
	of, succeeded, failed := h.compared(60)
	context := func(country, more string) func(int) string {
		return func(n int) string {
			return fmt.Sprintf(`{"customer": {"country": %q, "tax": %q, "number": %d, "password": %q, "list": [%q], "note": %q, "same": true, "a/b~c": %q%s}}`,
				country, country, n, country, country, strings.Repeat(country, 101), country, more)
		}
	}
	h.contexts(succeeded, context("DE", ""))
	h.contexts(failed, context("FR", `, "size": 7`))
	all := []string{"/customer/country", "/customer/tax", "/customer/number", "/customer/password", "/customer/list/0", "/customer/list", "/customer/note", "/customer/same", "/customer/a~1b~0c", "/customer/size"}
	told := func() (list []string) {
		got, err := h.Cases.Changes(t.Context(), of)
		h.Must(err)
		for _, d := range got.Differences {
			if d.Failures != 60 || d.Successes != 0 {
				t.Errorf("%+v", d)
			}
			list = append(list, d.Fact+"="+d.Value)
		}
		return list
	}
	if got := told(); len(got) != 0 {
		t.Errorf("without keys: %q", got)
	}
	h.triage("1.1.0", all...)
	if got, want := told(), []string{"/customer/a~1b~0c=FR", "/customer/country=FR", "/customer/size=7"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	hidden, err := h.Cases.Changes(access.WithPayloadScope(t.Context(), access.NamespaceScope("other")), of)
	h.Must(err)
	if len(hidden.Differences) != 0 || hidden.Failures != 60 {
		t.Errorf("without payloads:read: %+v", hidden)
	}
	h.contexts(failed, func(n int) string { // 20 have it, the fewest that count; and 51 values of a key tell nothing
		country := "FR"
		if n >= 20 {
			country = ""
		}
		return fmt.Sprintf(`{"customer": {"country": %q, "size": %d}}`, country, n%50)
	})
	h.contexts(succeeded, func(int) string { return `{"customer": {"country": "DE", "size": 50}}` })
	got, err := h.Cases.Changes(t.Context(), of)
	h.Must(err)
	if len(got.Differences) != 2 || got.Differences[1].Value != "FR" || got.Differences[1].Failures != 20 {
		t.Errorf("told %+v", got.Differences)
	}
	h.triage("1.2.0")
	if got := told(); len(got) != 0 {
		t.Errorf("when no key is named any more: %q", got)
	}
}

// A context that is large where it is stored is not read.
func TestLargeContextsAreNotCompared(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	of, succeeded, failed := h.compared(40)
	h.triage("1.1.0", "/country")
	filler := make([]byte, 100_000)
	for i := range filler {
		filler[i] = "0123456789abcdef"[rand.N(16)] // which does not compress below the bound
	}
	for _, large := range []bool{false, true} {
		context := func(country string) func(int) string {
			return func(int) string {
				if large {
					return fmt.Sprintf(`{"country": %q, "filler": %q}`, country, filler)
				}
				return fmt.Sprintf(`{"country": %q}`, country)
			}
		}
		h.contexts(failed, context("FR"))
		h.contexts(succeeded, context("DE"))
		got, err := h.Cases.Changes(t.Context(), of)
		h.Must(err)
		if told := len(got.Differences) == 1; told == large {
			t.Errorf("large %v: %+v", large, got.Differences)
		}
	}
}

// A payload is a random context. What is secret in it begins with hush; what is not does not.
type payloads struct {
	*rand.Rand
	keys   []string // pointers to all values of the last one
	marks  string   // ends every value
	hushed int
}

func (p *payloads) object(at string, depth int) map[string]any {
	doc := map[string]any{}
	for range 2 + p.IntN(3) {
		names := []string{"country", "region", "plan", "value", "name", "key", "a/b", "x~y", "Größe", "password", "apiToken", "card_number", "iban", "session-id", "SECRETS", "tax"}
		name := names[p.IntN(len(names))]
		p.put(doc, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), name, depth)
	}
	if p.IntN(3) == 0 { // a pair whose name says what the value is
		by, name := []string{"name", "key"}[p.IntN(2)], []string{"password", "color"}[p.IntN(2)]
		doc[by], doc["value"] = name, p.text(name == "password")
	}
	return doc
}

func (p *payloads) put(doc map[string]any, at, name string, depth int) {
	secret := slices.Contains([]string{"password", "apiToken", "card_number", "iban", "session-id", "SECRETS", "tax"}, name)
	switch kind := p.IntN(10); {
	case secret || kind < 5 || name == "name" || name == "key":
		doc[name] = p.text(secret)
		p.keys = append(p.keys, at)
	case kind == 5:
		doc[name] = "postgres://app:" + p.text(true) + "@db/tasks"
		p.keys = append(p.keys, at)
	case kind == 6:
		doc[name] = []any{p.text(false), map[string]any{"password": p.text(true)}}
		p.keys = append(p.keys, at+"/0", at+"/1/password")
	case depth < 3:
		doc[name] = p.object(at, depth+1)
	default:
		doc[name] = p.IntN(5)
	}
}

func (p *payloads) text(secret bool) string {
	if secret {
		p.hushed++
		return "hush-" + p.marks
	}
	return "plain-" + p.marks
}

// TestRedactedKeysAreNotShown compares 10,000 random payloads: of each key the template names a value is told, if at
// all, that the evidence shows.
func TestRedactedKeysAreNotShown(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.redacts("$.task.context.tax, $.task.context[*].tax, $.task.context[*][*].tax, $.task.context[*][*][*].tax")
	of, succeeded, failed := h.compared(40)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	p := &payloads{Rand: rand.New(rand.NewPCG(seed, 1))}
	told := 0
	for round := range 40 {
		p.keys = nil
		shape := p.Uint64()
		context := func(marks string) func(int) string {
			return func(int) string {
				of := &payloads{Rand: rand.New(rand.NewPCG(shape, uint64(p.IntN(5)/4))), marks: marks} // one of two shapes
				doc, err := json.Marshal(of.object("", 0))
				h.Must(err)
				p.keys, p.hushed = append(p.keys, of.keys...), p.hushed+of.hushed
				return string(doc)
			}
		}
		h.contexts(succeeded, context("before"))
		h.contexts(failed, context("now"))
		slices.Sort(p.keys)
		p.keys = slices.Compact(p.keys)
		p.Shuffle(len(p.keys), func(a, b int) { p.keys[a], p.keys[b] = p.keys[b], p.keys[a] })
		keys, err := json.Marshal(p.keys[:min(len(p.keys), tasker.MaxTriageKeys)])
		h.Must(err)
		h.Exec(`UPDATE tasker.task_templates SET configuration = jsonb_set(configuration, '{triage}', jsonb_build_object('keys', $1::text::jsonb)) WHERE name = 'order'`, string(keys))
		got, err := h.Cases.Changes(t.Context(), of)
		h.Must(err)
		for _, d := range got.Differences {
			if !strings.HasPrefix(d.Value, "plain-now") && d.Value != "color" && d.Value != "password" {
				t.Errorf("round %d: told %+v", round, d)
			}
			told++
		}
	}
	if told < 16 || p.hushed < 3000 {
		t.Errorf("%d values were told, %d were secret: this says nothing", told, p.hushed)
	}
	t.Logf("%d values were told, %d were secret", told, p.hushed)
}
