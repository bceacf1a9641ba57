package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes of all programs. A program may add codes from 3.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2 // invalid command line
)

// UsageError describes an invalid command line.
type UsageError struct{ Text string }

// Error implements error.
func (e UsageError) Error() string { return e.Text }

// Usagef returns a formatted [UsageError].
func Usagef(format string, args ...any) error { return UsageError{fmt.Sprintf(format, args...)} }

// IsUsage reports whether err is a [UsageError].
func IsUsage(err error) bool { return errors.As(err, new(UsageError)) }

// Exit is an error that makes a program exit with a code without printing anything more.
type Exit int

// Error implements error. It is never shown.
func (e Exit) Error() string { return fmt.Sprintf("exit with code %d", int(e)) }

// ExitCode returns the exit code of an error.
func ExitCode(err error) int {
	var exit Exit
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return int(exit)
	case IsUsage(err):
		return ExitUsage
	default:
		return ExitError
	}
}

// HelpHint returns the line below a usage error.
func HelpHint(command string) string { return fmt.Sprintf("Run %q for usage.", command+" --help") }

// Run runs a command line. It returns the selected command and its error. An error before that command
// starts is a [UsageError].
func Run(ctx context.Context, root *cobra.Command, args []string) (*cobra.Command, error) {
	started := false
	prepare := root.PersistentPreRunE
	root.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		if prepare != nil {
			if err := prepare(c, args); err != nil {
				return err
			}
		}
		started = true
		return nil
	}
	root.SetArgs(append([]string{}, args...)) // for nil cobra uses the arguments of the process
	c, err := root.ExecuteContextC(ctx)
	if err != nil && !started && !IsUsage(err) && !errors.As(err, new(Exit)) {
		err = UsageError{err.Error()}
	}
	return c, err
}

// The linker sets these variables where the git repository is not available, such as in docker
// build.
var version, commit, date string

// Build identifies the source of a program.
type Build struct {
	Version string // of the module; "dev" if unknown
	Commit  string // of git, with +dirty if files were modified; empty if unknown
	Date    string // of the commit, in RFC 3339 form; empty if unknown
}

// ThisBuild describes the running program. Values set by the linker take precedence over those
// recorded by the go command.
func ThisBuild() Build {
	b := Build{Version: version, Commit: commit, Date: date}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if b.Commit == "" && settings["vcs.modified"] == "true" {
		settings["vcs.revision"] += "+dirty"
	}
	b.Version = cmp.Or(b.Version, strings.TrimSuffix(info.Main.Version, "(devel)"), "dev")
	b.Commit, b.Date = cmp.Or(b.Commit, settings["vcs.revision"]), cmp.Or(b.Date, settings["vcs.time"])
	return b
}

// String implements fmt.Stringer.
func (b Build) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s %s/%s)", b.Version, cmp.Or(b.Commit, "unknown"), cmp.Or(b.Date, "date unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Version returns the version of the program.
func Version() string { return ThisBuild().Version }
