package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/pgtest"

	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestCheck(t *testing.T) {
	small := Limits{Bytes: 200, Depth: 3, Keys: 4, Values: 9, StringBytes: 10, Digits: 20}
	manyKeys := "{"
	for i := range 30 {
		manyKeys += fmt.Sprintf(`"k%d":1,`, i)
	}
	for _, tt := range []struct {
		name, doc string
		limits    Limits
		want      string // the error; "" accepts
	}{
		{"object", `{"a": [1, -2.5e3, "x", true, false, null, {}], "b": {"c": []}}`, Limits{}, ""},
		{"scalar", ` "text" `, Limits{}, ""},
		{"every escape", `"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é😀"`, Limits{}, ""},
		{"same key in different objects", `{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}`, Limits{}, ""},

		{"nothing", ``, Limits{}, "the document: a JSON value is missing (line 1, column 1)"},
		{"only space", " \n ", Limits{}, "the document: a JSON value is missing (line 2, column 2)"},
		{"word", `nil`, Limits{}, "the document: invalid start of a JSON value: 'n' (line 1, column 1)"},
		{"two values", `{} {}`, Limits{}, "the document: unexpected text after the JSON value (line 1, column 4)"},
		{"unclosed", `{"a": [1, 2`, Limits{}, "a[1]: a comma or the end of the array is missing; the document ends here (line 1, column 12)"},
		{"trailing comma", `[1,]`, Limits{}, "[1]: invalid start of a JSON value: ']' (line 1, column 4)"},
		{"no colon", `{"a" 1}`, Limits{}, "a: a colon is missing after the key: '1' (line 1, column 6)"},
		{"no comma", "{\"a\": 1\n \"b\": 2}", Limits{}, "a: a comma or the end of the object is missing: '\"' (line 2, column 2)"},
		{"bare key", `{a: 1}`, Limits{}, "the document: a key in double quotes is missing: 'a' (line 1, column 2)"},
		{"single quotes", `'a'`, Limits{}, `the document: invalid start of a JSON value: '\'' (line 1, column 1)`},
		{"NaN", `{"a": NaN}`, Limits{}, "a: invalid start of a JSON value: 'N' (line 1, column 7)"},
		{"leading zero", `{"a": 007}`, Limits{}, "a: a number must not have leading zeros (line 1, column 7)"},
		{"point without digits", `1.`, Limits{}, "the document: a digit is missing after the point; the document ends here (line 1, column 3)"},
		{"exponent without digits", `1e+`, Limits{}, "the document: a digit is missing in the exponent; the document ends here (line 1, column 4)"},
		{"minus alone", `-`, Limits{}, "the document: a digit is missing; the document ends here (line 1, column 2)"},
		{"plus", `+1`, Limits{}, "the document: invalid start of a JSON value: '+' (line 1, column 1)"},
		{"newline in a string", "\"a\nb\"", Limits{}, "the document: unescaped control character (0x0a) in a string (line 1, column 3)"},
		{"unknown escape", `"\x41"`, Limits{}, "the document: invalid escape sequence (line 1, column 2)"},
		{"short escape", `"\u12"`, Limits{}, `the document: \u must be followed by four hexadecimal digits (line 1, column 2)`},
		{"open string", `"abc`, Limits{}, "the document: unterminated string (line 1, column 1)"},

		{"NUL", `{"é": {"b c": "x\u0000"}}`, Limits{}, `["é"]["b c"]: the string has a NUL (\u0000), which cannot be stored (line 1, column 17)`},
		{"NUL in a key", `{"a\u0000": 1}`, Limits{}, `the document: the string has a NUL (\u0000), which cannot be stored (line 1, column 4)`},
		{"high surrogate", `["\ud83d"]`, Limits{}, "[0]: the string has half of a surrogate pair, which is not a character (line 1, column 3)"},
		{"low surrogate", `["\ude00"]`, Limits{}, "[0]: the string has half of a surrogate pair, which is not a character (line 1, column 3)"},
		{"wrong pair", `["\ud83d\u0041"]`, Limits{}, "[0]: the string has half of a surrogate pair, which is not a character (line 1, column 3)"},
		{"not UTF-8", "{\"a\": \"\xff\"}", Limits{}, "the document: not valid UTF-8 (line 1, column 8)"},
		{"key twice", `{"a": 1, "b": {}, "a": 2}`, Limits{}, "a: duplicate key (line 1, column 19)"},
		{"key twice, spelled otherwise", `{"a": 1, "\u0061": 2}`, Limits{}, "a: duplicate key (line 1, column 10)"},
		{"first key of many twice", manyKeys + `"k0": 1}`, Limits{}, "k0: duplicate key (line 1, column 232)"},
		{"last key of many twice", manyKeys + `"k29": 1}`, Limits{}, "k29: duplicate key (line 1, column 232)"},
		{"many keys", manyKeys + `"a": {"k0": {"k1": 1}}}`, Limits{}, ""},
		{"large exponent", `[1e309]`, Limits{}, "[0]: the number 1e309 exceeds the range or precision of a 64-bit float (line 1, column 2)"},
		{"small exponent", `[1e-324]`, Limits{}, "[0]: the number 1e-324 exceeds the range or precision of a 64-bit float (line 1, column 2)"},
		{"smallest float", `[5e-324, 4.9406564584124654e-324, 2.2250738585072014e-308]`, Limits{}, ""},
		{"largest float", `[1.7976931348623157e308, 1e308, 1000e305, 0.001e311]`, Limits{}, ""},
		{"zero with any exponent", `[0e308, -0e5, 0.0e-300]`, Limits{}, ""},
		{"fine zero", `[0e-351]`, Limits{}, "[0]: a number has 352 digits when written out; the limit is 350 (line 1, column 2)"},
		{"overflow", `[9.9e308]`, Limits{}, "[0]: the number 9.9e308 exceeds the range or precision of a 64-bit float (line 1, column 2)"},
		{"huge exponent", `[1e99999999999]`, Limits{}, "[0]: the number 1e99999999999 exceeds the range or precision of a 64-bit float (line 1, column 2)"},
		{"long number", `[` + strings.Repeat("1", 300) + `.` + strings.Repeat("1", 51) + `]`, Limits{}, "[0]: a number has 351 digits when written out; the limit is 350 (line 1, column 2)"},
		{"number that is written out longer", `[1e20]`, small, "[0]: a number has 21 digits when written out; the limit is 20 (line 1, column 2)"},
		{"number that is written out shorter", `[1` + strings.Repeat("0", 5) + `e-5, 0.000001e6]`, small, ""},

		{"as deep as allowed", `[[[1]]]`, small, ""},
		{"too deep", `[[[[1]]]]`, small, "[0][0][0]: nested more than 3 levels deep (line 1, column 4)"},
		{"as many keys as allowed", `[{"a": 1, "b": 1}, {"a": 1, "b": 1}]`, small, ""},
		{"too many keys", `[{"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}]`, small, "[1].c: the document has more than 4 keys (line 1, column 37)"},
		{"as long as allowed", `"0123456789"`, small, ""},
		{"as long as allowed, escaped", `"\u0030\u0031\u0032\u0033\u0034\u0035\u0036\u0037\u0038\u0039"`, small, ""},
		{"too long", `["0123456789a"]`, small, "[0]: a string has 11 bytes; the limit is 10 (line 1, column 2)"},
		{"too long a key", `{"0123456789a": 1}`, small, "the document: a string has 11 bytes; the limit is 10 (line 1, column 2)"},
		{"as many values as allowed", `[1, "", {"a": [3, true, null, 2]}]`, small, ""},
		{"too many values", `[1, 2, [3, [4, 5, 6]], 7]`, small, "[3]: the document has more than 9 values (line 1, column 24)"},
		{"space does not count", strings.Repeat(" ", 200) + "1", small, ""},
		{"too large", `{"a": ["0123456789", "0123456789", "0123456789", "0123456789", "0123456789", "012345678", "0123456789` + strings.Repeat("\\u0001", 20) + `"]}`, Limits{Bytes: 200}, "the document has 224 bytes in the database's encoding; the limit is 200"},
		{"too large when it is read back", `[` + strings.Repeat("1e19,", 9) + `1]`, Limits{Bytes: 200}, "the document has 201 bytes in the database's encoding; the limit is 200"},
		{"too large by default", `["` + strings.Repeat("x", 2<<20) + `"]`, Limits{}, "the document has 2097156 bytes in the database's encoding; the limit is 1048576"},
		{"too many values by default", "[" + strings.Repeat("0,", 2<<20) + "0]", Limits{}, "[99999]: the document has more than 100000 values (line 1, column 200000)"},
		{"deep by default", strings.Repeat("[", 1<<20), Limits{}, strings.Repeat("[0]", 64) + ": nested more than 64 levels deep (line 1, column 65)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(json.RawMessage(tt.doc), tt.limits)
			if tt.want == "" {
				if err != nil || !json.Valid([]byte(tt.doc)) {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || err.Error() != tt.want {
				t.Fatalf("error %q, want %q", err, tt.want)
			}
			code := tasker.Invalid
			if strings.HasPrefix(tt.name, "too large") {
				code = tasker.TooLarge
			}
			if got := tasker.CodeOf(err); got != code {
				t.Errorf("code %s, want %s", got, code)
			}
			if e, ok := errors.AsType[*tasker.Error](err); ok && code == tasker.Invalid {
				if faults, ok := e.Details.([]tasker.Fault); !ok || len(faults) != 1 {
					t.Errorf("details %v, want one fault", e.Details)
				}
			}
		})
	}
}

func TestFaultsListsSeveral(t *testing.T) {
	faults, wellFormed := Faults([]byte("{\"a\": \"\\u0000\",\n\"a\": 1e999, \"b\": [\"\\ud800\"]}"), Limits{}, 10)
	want := `[line 1: a: the string has a NUL (\u0000), which cannot be stored line 2: a: duplicate key ` +
		`line 2: a: the number 1e999 exceeds the range or precision of a 64-bit float ` +
		`line 2: b[0]: the string has half of a surrogate pair, which is not a character]`
	if got := fmt.Sprint(faults); got != want || !wellFormed {
		t.Errorf("well-formed: %v, faults\n%s, want\n%s", wellFormed, got, want)
	}
	if faults, _ := Faults([]byte(`{"a": "\u0000", "a": 1e999}`), Limits{}, 2); len(faults) != 2 {
		t.Errorf("%d faults, want 2", len(faults))
	}
}

// TestCheckAgreesWithTheStandardLibrary: nothing that is not JSON is accepted,
// and what is refused as malformed is not JSON.
func TestCheckAgreesWithTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := aDocument().Draw(t, "document")
		_, wellFormed := Faults(doc, Limits{Depth: 1000}, 10)
		if valid := json.Valid(doc) && utf8.Valid(doc); valid != wellFormed {
			t.Fatalf("JSON: %v, taken for JSON: %v: %q", valid, wellFormed, doc)
		}
	})
}

