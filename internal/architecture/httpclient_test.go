package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// makers are the names of net/http that make a client, or use one that all callers share.
var makers = map[string]bool{
	"Client": true, "Transport": true, "DefaultClient": true, "DefaultTransport": true, "Get": true, "Head": true, "Post": true, "PostForm": true,
}

// Only internal/httpclient makes HTTP clients. Other packages name their types only as pointers.
func TestHTTPClientsAreMadeInOnePlace(t *testing.T) {
	found := false
	for _, dir := range []string{".", "client", "cmd", "embedded", "internal", "rabbitmq", "taskertest", "worker", "workertest"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && dir == "." && path != root:
				return filepath.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			places := clientsMade(t, path)
			if filepath.ToSlash(path) == root+"/internal/httpclient/httpclient.go" {
				found = len(places) > 0
				return nil
			}
			for _, place := range places {
				t.Errorf("%s makes an HTTP client: use internal/httpclient, which bounds all answers", place)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Error("internal/httpclient makes no client: this test does not find them")
	}
}

// clientsMade returns the places of a file at which an HTTP client is made or shared.
func clientsMade(t *testing.T, path string) (places []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if _, ok := n.(*ast.StarExpr); ok {
			return false // a pointer to a client is no new one
		}
		if name, ok := n.(*ast.SelectorExpr); ok && makers[name.Sel.Name] {
			if of, ok := name.X.(*ast.Ident); ok && of.Name == "http" {
				places = append(places, files.Position(name.Pos()).String())
			}
		}
		return true
	})
	return places
}
