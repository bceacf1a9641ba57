package fingerprint

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Whatever the text, its pattern is short and valid, and so is the pattern of the pattern.
func FuzzNormalise(f *testing.F) {
	for _, r := range Rules() {
		for _, e := range r.Examples {
			f.Add("*pgconn.PgError", e[0])
		}
	}
	for _, l := range readCorpus(f, "testdata/corpus.jsonl") {
		f.Add(l.Type, l.Message)
	}
	for _, part := range hostile {
		f.Add(part, strings.Repeat(part, 300))
	}
	f.Add("", "\xff\xfe\x00")
	f.Add("", strings.Repeat("<", 5000))
	f.Fuzz(func(t *testing.T, typ, message string) {
		c := Normalize(Failure{Type: typ, Message: message})
		if !utf8.ValidString(c.Pattern) || utf8.RuneCountInString(c.Pattern) > MaxPattern || strings.ContainsAny(c.Pattern, "\n\x00") {
			t.Errorf("%q becomes %q", message, c.Pattern)
		}
		if len(c.Key) != 32 || len(c.Masked) > maxMasked {
			t.Errorf("%q: key %q, %d masks", message, c.Key, len(c.Masked))
		}
		seen := map[string]bool{}
		for _, id := range c.Rules {
			if seen[id] {
				t.Errorf("%q: the rule %s is listed twice", message, id)
			}
			seen[id] = true
		}
		for _, m := range c.Masked {
			if !labels[m.Label] || len(m.Text) > maxMask || !utf8.ValidString(m.Text) {
				t.Errorf("%q: mask %+v", message, m)
			}
		}
	})
}

// The pattern of a pattern is the pattern: nothing that was decided is decided again. Texts
// that lose their middle are left out.
func TestPatternsAreStable(t *testing.T) {
	t.Parallel()
	for _, l := range readCorpus(t, "testdata/corpus.jsonl") {
		first := Normalize(Failure{Message: l.Message}).Pattern
		if again := Normalize(Failure{Message: first}).Pattern; again != first && !strings.Contains(first, "…") {
			t.Errorf("%q\n\tbecomes %q\n\tand then %q", l.Message, first, again)
		}
	}
}

// hostile are texts that a scanner may look at again and again.
var hostile = []string{"{", "{a:", `{"a":`, "[{a:", "a(", "=(", "'", `"`, "\"a ", "„", "«a", "a ", "A ", "a-", "1-", "1:", "a:", "::", "a=", "/", "a/", "<", "<ip>:", "1.", "10.0.0.1, ", "user ", "of ", "A b: ",
	"http://", "\\", "\n", "\nat a(", "Traceback (most recent call last):\n", "Caused by: ", "\x1b[", "\xff", "1 s ", "1s", "Jan 1 ", "a_", "<id>, "}

// The time of a text grows with its length, whatever it consists of. The bound is a hundred
// times what it takes, and a hundredth of what quadratic time would take.
func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	for _, part := range hostile {
		message := strings.Repeat(part, maxEssence/len(part))
		shortest := time.Hour
		for round := 0; round < 5 && shortest > 200*time.Millisecond; round++ { // one of which a loaded machine does not hold up
			start := time.Now()
			Normalize(Failure{Type: message, Message: message})
			shortest = min(shortest, time.Since(start))
		}
		if shortest > 200*time.Millisecond {
			t.Errorf("%q again and again takes %s", part, shortest)
		}
	}
}

func BenchmarkHostile(b *testing.B) {
	for _, part := range hostile {
		b.Run(fmt.Sprintf("%q", part), func(b *testing.B) {
			message := strings.Repeat(part, maxEssence/len(part))
			for b.Loop() {
				Normalize(Failure{Message: message})
			}
		})
	}
}

func BenchmarkNormalise(b *testing.B) {
	const text = `charge order 4711: Post "https://payments.example.com/v1/charges/ch_8fK2lQx9": dial tcp 10.0.3.7:443: connect: connection refused (attempt 3 of 5, 1.203s, request 0190a5b2-7c1e-7d3f-9a44-0c8be1f2d6a7); `
	for _, bb := range []struct {
		name string
		size int
	}{{"300 bytes", 300}, {"2048 bytes", 2048}, {"16 KiB", 16 << 10}, {"64 KiB", maxEssence}} {
		b.Run(bb.name, func(b *testing.B) {
			message := strings.Repeat(text, bb.size/len(text)+1)[:bb.size]
			b.SetBytes(int64(bb.size))
			b.ReportAllocs()
			for b.Loop() {
				Normalize(Failure{Type: "*url.Error", Message: message})
			}
		})
	}
}
