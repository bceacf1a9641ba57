package payload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"tasker.example/tasker/internal/pgtest"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"
)

// roundTrip stores what [Measure] accepts as jsonb and fails unless it is read back with the same
// value, with just the bytes that Measure foretold, and is accepted again with the same size.
func roundTrip(ctx context.Context, t rapid.TB, pool *pgxpool.Pool, doc []byte, l Limits) {
	size, err := Measure(doc, l)
	if err != nil {
		return
	}
	var back string
	var octets int
	if err := pool.QueryRow(ctx, "SELECT d::text, octet_length(d::text) FROM (SELECT $1::jsonb AS d) _", doc).Scan(&back, &octets); err != nil {
		t.Fatalf("%q is accepted and cannot be stored: %v", doc, err)
	}
	if octets != size {
		t.Fatalf("%q has %d bytes as jsonb: %.400q; Measure says %d", doc, octets, back, size)
	}
	if again, err := Measure([]byte(back), l); err != nil || again != size {
		t.Fatalf("%q is read back as %.400q, which has %d bytes and is refused: %v", doc, back, again, err)
	}
	if sent, got := decoded(t, doc), decoded(t, []byte(back)); !reflect.DeepEqual(sent, got) {
		t.Fatalf("%q is read back as %.400q", doc, back)
	}
}

// decoded returns a document with its numbers as exact fractions.
func decoded(t rapid.TB, doc []byte) any {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q is accepted and cannot be decoded: %v", doc, err)
	}
	return exact(v)
}

func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, _ := new(big.Rat).SetString(v.String())
		return r.String()
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = exact(v[key])
		}
	}
	return v
}

// aNumber generates numbers near every edge of the rules, as they may be spelled.
func aNumber() *rapid.Generator[string] {
	digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?`)
	return rapid.OneOf(
		digits,
		rapid.Custom(func(t *rapid.T) string {
			return digits.Draw(t, "mantissa") + rapid.SampledFrom([]string{"e", "E", "e+", "e-", "E-0"}).Draw(t, "e") +
				strconv.Itoa(rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(290, 360)).Draw(t, "exponent"))
		}),
		rapid.Custom(func(t *rapid.T) string {
			f := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
			if math.IsNaN(f) || math.IsInf(f, 0) {
				f = 5e-324
			}
			return strconv.FormatFloat(f, rapid.SampledFrom([]byte("efg")).Draw(t, "format"), rapid.SampledFrom([]int{-1, 16, 17}).Draw(t, "precision"), 64)
		}),
	)
}

// aText generates a string literal with every kind of escape.
func aText() *rapid.Generator[string] {
	pieces := []string{
		`\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u0001`, `\u001F`, `\u0022`, `\u005c`, `\u002f`, `\u000a`, `\u007f`, `\u0080`,
		`\u20ac`, `\ud83d\ude00`, `\uFFFF`, "/", "<", "\u2028", "\x7f", "\u0085", "é", "😀", "a", " ",
	}
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 8), func(p []string) string { return `"` + strings.Join(p, "") + `"` })
}

// aValue generates JSON in spellings that no encoder of Go writes.
func aValue(depth int) *rapid.Generator[string] {
	kinds := []*rapid.Generator[string]{aNumber(), aText(), rapid.SampledFrom([]string{"true", "false", "null", "{}", "[ ]"})}
	if depth > 0 {
		inner := rapid.Deferred(func() *rapid.Generator[string] { return aValue(depth - 1) })
		space := rapid.SampledFrom([]string{"", "", " ", "\n\t"})
		kinds = append(kinds,
			rapid.Custom(func(t *rapid.T) string {
				list := rapid.SliceOfN(inner, 0, 5).Draw(t, "elements")
				return "[" + space.Draw(t, "space") + strings.Join(list, ","+space.Draw(t, "space")) + "]"
			}),
			rapid.Custom(func(t *rapid.T) string {
				list := rapid.SliceOfN(inner, 0, 5).Draw(t, "members")
				for i := range list {
					key := aText().Draw(t, "key")
					list[i] = fmt.Sprintf(`%s%d":%s`, key[:len(key)-1], i, list[i])
				}
				return "{" + strings.Join(list, space.Draw(t, "space")+",") + space.Draw(t, "space") + "}"
			}))
	}
	return rapid.OneOf(kinds...)
}

func TestWhatIsAcceptedIsReadBackAndAcceptedAgain(t *testing.T) {
	pool := pgtest.New(t).Pool(t)
	for _, doc := range []string{
		`1e308`, `5e-324`, `4.9406564584124654e-324`, `2.2250738585072014e-308`, `-1.7976931348623157e308`, `1e40`, `3.2e-41`,
		`-0`, `-0.0`, `0e308`, `0e-300`, `1.50e1`, `1.5e3`, `100e-2`, `9007199254740993`, `"\u0000"`, `"\u001f\u007f\u2028</script>"`,
		`{"b": 1, "a": {}, "aa": []}`, "[" + strings.Repeat("1e308,", 3000) + "1]",
	} {
		roundTrip(t.Context(), t, pool, []byte(doc), Limits{})
	}
	rapid.Check(t, func(rt *rapid.T) {
		roundTrip(t.Context(), rt, pool, []byte(aValue(3).Draw(rt, "document")), Limits{})
	})
}

// TestEveryFloatIsAccepted, in each of the spellings that programs give it, and
// as the database gives it back.
func TestEveryFloatIsAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			t.Skip("no number")
		}
		for _, text := range []string{
			strconv.FormatFloat(f, 'g', -1, 64), strconv.FormatFloat(f, 'e', 16, 64), strconv.FormatFloat(f, 'f', -1, 64),
		} {
			if wrong := CheckNumber(text, Limits{}); wrong != "" {
				t.Fatalf("%s: %s", text, wrong)
			}
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	pool := pgtest.New(f).Pool(f)
	for _, doc := range []string{
		`{"a": [1e308, 5e-324, 1e40, -0.0, 0e-300], "b": "\u001f\"\\/\n</", "": {}}`, ` [ 1 , 1.50e1, 100e-2 ] `, `"\ud83d\ude00"`,
		`1e309`, `1e-324`, `0e-351`, `1E+0000308`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) { roundTrip(t.Context(), t, pool, doc, Limits{}) })
}

func BenchmarkCheck(b *testing.B) {
	row := `{"id": 4711, "sku": "AB-1234-ü", "price": 19.99, "ok": true, "tags": ["a", "b\n"], "at": "2026-01-31T12:00:00Z", "rate": 1.5e-3}`
	long := strings.Replace(row, "AB-1234-ü", strings.Repeat("a longer text of an order, ", 25), 1)
	for name, doc := range map[string]string{
		"1KB":    "[" + strings.Repeat(row+",", 7) + row + "]",
		"100KB":  "[" + strings.Repeat(row+",", 799) + row + "]",
		"1MB":    "[" + strings.Repeat(long+",", 1199) + long + "]",
		"floats": "[" + strings.Repeat("0.123456789,", 9000) + "1]",
		"text":   `"` + strings.Repeat("plain text ", 9000) + `"`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if err := Check([]byte(doc), Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
