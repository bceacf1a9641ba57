package devpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// binEnv is the environment variable with the folder of PostgreSQL's programs.
const binEnv = "TASKER_POSTGRES_BIN"

// programs describes the executables of one PostgreSQL version.
type programs struct {
	dir     string
	version string // such as 17.5
	major   int
}

// versioned lists the folders in which distributions install several versions side by side. They
// are not on PATH.
var versioned = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // Fedora, RHEL: packages of postgresql.org
	"/usr/libexec/postgresql*",                           // Alpine
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",    // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
}

// findPrograms returns the programs in the requested folder, or an error if they are unusable. If
// no folder is requested, it returns the first suitable version found through PATH, pg_config and
// the versioned folders, or downloads one.
func findPrograms(ctx context.Context, o Options) (programs, error) {
	for _, requested := range []struct{ by, dir string }{
		{"the option for it", o.BinDir},
		{binEnv, os.Getenv(binEnv)},
	} {
		if requested.dir == "" {
			continue
		}
		p, err := inspectPrograms(ctx, requested.dir)
		if err != nil {
			return programs{}, fmt.Errorf("no PostgreSQL found where %s points: %w", requested.by, err)
		}
		return p, nil
	}
	var missed []error
	for _, dir := range findCandidates(ctx) {
		p, err := inspectPrograms(ctx, dir)
		if err == nil {
			return p, nil
		}
		missed = append(missed, err)
	}
	p, err := fetchPrograms(ctx, o)
	if err != nil {
		return programs{}, errors.Join(errors.New(installAdvice), errors.Join(missed...), err)
	}
	return p, nil
}

// findCandidates returns the folders that may contain the programs, best first.
func findCandidates(ctx context.Context) []string {
	var dirs []string
	for _, name := range []string{"initdb", "postgres"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		// Follow the link: Debian links only some programs into PATH.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return slices.Concat(dirs, sortNewestFirst(versioned))
}

// sortNewestFirst expands the patterns and sorts the paths by the first number in them, descending.
func sortNewestFirst(patterns []string) []string {
	var dirs []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err == nil { // only malformed patterns are errors
			dirs = append(dirs, found...)
		}
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(versionNumber(b), versionNumber(a)) })
	return dirs
}

var digits = regexp.MustCompile(`[0-9]+`)

func versionNumber(path string) int {
	n, err := strconv.Atoi(digits.FindString(path))
	if err != nil {
		return 0
	}
	return n
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (([0-9]+)[^ \n]*)`)

// inspectPrograms returns the programs in dir, or an error if they cannot be used.
func inspectPrograms(ctx context.Context, dir string) (programs, error) {
	for _, name := range []string{"postgres", "initdb"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return programs{}, err
		} else if info.IsDir() {
			return programs{}, fmt.Errorf("%s is a directory", filepath.Join(dir, name))
		}
	}
	path := filepath.Join(dir, "postgres")
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = buildEnvironment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return programs{}, fmt.Errorf("%s --version: %w: %s", path, err, strings.TrimSpace(string(out)))
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return programs{}, fmt.Errorf("%s --version printed %q, which is not "+
			"PostgreSQL", path, strings.TrimSpace(string(out)))
	}
	major, err := strconv.Atoi(m[2])
	if err != nil {
		return programs{}, fmt.Errorf("%s --version: %w", path, err)
	}
	if major < oldest {
		return programs{}, fmt.Errorf("%s is PostgreSQL %s, but Tasker requires %d or newer", path, m[1], oldest)
	}
	return programs{dir: dir, version: m[1], major: major}, nil
}
