package architecture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
)

// module is the path of this module, as go.mod has it.
const module = "tasker.example/tasker"

// layers has every package, by its path in the module. A package imports only packages
// in lower layers; imports of tests are not counted. The word * stands for the name of any one package.
var layers = [][]string{
	0: {".", "internal/httpclient", "internal/number", "internal/sqlfile", "internal/suggest", "internal/terminal"},
	1: {
		"apiv1", "internal/access", "internal/batch", "internal/idp", "internal/oidctest", "internal/childproc", "internal/fingerprint", "internal/version", "internal/notice", "internal/hostguard", "internal/architecture", "internal/core",
		"internal/loop", "internal/metrics", "internal/overload", "internal/payload", "internal/redact", "internal/schedule", "internal/schema",
		"internal/expression", "internal/testtool",
	},
	2: {"internal/endpoint", "internal/query"},
	3: {"internal/invariants", "client", "internal/cli", "internal/browsertest", "internal/config", "internal/devpg", "internal/mqtest", "internal/postgres", "internal/amqp", "internal/telemetry", "internal/templatefile", "internal/testclock", "sdk/conformance/program", "sdk/conformance/scripted", "worker"},
	4: {"internal/auth", "internal/doctor", "internal/dlq", "internal/drill", "internal/engine", "internal/feed", "internal/pgtest", "internal/pgtest/fixture", "internal/sink", "rabbitmq", "sdk/conformance/cases", "sdk/conformance/live", "workertest"},
	5: {"internal/cases", "internal/ctl", "internal/dispatch", "internal/emission", "internal/evidencefile", "internal/explain", "internal/hold", "internal/incidentreport", "internal/operation"},
	6: {"internal/api", "internal/demo", "internal/enginehook", "internal/enginetest", "internal/web"},
	7: {"deploy", "embedded", "internal/app"},
	8: {"taskertest"},
	9: {"sdk/conformance", "sdk/conformance/polyglot", "sdk/conformance/worker", "cmd/*", "examples/*", "examples/patterns/*", "internal/e2e"},
}

// A goPackage is what go list prints of a package.
type goPackage struct {
	ImportPath string
	Imports    []string
}

func TestPackagesImportOnlyLowerLayers(t *testing.T) {
	for _, violation := range violations(listPackages(t)) {
		t.Error(violation)
	}
}

func TestLayersRefuse(t *testing.T) {
	for _, tt := range []struct {
		name string
		pkg  goPackage
		want string // part of the one violation; empty if there is none
	}{
		{"nothing: a lower layer", goPackage{module + "/internal/engine", []string{"fmt", module, module + "/internal/postgres"}}, ""},
		{"the same layer", goPackage{module + "/internal/loop", []string{module + "/internal/hostguard"}}, "loop (layer 1) imports internal/hostguard (layer 1)"},
		{"a higher layer", goPackage{module + "/internal/engine", []string{module + "/internal/operation"}}, "engine (layer 4) imports internal/operation (layer 5)"},
		{"any import of ours at the root", goPackage{module, []string{module + "/apiv1"}}, ". (layer 0) imports apiv1 (layer 1)"},
		{"a command that uses another", goPackage{module + "/cmd/tasker", []string{module + "/cmd/tasker-ctl"}}, "(layer 9)"},
		{"a package that is not listed", goPackage{module + "/internal/util", nil}, "internal/util is in no layer"},
		{"a package within a package", goPackage{module + "/internal/api/v2", nil}, "internal/api/v2 is in no layer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := violations([]goPackage{tt.pkg})
			if tt.want == "" && len(got) == 0 {
				return
			}
			if tt.want == "" || len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("got %q, want one with %q", got, tt.want)
			}
		})
	}
}

// violations returns a sentence for each import that the layers forbid.
func violations(packages []goPackage) []string {
	var all []string
	for _, p := range packages {
		from, _ := inside(p.ImportPath)
		layer := layerOf(from)
		if layer < 0 {
			all = append(all, from+" is in no layer: add it to the list of layers")
			continue
		}
		for _, imported := range p.Imports {
			to, ours := inside(imported)
			if ours && layerOf(to) >= layer {
				all = append(all, fmt.Sprintf("%s (layer %d) imports %s (layer %d)", from, layer, to, layerOf(to)))
			}
		}
	}
	return all
}

// inside returns the path of a package within the module, and whether it has one.
func inside(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// layerOf returns the layer of a package, or -1 if it is not listed.
func layerOf(name string) int {
	for layer, packages := range layers {
		for _, pattern := range packages {
			if ok, _ := path.Match(pattern, name); ok {
				return layer
			}
		}
	}
	return -1
}

// listPackages asks the go command for every package of the module.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var packages []goPackage
	for list := json.NewDecoder(bytes.NewReader(out)); list.More(); {
		var p goPackage
		if err := list.Decode(&p); err != nil {
			t.Fatalf("read the list of packages: %v", err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatal("the module has no packages")
	}
	return packages
}
