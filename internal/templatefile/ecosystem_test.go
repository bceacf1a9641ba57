package templatefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tasker.example/tasker"

	"github.com/google/go-cmp/cmp"
)

// refusedShapes are the files of testdata/ecosystem that are refused; all others register.
var refusedShapes = map[string]bool{
	"no_attempts": true, "retry_limit": true, "methods": true, "resolvers": true, "events": true,
	"fibonacci": true, "without_backoff": true,
}

// Templates in the shapes of the Tasker ecosystem, with each key of its documents, register, or
// are refused with the reasons in the file beside them: what has an effect there and none here.
func TestTemplatesOfTheEcosystem(t *testing.T) {
	t.Parallel()
	all := files(t, "testdata/ecosystem/*.yaml")
	if len(all) < 20 {
		t.Errorf("%d files", len(all))
	}
	refused := 0
	for _, name := range all {
		shape := strings.TrimSuffix(filepath.Base(name), ".yaml")
		parsed, _, err := Parse(readFile(t, name))
		if !refusedShapes[shape] {
			if err != nil {
				t.Errorf("%s: %v", shape, err)
			}
			for _, s := range parsed.Steps {
				if s.Type != tasker.StandardStep && s.Type != tasker.DecisionStep && s.Type != tasker.MapStep {
					t.Errorf("%s: step %s is of type %s", shape, s.Name, s.Type)
				}
			}
			continue
		}
		refused++
		var b strings.Builder
		for _, fault := range faultsOf(t, err) {
			fmt.Fprintln(&b, fault)
		}
		golden := strings.TrimSuffix(name, ".yaml") + ".faults"
		if *update {
			if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(string(readFile(t, golden)), b.String()); diff != "" {
			t.Errorf("%s: faults differ (-want +got):\n%s", shape, diff)
		}
	}
	if refused != len(refusedShapes) {
		t.Errorf("%d of the files are refused, and %d are listed", refused, len(refusedShapes))
	}
}

// A step in which branches come together is a standard one with another join.
func TestAConvergenceIsAJoin(t *testing.T) {
	t.Parallel()
	parsed, _, err := Parse(readFile(t, "testdata/ecosystem/approval.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	last := parsed.Steps[len(parsed.Steps)-1]
	if last.Type != tasker.StandardStep || last.Join != tasker.JoinNoneFailed || parsed.Steps[1].Type != tasker.DecisionStep {
		t.Errorf("read as %+v", parsed.Steps)
	}
}
