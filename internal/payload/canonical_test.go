package payload_test

import (
	"encoding/json"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"tasker.example/tasker/internal/payload"
)

func canonicalize(t interface{ Fatal(...any) }, doc string) string {
	out, err := payload.Canonical(json.RawMessage(doc))
	if err != nil {
		t.Fatal(doc, err)
	}
	return string(out)
}

func TestEqualDocumentsHaveOneSpelling(t *testing.T) {
	for _, same := range [][]string{
		{`1`, `1.0`, `10e-1`, `0.1E1`, `100e-2`, `1e0`},
		{`0`, `-0`, `0.00`, `0e5`, `-0.0e-3`},
		{`-1200`, `-12e2`, `-1.2e+3`},
		{`9007199254740993`, `9007199254740993.0`, `9.007199254740993e15`},
		{`{"a": 1, "b": "é"}`, "{ \"b\":\"\\u00e9\",\n\"a\":1.0}"},
		{`["/", "\n"]`, `["\/", "\u000a"]`},
	} {
		for _, doc := range same[1:] {
			if a, b := canonicalize(t, same[0]), canonicalize(t, doc); a != b {
				t.Errorf("%s is spelled %s, but %s is spelled %s", same[0], a, doc, b)
			}
		}
	}
}

func TestDifferentDocumentsHaveDifferentSpellings(t *testing.T) {
	docs := []string{
		`9007199254740992`, `9007199254740993`, `100000000000000000001`, `100000000000000000002`, `1e307`, `1e308`, `0.1`,
		`0.10000000000000000001`, `1`, `-1`, `"1"`, `null`, `false`, `{}`, `[]`, `[1]`, `[1,1]`, `{"a":null}`, `{"a":1}`, `{"A":1}`,
	}
	seen := map[string]string{}
	for _, doc := range docs {
		c := canonicalize(t, doc)
		if other, ok := seen[c]; ok {
			t.Errorf("%s and %s are both spelled %s", other, doc, c)
		}
		seen[c] = doc
	}
}

// The spelling of a number is another number only if the value is.
func TestNumbersKeepTheirValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,12})(\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		was, ok := new(big.Rat).SetString(text)
		is, ok2 := new(big.Rat).SetString(canonicalize(t, text))
		if !ok || !ok2 || was.Cmp(is) != 0 {
			t.Fatalf("%s became %s", text, canonicalize(t, text))
		}
	})
}
