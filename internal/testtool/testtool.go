// Package testtool skips tests that need external programs that are missing, and counts the skips.
//
// Every skip is counted: scripts/test prints a summary with the reasons. With
// TASKER_TEST_REQUIRE_ALL=true, which CI sets, a skip is a failure.
package testtool

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing" //nolint:depguard // this package is a test's tool
)

const (
	// requireEnv is the environment variable that turns skips into failures.
	requireEnv = "TASKER_TEST_REQUIRE_ALL"

	// skippedEnv is the environment variable with the file to which each skip adds a line: the
	// program, how to install it, and the name of the test, separated by tabs.
	skippedEnv = "TASKER_TEST_SKIPPED"
)

// Find returns the path of a program. If it is missing, the test is skipped, see [Missing].
func Find(t testing.TB, program, install string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		Missing(t, program, install)
	}
	return path
}

// Missing skips the test because a required program is not installed. install describes how to
// install it. With TASKER_TEST_REQUIRE_ALL=true, it fails the test instead.
func Missing(t testing.TB, program, install string) {
	t.Helper()
	message := fmt.Sprintf("%s is not installed; %s", program, install)
	if isRequired(t) {
		t.Fatal(message)
	}
	if path := os.Getenv(skippedEnv); path != "" {
		if err := record(path, program, install, t.Name()); err != nil {
			t.Fatalf("record a skipped test: %v", err)
		}
	}
	t.Skip(message)
}

func isRequired(t testing.TB) bool {
	t.Helper()
	text := os.Getenv(requireEnv)
	if text == "" {
		return false
	}
	require, err := strconv.ParseBool(text)
	if err != nil {
		t.Fatalf("invalid %s %q: must be true or false", requireEnv, text)
	}
	return require
}

// record adds a line to the file with a single write, because packages are tested in parallel.
func record(path, program, install, test string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "%s\t%s\t%s\n", program, install, test); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// WriteProgram writes an executable file. It prevents concurrent forks, because a forked child
// would inherit the open file, and the program could not be executed until the child calls exec.
func WriteProgram(t testing.TB, path string, program []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
}
