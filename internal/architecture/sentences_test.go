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

// TestSentencePatternsOnlyDecrease fails when a package has more or fewer doc comments or texts, or a page more or fewer
// lines, with one of the patterns than testdata/sentence-patterns.txt says. Write the new sentence in plain English, or
// run it with -update after you have rewritten some.
func TestSentencePatternsOnlyDecrease(t *testing.T) {
	const list = "testdata/sentence-patterns.txt"
	found, total := map[string]int{}, 0
	places := map[string][]string{}
	count := func(key, file string, sentences map[int]string) {
		total += len(sentences)
		for line, text := range sentences {
			for example, pattern := range sentencePatterns {
				if pattern.MatchString(text) {
					found[key]++
					places[key] = append(places[key], fmt.Sprintf("%s:%d reads like %q", file, line, example))
					break
				}
			}
		}
	}
	eachFile(t, func(name string, content []byte) {
		switch {
		case path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go"):
			comments, texts := sentences(t, name, content)
			count("comments "+path.Dir(name), name, comments)
			count("texts "+path.Dir(name), name, texts)
		case path.Ext(name) == ".md":
			count("page "+name, name, prose(content))
		}
	})
	if total < 1000 {
		t.Fatalf("%d sentences were read", total)
	}
	var now bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&now, "%s %d\n", key, found[key])
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
		var kind, where string
		var n int
		if _, err := fmt.Sscan(line, &kind, &where, &n); err != nil {
			t.Fatalf("%s: %q: %v", list, line, err)
		}
		allowed[kind+" "+where] = n
	}
	for key, n := range found {
		if n > allowed[key] {
			slices.Sort(places[key])
			t.Errorf("%s: %d do not read as plain English, %d are allowed:\n%s", key, n, allowed[key], strings.Join(places[key], "\n"))
		}
	}
	for key, n := range allowed {
		if found[key] < n {
			t.Errorf("%s: %d have a pattern and no longer %d: run the test with -update", key, found[key], n)
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

// statement matches a literal that is SQL and not a text for people.
var statement = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|CREATE|AND|CASE)\b`)

// sentences returns the doc comments of the declarations and fields of a file, and the literals of
// three words or more, by line.
func sentences(t *testing.T, name string, content []byte) (comments, texts map[int]string) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, content, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments, texts = map[int]string{}, map[int]string{}
	add := func(groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if g != nil {
				comments[files.Position(g.Pos()).Line] = strings.ReplaceAll(g.Text(), "\n", " ")
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
		case *ast.BasicLit:
			if x.Kind == token.STRING && len(strings.Fields(x.Value)) >= 3 && !statement.MatchString(x.Value) {
				texts[files.Position(x.Pos()).Line] = strings.Trim(x.Value, "\"`")
			}
		}
		return true
	})
	return comments, texts
}

// prose returns the lines of a page outside of code, by line.
func prose(content []byte) map[int]string {
	lines, code := map[int]string{}, false
	for i, line := range strings.Split(string(content), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			lines[i+1] = line
		}
	}
	return lines
}
