package architecture

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the repository, seen from this package, where go test runs.
const root = "../.."

// The limits of the style guide that no linter counts.
const (
	maxFiles = 15 // of a package, without its tests
	maxDepth = 3  // of one control statement in another
)

// largePackages and deepFunctions may exceed their limit, for the reason given.
// A function is named as in its file: path:Name.
var (
	largePackages = map[string]string{
		".":                 "the types of the domain, a file for each noun",
		"internal/api":      "the routes of one API, a file for each noun",
		"internal/ctl":      "a file for each noun of the command line: two packages would share how answers and errors are printed",
		"internal/engine":   "what moves tasks, a file for each cause: two packages would share the locks, the verdicts and the loops",
		"internal/postgres": "all SQL of the server, a file for each noun: two packages would share the transaction, the rows and the locks",
		"internal/web":      "the pages of one server, a file for each noun: two packages would share the frame, the forms and the access",
	}
	deepFunctions = map[string]string{}
)

// machinePath is the start of an absolute path that exists on one machine only.
// It is no match for itself, so this file is read like all others.
var machinePath = regexp.MustCompile(`(^|[^\w.-])/(work|root)/`)

func TestPackagesAreSmall(t *testing.T) {
	files := map[string]int{}
	eachFile(t, func(name string, content []byte) {
		if isOurCode(name, content) {
			files[path.Dir(name)]++
		}
	})
	for dir, n := range files {
		if n > maxFiles && largePackages[dir] == "" {
			t.Errorf("%s has %d files, more than %d: divide it, or join files that are about one thing", dir, n, maxFiles)
		}
	}
	for dir, why := range largePackages {
		if files[dir] <= maxFiles {
			t.Errorf("%s has %d files and needs no exception (%s)", dir, files[dir], why)
		}
	}
}

func TestFunctionsAreFlat(t *testing.T) {
	eachFile(t, func(name string, content []byte) {
		if !isOurCode(name, content) {
			return
		}
		for function, depth := range depths(t, name, content) {
			if depth > maxDepth && deepFunctions[name+":"+function] == "" {
				t.Errorf("%s: %s has control statements nested %d deep, more than %d: give the inner part a name of its own",
					name, function, depth, maxDepth)
			}
		}
	})
}

func TestDepthCountsControlStatements(t *testing.T) {
	const source = `package p
func flat() { x() }
func (r *R) three() { for range x { if a { switch b { case 1: x() } } } }
func chain() { if a { x() } else if b { x() } else if c { x() } else { x() } }
func four() { for { select { case <-c: if a { for range x { } } } } }
func literal() { if a { if b { if c { f(func() { if d { x() } }) } } } }
`
	got := depths(t, "p.go", []byte(source))
	want := map[string]int{"flat": 0, "three": 3, "chain": 1, "four": 4, "literal": 3}
	for function, depth := range want {
		if got[function] != depth {
			t.Errorf("%s is %d deep, want %d", function, got[function], depth)
		}
	}
}

func TestNothingNamesAMachine(t *testing.T) {
	eachFile(t, func(name string, content []byte) {
		for i, line := range bytes.Split(content, []byte("\n")) {
			if machinePath.Match(line) {
				t.Errorf("%s:%d names a path of one machine: %s", name, i+1, line)
			}
		}
	})
}

// eachFile calls f with the path and the content of every text file of the
// repository. Files that git ignores are left out.
func eachFile(t *testing.T, f func(name string, content []byte)) {
	t.Helper()
	ignored := map[string]bool{
		".git": true, ".cache": true, "bin": true, "artifacts": true, ".idea": true, ".vscode": true, "sdk/typescript/dist": true,
	}
	caches := map[string]bool{
		"node_modules": true, "__pycache__": true, ".mypy_cache": true, ".pytest_cache": true, ".ruff_cache": true, ".hypothesis": true,
	}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another package's test has just removed it
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() && (ignored[name] || caches[entry.Name()]) {
			return filepath.SkipDir
		}
		if !entry.Type().IsRegular() || name == ".git" { // a file in a linked worktree
			return nil
		}
		content, err := os.ReadFile(file)
		if err == nil && bytes.IndexByte(content, 0) < 0 {
			f(name, content)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatalf("read the repository: %v", err)
	}
}

// isOurCode tells whether a file is Go that somebody wrote, and no test.
func isOurCode(name string, content []byte) bool {
	if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
		return false
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.PackageClauseOnly|parser.ParseComments)
	return err != nil || !ast.IsGenerated(file)
}

// depths returns, for each function of a file, how deep its control statements
// are nested. A function literal starts anew: it is a function without a name.
func depths(t *testing.T, name string, content []byte) map[string]int {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("parse %s: %v", name, err)
		return nil
	}
	deepest := map[string]int{}
	for _, decl := range file.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok && function.Body != nil {
			v := &depthVisitor{deepest: new(int)}
			ast.Walk(v, function.Body)
			deepest[function.Name.Name] = max(deepest[function.Name.Name], *v.deepest)
		}
	}
	return deepest
}

// depthVisitor is told by ast.Walk of each node below one control statement.
type depthVisitor struct {
	depth   int  // of the node that it visits
	deepest *int // of all nodes of the function
	chained *ast.IfStmt
}

// Visit returns the visitor for the children of a node.
func (v *depthVisitor) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.FuncLit:
		return &depthVisitor{deepest: v.deepest}
	case *ast.IfStmt:
		depth := v.depth + 1
		if n == v.chained {
			depth = v.depth // else if: no deeper than its if
		}
		*v.deepest = max(*v.deepest, depth)
		next, _ := n.Else.(*ast.IfStmt)
		return &depthVisitor{depth: depth, deepest: v.deepest, chained: next}
	case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
		*v.deepest = max(*v.deepest, v.depth+1)
		return &depthVisitor{depth: v.depth + 1, deepest: v.deepest}
	default:
		return v
	}
}
