package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tasker.example/tasker/sdk/conformance/cases"
)

// program is the conformance worker of the Go SDK.
var program string

// misbehaviorEnv makes this test binary a worker that breaks the rule that it names.
const misbehaviorEnv = "SMALL_WORKER_MISBEHAVIOR"

func TestMain(m *testing.M) {
	if rule := os.Getenv(misbehaviorEnv); rule != "" {
		misbehave(rule)
		return
	}
	os.Exit(build(m))
}

// build builds the worker, then runs the tests.
func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	program = filepath.Join(dir, "worker")
	cmd := exec.Command("go", "build", "-o", program, "./worker")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the worker:", err)
		return 1
	}
	return m.Run()
}

func TestGoWorkerIsConformant(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"--parallel", "12", "--", program}, &out)
	if err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
}

func TestCasesAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases.All() {
		if c.Name == "" || c.Rule == "" || c.Section == "" || c.Run == nil || seen[c.Name] {
			t.Errorf("the case %+v is incomplete, or its name is not unique", c)
		}
		seen[c.Name] = true
	}
	if len(seen) < 60 {
		t.Errorf("%d cases, want at least 60", len(seen))
	}
}

func TestCommandLine(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string // of the output or the error
	}{
		"list":                {[]string{"--list", "--case", "^typed-input-is-decoded$"}, "1 cases"},
		"no case":             {[]string{"--case", "no such", "--", program}, `no case matches "no such"`},
		"no command":          {nil, "the command is missing"},
		"no command, real":    {[]string{"--real"}, "the command is missing"},
		"no second command":   {[]string{"--polyglot", "--tasker", "false", "--", program, "--"}, "the command is missing"},
		"bad parallel":        {[]string{"--parallel", "0", "--", program}, "invalid --parallel 0"},
		"bad pattern":         {[]string{"--case", "(", "--", program}, "missing closing )"},
		"unknown flag":        {[]string{"--fast"}, "flag provided but not defined"},
		"missing program":     {[]string{"--case", "^typed-input-is-decoded$", "--", "no-such-program"}, "cannot start the program"},
		"a program that ends": {[]string{"--case", "^typed-input-is-decoded$", "--", "false"}, "the program ended by itself with status 1"},
		"one case":            {[]string{"-v", "--case", "^typed-input-is-decoded$", "--", program}, "1 passed, 0 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), tt.args, &out)
			if got := out.String() + fmt.Sprint(err); !strings.Contains(got, tt.want) {
				t.Errorf("printed %s, want %q", got, tt.want)
			}
		})
	}
}
