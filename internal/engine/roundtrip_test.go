package engine_test

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// FuzzDocumentRoundTrip: a context that is accepted is read back with the same value, and a task
// can be created again with what was read; a result that is accepted is handed to the next step
// with the same value, and accepted as the result of that one.
func FuzzDocumentRoundTrip(f *testing.F) {
	d := pgtest.New(f)
	db, err := postgres.Open(f.Context(), d.URL, postgres.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(db.Close)
	for _, doc := range []string{
		`null`, `{}`, `[1e308, 5e-324, -0.0, 1e40, 3.2e-41, 9007199254740993]`, `"\u001f\"\\/\u2028</script>😀"`, ` {"b": [ ], "a" : {"": 1.50e1}} `,
		`[` + strings.Repeat("1e308,", 3300) + `1]`, `[` + strings.Repeat("0, ", 99_990) + `0]`, `["` + strings.Repeat(`\u0001`, 170_000) + `"]`,
		strings.Repeat("[", 62) + strings.Repeat("]", 62), strings.Repeat("[", 64) + strings.Repeat("]", 64), `1e309`, `"\u0000"`, `1e-324`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		wrapped := json.RawMessage(`{"v": ` + string(doc) + `}`)
		if payload.Check(doc, payload.Limits{}) != nil || payload.Check(wrapped, payload.Limits{}) != nil {
			return
		}
		h := &harness{Harness: &enginetest.Harness{T: t, URL: d.URL, Space: enginetest.Namespace, DB: db, Engine: newEngine(db, engine.Options{})}}
		h.Worker = h.RegisterWorker("run")
		h.Template("chain", enginetest.Step("first"), enginetest.Step("second", "first"))
		task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "chain", Context: wrapped})
		stored, err := db.Task(t.Context(), task)
		h.Must(err)
		same(t, "context", wrapped, stored.Context)
		again := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "chain", Context: stored.Context, RecreatedFrom: task})
		h.Must(h.Engine.CancelTask(t.Context(), again, "test", "one is enough"))

		first := h.ClaimOne("first")
		same(t, "context in the claim", wrapped, first.Context)
		h.Accepted(success(first, string(doc)))
		second := h.ClaimOne("second")
		given, found := second.DependencyResults["first"]
		require(t, found, "the second step got %v", second.DependencyResults)
		same(t, "result", doc, given)
		h.Accepted(success(second, string(given)))
		h.WantState(task, tasker.TaskComplete)
	})
}

// same compares documents by value, their numbers exactly.
func same(t *testing.T, what string, want, got []byte) {
	t.Helper()
	if a, b := valueOf(t, want), valueOf(t, got); !reflect.DeepEqual(a, b) {
		t.Fatalf("%s %.200q is read back as %.200q", what, want, got)
	}
}

func valueOf(t *testing.T, doc []byte) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(doc)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%.200q: %v", doc, err)
	}
	return exactly(v)
}

func exactly(v any) any {
	switch v := v.(type) {
	case json.Number:
		return digits(v.String())
	case []any:
		for i := range v {
			v[i] = exactly(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = exactly(v[key])
		}
	}
	return v
}

// digits returns the significant digits of a number and the exponent of the last one.
func digits(number string) string {
	sign, number := number[:strings.Count(number[:1], "-")], strings.TrimLeft(number, "-")
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	n, _ := strconv.Atoi(exponent)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	n -= len(fraction)
	all := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(all, "0")
	if short == "" {
		return "0"
	}
	return sign + short + "e" + strconv.Itoa(n+len(all)-len(short))
}
