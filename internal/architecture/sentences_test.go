package architecture

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/sentence-patterns.txt")

// sentencePatterns match sentences of doc comments that do not read as plain English, each with an example.
var sentencePatterns = map[string]*regexp.Regexp{
	"Options is what an engine is told":    regexp.MustCompile(`^(An? |The )?[\w.]+ (is|are) (what|who|how|where|when|why|whether|those|whose)\b`),
	"What was reported is committed":       regexp.MustCompile(`(^|\. )(What|Who|Whoever|Whatever) [a-z]+`),
	"it tells the caller of the step":      regexp.MustCompile(`(?i)\b(tells?|told|hears?|heard|says?|said)\b`),
	"the look for stale tasks":             regexp.MustCompile(`(?i)\b(an?|the) looks?\b|\blooks? for\b`),
	"nil means nobody":                     regexp.MustCompile(`(?i)\bnobody\b`),
	"the task goes on and is put aside":    regexp.MustCompile(`(?i)\b(goes? on|puts? aside|sets? aside|gives? back|given back|lets? go)\b`),
	"a task that stands still in the rest": regexp.MustCompile(`(?i)\b(stands? still|comes? to rest|is brought to|all the same|anew)\b`),
}

// TestSentencePatternsOnlyDecrease fails when a package has more or fewer doc comments with one of the patterns than
// testdata/sentence-patterns.txt says. Write the new comment in plain English, or run it with -update after
// you have rewritten some.
func TestSentencePatternsOnlyDecrease(t *testing.T) {
	const list = "testdata/sentence-patterns.txt"
	found, total := map[string]int{}, 0
	places := map[string][]string{}
	eachFile(t, func(name string, content []byte) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return
		}
		for line, text := range docComments(t, name, content) {
			total++
			for example, pattern := range sentencePatterns {
				if pattern.MatchString(text) {
					dir := path.Dir(name)
					found[dir]++
					places[dir] = append(places[dir], fmt.Sprintf("%s:%d reads like %q", name, line, example))
					break
				}
			}
		}
	})
	if total < 1000 {
		t.Fatalf("%d doc comments were read", total)
	}
	var now bytes.Buffer
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&now, "%s %d\n", dir, found[dir])
	}
	if *update {
		if err := os.WriteFile(list, now.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]int{}
	for line := range strings.SplitSeq(strings.TrimSpace(string(stored)), "\n") {
		var dir string
		var n int
		if _, err := fmt.Sscan(line, &dir, &n); err != nil {
			t.Fatalf("%s: %q: %v", list, line, err)
		}
		allowed[dir] = n
	}
	for dir, n := range found {
		if n > allowed[dir] {
			slices.Sort(places[dir])
			t.Errorf("%s has %d doc comments that do not read as plain English, %d are allowed:\n%s", dir, n, allowed[dir], strings.Join(places[dir], "\n"))
		}
	}
	for dir, n := range allowed {
		if found[dir] < n {
			t.Errorf("%s has %d doc comments with a pattern and no longer %d: run the test with -update", dir, found[dir], n)
		}
	}
}

func TestSentencePatternsAreFound(t *testing.T) {
	for example, pattern := range sentencePatterns {
		if !pattern.MatchString(example) {
			t.Errorf("%s does not match its example %q", pattern, example)
		}
	}
	for _, plain := range []string{"Options configures an Engine.", "NotFound is returned if the task does not exist.", "ClaimSteps leases up to limit ready steps to the worker."} {
		for example, pattern := range sentencePatterns {
			if pattern.MatchString(plain) {
				t.Errorf("the pattern of %q matches %q", example, plain)
			}
		}
	}
}

// docComments returns the comments of the declarations and fields of a file, by line.
func docComments(t *testing.T, name string, content []byte) map[int]string {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, content, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]string{}
	add := func(groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if g != nil {
				all[files.Position(g.Pos()).Line] = strings.ReplaceAll(g.Text(), "\n", " ")
			}
		}
	}
	add(f.Doc)
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.FuncDecl:
			add(x.Doc)
		case *ast.GenDecl:
			add(x.Doc)
		case *ast.TypeSpec:
			add(x.Doc, x.Comment)
		case *ast.ValueSpec:
			add(x.Doc, x.Comment)
		case *ast.Field:
			add(x.Doc, x.Comment)
		}
		return true
	})
	return all
}