// aDocument generates JSON, things like JSON, and anything.
func aDocument() *rapid.Generator[[]byte] {
	pieces := []string{"{", "}", "[", "]", ",", ":", `"a"`, `"b\u0000"`, `"\ud800"`, `"\ud83d\ude00"`, "1", "-0", "1e400", "true", "null", " ", "\n", "é", "\x00", "\xff", `"`, `\`}
	return rapid.OneOf(
		rapid.Map(value(3), func(v any) []byte {
			doc, _ := json.Marshal(v)
			return doc
		}),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12), func(p []string) []byte { return []byte(strings.Join(p, "")) }),
		rapid.SliceOfN(rapid.Byte(), 0, 30),
	)
}

func value(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{rapid.String().AsAny(), rapid.Float64().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil)}
	if depth > 0 {
		inner := rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) })
		kinds = append(kinds, rapid.SliceOfN(inner, 0, 4).AsAny(), rapid.MapOfN(rapid.String(), inner, 0, 4).AsAny())
	}
	return rapid.OneOf(kinds...)
}

func someLimits() *rapid.Generator[Limits] {
	return rapid.OneOf(rapid.Just(Limits{}), rapid.Custom(func(t *rapid.T) Limits {
		n := rapid.IntRange(0, 40)
		return Limits{
			Bytes: rapid.IntRange(0, 400).Draw(t, "bytes"), Depth: n.Draw(t, "depth"), Keys: n.Draw(t, "keys"),
			Values: n.Draw(t, "values"), StringBytes: n.Draw(t, "string"), Digits: n.Draw(t, "digits"),
		}
	}))
}

func TestCleanJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc, l := json.RawMessage(aDocument().Draw(t, "document")), someLimits().Draw(t, "limits")
		clean := CleanJSON(doc, l)
		switch {
		case clean == nil:
			if len(doc) > 0 && l.withDefaults().Bytes >= len("{}") {
				t.Fatalf("%q was lost", doc)
			}
		case Check(clean, l) != nil:
			t.Fatalf("%q became %q: %v", doc, clean, Check(clean, l))
		case Check(doc, l) == nil && string(clean) != string(doc):
			t.Fatalf("%q, which is fine, became %q", doc, clean)
		}
	})
}

func TestCleanJSONSaysWhatWasDropped(t *testing.T) {
	for doc, want := range map[string]string{
		"":  "",
		"1": "1",
		`{"a": "\u0000"}`: `{"dropped":"a: the string has a NUL (\\u0000), which cannot be stored (line 1, column 8)",` +
			`"original_bytes":15,"text":"{\"a\": \"\\u0000\"}"}`,
		"boom\x00\x1b[31m\xff\xfe": `{"dropped":"the document: not valid UTF-8 (line 1, column 11)","original_bytes":12,"text":"boom` + "\uFFFD" + `"}`,
	} {
		if got := string(CleanJSON([]byte(doc), Limits{})); got != want {
			t.Errorf("%q became %s, want %s", doc, got, want)
		}
	}
	huge := CleanJSON([]byte(`"`+strings.Repeat("<", 2<<20)+`"`), Limits{})
	if len(huge) < excerptBytes || len(huge) > 10*excerptBytes {
		t.Errorf("2 MiB became %d bytes", len(huge))
	}
}

func TestCleanText(t *testing.T) {
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"plain", 10, "plain"},
		{"plain", 5, "plain"},
		{"longer", 5, "lo…"},
		{"longer", 2, "lo"},
		{"longer", 0, ""},
		{"longer", -1, ""},
		{"", 0, ""},
		{"éééé", 6, "é…"},
		{"a\x00b\x1b[31mc\r\nd\te\x7f\u0085f", 100, "abc\nd\tef"},
		{"safe\u202egnp.exe\u2066\u200f", 100, "safe[RLO]gnp.exe[LRI]\u200f"},
		{"ab\u202e", 6, "ab[…"},
		{"\xff\xfe\xfda\xff", 100, "\uFFFDa\uFFFD"},
	} {
		if got := CleanText(tt.in, tt.most); got != tt.want {
			t.Errorf("CleanText(%q, %d) = %q, want %q", tt.in, tt.most, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		most := rapid.IntRange(0, 50).Draw(t, "most")
		out := CleanText(in, most)
		if len(out) > most || !utf8.ValidString(out) || strings.ContainsRune(out, 0) || CleanText(out, most) != out {
			t.Fatalf("CleanText(%q, %d) = %q", in, most, out)
		}
	})
}

func TestCutMiddle(t *testing.T) {
	mark := func(leftOut int) string { return fmt.Sprintf("[%d]", leftOut) }
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"plain", 5, "plain"},
		{"0123456789abcdef", 11, "012[9]cdef"},
		{"éééééééééé", 12, "éé[12]éé"},
		{"one two three four five", 18, "one two[9]ur five"},
		{"first line\nsecond line\nthird line\nfourth line\nfifth line", 40, "first line\nsecond[24]line\nfifth line"},
		{"longer", 3, "…"},
	} {
		if got := CutMiddle(tt.in, tt.most, mark); got != tt.want {
			t.Errorf("CutMiddle(%q, %d) = %q, want %q", tt.in, tt.most, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.StringOf(rapid.RuneFrom([]rune("abz é\n支"))).Draw(t, "text")
		most := rapid.IntRange(4, 200).Draw(t, "most")
		out := CutMiddle(in, most, mark)
		if len(out) > most || !utf8.ValidString(out) || len(in) <= most && out != in {
			t.Fatalf("CutMiddle(%q, %d) = %q", in, most, out)
		}
	})
}

// TestKeptDocumentsCanBeStored gives to a real PostgreSQL what Check accepts and
// what CleanJSON returns, as jsonb, and reads it back.
func TestKeptDocumentsCanBeStored(t *testing.T) {
	pool := pgtest.New(t).Pool(t)
	ctx := t.Context()
	store := func(t rapid.TB, doc json.RawMessage) {
		var back json.RawMessage
		if err := pool.QueryRow(ctx, "SELECT $1::jsonb", doc).Scan(&back); err != nil {
			t.Fatalf("%q cannot be stored: %v", doc, err)
		}
		if !json.Valid(back) {
			t.Fatalf("%q came back as %q", doc, back)
		}
	}
	for _, doc := range []string{
		`1e308`, `1e-308`, `-1.7976931348623157e308`, `0e308`, `{"": ""}`, `"` + strings.Repeat("x", 256<<10) + `"`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64), `"\u0001\u001f\ud83d\ude00\uffff"`, "\"\u007f\u0080\ufffe\"",
		"[" + strings.Repeat("1,", 90_000) + "1]",
	} {
		if err := Check([]byte(doc), Limits{}); err != nil {
			t.Errorf("%.50q: %v", doc, err)
			continue
		}
		store(t, json.RawMessage(doc))
	}
	rapid.Check(t, func(t *rapid.T) {
		doc := aDocument().Draw(t, "document")
		if clean := CleanJSON(doc, someLimits().Draw(t, "limits")); clean != nil {
			store(t, clean)
		}
		text := CleanText(string(doc), 1000)
		var back string
		if err := pool.QueryRow(ctx, "SELECT $1::text", text).Scan(&back); err != nil || back != text {
			t.Fatalf("%q came back as %q: %v", text, back, err)
		}
	})
}

func FuzzCheck(f *testing.F) {
	for _, doc := range []string{"", "{}", `{"a": [1, "\u0000", "\ud800"], "a": 1e999}`, "\xff", strings.Repeat("[", 100)} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if Check(doc, Limits{}) == nil && !json.Valid(doc) {
			t.Fatalf("%q is not JSON", doc)
		}
		if clean := CleanJSON(doc, Limits{}); clean != nil && Check(clean, Limits{}) != nil {
			t.Fatalf("%q became %q", doc, clean)
		}
	})
}
