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

// The exit codes of every program. A program may add more, from 3 on.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2 // the command line is wrong
)

// A UsageError says what is wrong with a command line.
type UsageError struct{ Text string }

// Error says what is wrong.
func (e UsageError) Error() string { return e.Text }

// Usagef returns a [UsageError] whose text is formatted.
func Usagef(format string, args ...any) error { return UsageError{fmt.Sprintf(format, args...)} }

// IsUsage reports whether the command line is at fault.
func IsUsage(err error) bool { return errors.As(err, new(UsageError)) }

// Exit ends a program with a code when everything has been printed.
type Exit int

// Error is never shown.
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

// HelpHint is the line below a usage error.
func HelpHint(command string) string { return fmt.Sprintf("Run %q for usage.", command+" --help") }

// Run runs a command line. It returns the command that was found, and its error;
// an error from before that command began is a [UsageError].
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
	root.SetArgs(append([]string{}, args...)) // never nil: cobra would take the process's own
	c, err := root.ExecuteContextC(ctx)
	if err != nil && !started && !IsUsage(err) && !errors.As(err, new(Exit)) {
		err = UsageError{err.Error()}
	}
	return c, err
}

// The linker sets these where there is no git repository, as in docker build.
var version, commit, date string

// A Build identifies the source that a program was built from.
type Build struct {
	Version string // of the module; dev if it is unknown
	Commit  string // of git, with +dirty if files were changed after it; empty if it is unknown
	Date    string // of the commit, as RFC 3339; empty if it is unknown
}

// ThisBuild returns what the linker was given, and for the rest what the go command recorded.
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

// String returns a line for people.
func (b Build) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s %s/%s)", b.Version, cmp.Or(b.Commit, "unknown"), cmp.Or(b.Date, "date unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Version returns the version of this program.
func Version() string { return ThisBuild().Version }
