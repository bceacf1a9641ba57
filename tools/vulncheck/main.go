// Command vulncheck runs govulncheck on this repository and fails if a called function is vulnerable.
//
//	go run ./vulncheck
//	GOVULNDB=file:///path/of/a/copy go run ./vulncheck
//
// The exit code is 0 without findings, 1 with findings, 2 for a usage error, and 3 if the scan
// failed, for example because the database is not reachable. With -report it is 0 instead of 1 and
// 3.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/vuln/scan"
)

const (
	publicDatabase   = "https://vuln.go.dev"
	databaseVariable = "GOVULNDB" // of govulncheck
	reachPatience    = 15 * time.Second
	maxIndex         = 1 << 20 // bytes of the database's modification time file
)

// Exit codes.
const (
	isClean      = 0
	isVulnerable = 1
	isUsage      = 2
	isUnknown    = 3
)

func main() {
	flags := flag.NewFlagSet("vulncheck", flag.ContinueOnError)
	root := flags.String("root", "..", "the checkout, whose modules are checked")
	report := flags.Bool("report", false, "say what there is to say, and end with 0 nevertheless")
	if err := flags.Parse(os.Args[1:]); err != nil || flags.NArg() > 0 {
		os.Exit(isUsage)
	}
	os.Exit(run(*root, *report))
}

// run scans the modules and returns the exit code.
func run(root string, report bool) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	database := cmp.Or(os.Getenv(databaseVariable), publicDatabase)
	code, err := check(ctx, root, database, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
	}
	if report {
		return isClean
	}
	return code
}

// check scans all modules of a checkout and returns the exit code.
func check(ctx context.Context, root, database string, w io.Writer) (int, error) {
	changed, err := reach(ctx, database)
	if err != nil {
		return isUnknown, fmt.Errorf("vulnerabilities were NOT checked: the database %s cannot be used: %w\n"+
			"Set %s to the file:// URL of a copy (https://go.dev/doc/security/vuln/database says how to get one) or to the URL of a mirror",
			database, err, databaseVariable)
	}
	modules, err := modulesOf(ctx, root)
	if err != nil {
		return isUnknown, err
	}
	fmt.Fprintf(w, "vulnerabilities known to %s at %s\n", database, changed.Format(time.RFC3339))
	code := isClean
	for _, dir := range modules {
		fmt.Fprintf(w, "\n== module %s\n", dir)
		found, err := scanPackages(ctx, filepath.Join(root, dir), "./...", database, w)
		if err != nil {
			return isUnknown, fmt.Errorf("vulnerabilities of the module %s were NOT checked: %w", dir, err)
		}
		if found {
			code = isVulnerable
		}
	}
	if code == isVulnerable {
		return code, errors.New("there are vulnerabilities in functions that are called, see above: upgrade these modules, or Go")
	}
	return code, nil
}

// scanPackages reports whether packages of a module call vulnerable functions.
func scanPackages(ctx context.Context, dir, pattern, database string, w io.Writer) (found bool, err error) {
	cmd := scan.Command(ctx, "-C", dir, "-db", database, pattern)
	cmd.Stdout, cmd.Stderr, cmd.Stdin = w, w, strings.NewReader("")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if err := cmd.Start(); err != nil {
		return false, err
	}
	err = cmd.Wait()
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) && exit.ExitCode() == vulnerabilitiesFound {
		return true, nil
	}
	return false, err
}

// vulnerabilitiesFound is govulncheck's exit code for findings.
const vulnerabilitiesFound = 3

// modulesOf returns the directories of a checkout that contain a go.mod.
func modulesOf(ctx context.Context, root string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "--cached", "--others", "--exclude-standard", "go.mod", "*/go.mod")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules of %s: %w", root, err)
	}
	var dirs []string
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.Contains(name, "testdata/") {
			dirs = append(dirs, filepath.Dir(name))
		}
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("%s has no modules", root)
	}
	return dirs, nil
}

// reach returns the modification time of a database, or an error if it is not usable. govulncheck
// would detect that only after reading all packages.
func reach(ctx context.Context, database string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	u, err := url.Parse(database)
	if err != nil {
		return time.Time{}, err
	}
	var text []byte
	switch u.Scheme {
	case "file":
		text, err = os.ReadFile(filepath.Join(filepath.FromSlash(u.Path), "index", "db.json"))
	case "http", "https":
		text, err = fetch(ctx, strings.TrimSuffix(database, "/")+"/index/db.json.gz")
	default:
		err = errors.New("its URL must begin with file://, https:// or http://")
	}
	if err != nil {
		return time.Time{}, err
	}
	var index struct{ Modified time.Time }
	if err := json.Unmarshal(text, &index); err != nil {
		return time.Time{}, fmt.Errorf("index/db.json: %w", err)
	}
	return index.Modified, nil
}

func fetch(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{}).Do(req) // ctx has a deadline
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	packed, err := io.ReadAll(io.LimitReader(resp.Body, maxIndex))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", address, resp.Status)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", address, err)
	}
	return io.ReadAll(io.LimitReader(r, maxIndex))
}
