package architecture

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unchangeable has files that others wrote, and migrations: those that were applied stay
// as they are.
var unchangeable = []string{"internal/schema/migrations/*", "internal/browsertest/axe.min.js", "internal/web/static/idiomorph*", "internal/*/testdata/corpus/*", "internal/fingerprint/testdata/*.jsonl", "go.sum", "*/go.sum", "*/go.mod"}

// Names and texts use the words of the field, docs/reference/glossary.md first among them.
func TestBannedWordsAreNotUsed(t *testing.T) {
	banned := bannedWords(t)
	eachFile(t, func(name string, content []byte) {
		if name == "docs/reference/glossary.md" || strings.HasPrefix(name, "internal/architecture/") || matchesAny(name, unchangeable) {
			return
		}
		found := slices.DeleteFunc(slices.Clone(banned), func(b bannedWord) bool { return !b.pattern.Match(content) })
		if len(found) == 0 {
			return
		}
		for i, line := range strings.Split(string(content), "\n") {
			for _, b := range found {
				if word := b.pattern.FindString(line); word != "" {
					t.Errorf("%s:%d says %q; say %s: %s", name, i+1, word, b.instead, strings.TrimSpace(line))
				}
			}
		}
	})
}

func TestBannedWordsAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"listKin()": true, "kind of kin": true, "mending": true, "newBell": true, "a bell": true, "labels": false, "labelled": false,
		"on a lower floor": true, "floor(x)": false, "no room for more": false, "what he said": true, "the cache": false, "a circle": true, "is no JSON": true,
	} {
		found := false
		for _, b := range bannedWords(t) {
			found = found || b.pattern.MatchString(text)
		}
		if found != want {
			t.Errorf("%q: found is %v, want %v", text, found, want)
		}
	}
}

// The glossary has the words that are used everywhere, and each other document those of its part: so the
// glossary stays as short as one that is read.
func TestEachWordIsExplainedOnce(t *testing.T) {
	const heading = "| word | meaning | not |\n|---|---|---|\n"
	explained, words := map[string]string{}, map[string]int{}
	eachFile(t, func(name string, content []byte) {
		_, table, found := strings.Cut(string(content), heading)
		if !found || path.Ext(name) != ".md" {
			return
		}
		for row := range strings.SplitSeq(table, "\n") {
			cells := strings.Split(row, "|")
			if len(cells) != 5 {
				break
			}
			word := strings.TrimSpace(cells[1])
			if other, twice := explained[word]; twice {
				t.Errorf("%s explains %q, and so does %s", name, word, other)
			}
			explained[word] = name
			words[name]++
		}
	})
	const glossary, most = "docs/reference/glossary.md", 40
	if n := words[glossary]; n == 0 || n > most {
		t.Errorf("%s has %d words, and must have 1 to %d: words of one part belong into its document", glossary, n, most)
	}
	text, err := os.ReadFile("../../" + glossary)
	if err != nil {
		t.Fatal(err)
	}
	for name := range words {
		page, err := filepath.Rel(path.Dir(glossary), name)
		if err != nil {
			t.Fatal(err)
		}
		if link := "(" + filepath.ToSlash(page) + "#words)"; name != glossary && !strings.Contains(string(text), link) {
			t.Errorf("%s explains words, and %s has no link %s", name, glossary, link)
		}
	}
}

// A bannedWord is a line of testdata/banned-words.txt.
type bannedWord struct {
	pattern *regexp.Regexp
	instead string
}

func bannedWords(t *testing.T) []bannedWord {
	t.Helper()
	text, err := os.ReadFile("testdata/banned-words.txt")
	if err != nil {
		t.Fatal(err)
	}
	var list []bannedWord
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		pattern, instead, ok := strings.Cut(line, "\t")
		switch {
		case strings.HasPrefix(line, "#"):
		case !ok:
			t.Fatalf("banned-words.txt: %q has no tab before what to say instead", line)
		default:
			list = append(list, bannedWord{regexp.MustCompile(pattern), instead})
		}
	}
	return list
}

func matchesAny(name string, patterns []string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
}
