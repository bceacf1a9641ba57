// Package testtool skips tests whose external programs are missing, and counts the skips.
//
// A skipped test is a gap, so every skip is counted: scripts/test prints a summary
// of what was skipped and why, and with TASKER_TEST_REQUIRE_ALL=true, which CI
// sets, a skip is a failure.
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
	// requireEnv names the variable that turns a skip into a failure.
	requireEnv = "TASKER_TEST_REQUIRE_ALL"

	// skippedEnv names the variable with the file to which each skip adds a line:
	// the program, how to get it, and the name of the test, separated by tabs.
	skippedEnv = "TASKER_TEST_SKIPPED"
)

// Find returns the path of a program. A test that needs a missing program is
// skipped, see [Missing].
func Find(t testing.TB, program, install string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		Missing(t, program, install)
	}
	return path
}

// Missing skips the test because the machine does not have a program that it
// needs; install says how to get it. With TASKER_TEST_REQUIRE_ALL=true it fails the
// test instead.
func Missing(t testing.TB, program, install string) {
	t.Helper()
	message := fmt.Sprintf("%s is not installed; %s", program, install)
	if required(t) {
		t.Fatal(message)
	}
	if path := os.Getenv(skippedEnv); path != "" {
		if err := record(path, program, install, t.Name()); err != nil {
			t.Fatalf("record a skipped test: %v", err)
		}
	}
	t.Skip(message)
}

func required(t testing.TB) bool {
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

// record adds a line in one write, because packages are tested in parallel.
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

// WriteProgram writes a program that the test runs. A process that another test is starting meanwhile would
// have the file open until it runs its own program, and so long nobody can run this one.
func WriteProgram(t testing.TB, path string, program []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
}
