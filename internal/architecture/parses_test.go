package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parsers are the functions that read a whole JSON document.
var parsers = map[string]bool{
	"json.Unmarshal": true, "json.Valid": true, "json.NewDecoder": true, "json.Compact": true,
	"jsonschema.UnmarshalJSON": true, "payload.Check": true, "payload.Measure": true, "payload.Faults": true, "payload.Decode": true,
	"payload.Canonical": true, "payload.CleanJSON": true, "payload.NewReader": true, "payload.NewTolerantReader": true,
}

// parses has every place at which a request is parsed on its way through API and engine,
// with the reason. A body is read twice: judged, and decoded. A document inside it, such as
// the context of a task, is read once more by the engine, which programs also call without the API.
var parses = map[string]string{
	"internal/api (*server).check payload.NewReader":                   "every body but reported results: judged",
	"internal/api (*request).read json.Unmarshal":                      "every body but reported results: decoded",
	"internal/api (*checker).checkVariant payload.NewTolerantReader":   "step actions only: the property that selects the shape, then the shape",
	"internal/api (*request).readReportBody payload.NewTolerantReader": "reported results: taken apart",
	"internal/api newInvalidJSONError payload.Faults":                  "reported results that are malformed: the place",
	"internal/api (*request).readClaim json.Unmarshal":                 "the claim inside reported results",
	"internal/api readClaimReady json.Unmarshal":                       "whether reported results ask only for what becomes ready by them",
	"internal/api decodeString payload.NewTolerantReader":              "one string of a reported result",
	"internal/api readFailure payload.NewTolerantReader":               "the error of a failed attempt: taken apart",
	"internal/api newMalformedFailure payload.CleanJSON":               "the error of a failed attempt that is not as the protocol says",
	"internal/engine check payload.Decode":                             "the context of a task: judged, measured and decoded at once",
	"internal/engine encodeResult payload.Measure":                     "the result of a step",
	"internal/engine encodeResult payload.Check":                       "the metadata of a step's result",
	"internal/engine encodeFailure payload.CleanJSON":                  "the context of a failure",
	"internal/engine encodeReportedFacts payload.Canonical":            "a result that is reported again in other words",
	"internal/engine encodeReportedFacts json.Unmarshal":               "a result that is reported again in other words",
	"internal/engine (*decision).expandItems payload.Measure":          "an element of a list that an expression gives",
	"internal/engine omitPath json.Unmarshal":                          "the context that is stored, of which the list of a map step is left out",
	"internal/engine (*Engine).SaveCheckpoint payload.Measure":         "the checkpoint of a step",
	"internal/engine (*firingPass).newScheduledTask json.Unmarshal":    "the context of a schedule that gets its instant",
	"internal/engine toOutcomes json.Unmarshal":                        "a result that was kept for later",
	"internal/engine decodeFailure json.Unmarshal":                     "a failure that was kept for later",
	"internal/engine (*migration).checkContext payload.Decode":         "the context that is stored, against the schema of another version",
	"internal/engine (*creation).mergeRequest payload.Decode":          "the context of a request that is merged into a task of another version, against its schema",
	"internal/engine (*outcome).withDecision json.Unmarshal":           "the result of a decision only: which steps it names",
	"internal/engine parseNamedSteps json.Unmarshal":                   "the result of a decision only: which steps it names",
	"internal/engine parseNameList json.Unmarshal":                     "the result of a decision only: which steps it names",
}

func TestARequestIsParsedAtKnownPlaces(t *testing.T) {
	want := map[string]bool{}
	for place := range parses {
		want[place] = true
	}
	got := map[string]bool{}
	for _, dir := range []string{"internal/api", "internal/engine"} {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of %s: %v", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				for _, call := range parsesOf(decl) {
					got[dir+" "+call] = true
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests are parsed at other places than the list says (-list +code):\n%s", diff)
	}
}

// parsesOf returns the calls of a function that read a document.
func parsesOf(decl ast.Decl) (calls []string) {
	f, ok := decl.(*ast.FuncDecl)
	if !ok {
		return nil
	}
	name := f.Name.Name
	if f.Recv != nil {
		receiver := f.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		name = fmt.Sprintf("(*%s).%s", receiver, name)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := s.X.(*ast.Ident); ok && parsers[pkg.Name+"."+s.Sel.Name] {
				calls = append(calls, name+" "+pkg.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return calls
}
