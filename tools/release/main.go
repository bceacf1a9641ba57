// Command release writes a version of this module into a directory that is a module
// proxy: set GOPROXY to its file:// URL, or serve it by any web server.
//
//	go run ./release -version v0.1.0 -out ../artifacts/proxy
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	modzip "golang.org/x/mod/zip"
)

func main() {
	version := flag.String("version", "", "the version, such as v0.1.0")
	out := flag.String("out", "", "the directory to write into; other versions in it stay")
	revision := flag.String("revision", "HEAD", "the git revision to release")
	root := flag.String("root", "..", "the checkout of the module")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := release(ctx, *root, *revision, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release writes the files of a version, and lists it once they are complete. A version
// that is there is never replaced: programs have its checksum.
func release(ctx context.Context, root, revision, version, out string) error {
	if out == "" || flag.NArg() > 0 {
		return errors.New("set -version and -out; see -help")
	}
	if semver.Canonical(version) != version || version == "" {
		return fmt.Errorf("invalid version %q: must be a semantic version with three numbers, such as v0.1.0", version)
	}
	gomod, err := git(ctx, root, "show", revision+":go.mod")
	if err != nil {
		return err
	}
	path := modfile.ModulePath(gomod)
	if err := module.Check(path, version); err != nil {
		return err
	}
	committed, err := git(ctx, root, "log", "-1", "--format=%cI", revision)
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(committed)))
	if err != nil {
		return err
	}
	escaped, err := module.EscapePath(path)
	if err != nil {
		return err
	}
	dir := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var zip bytes.Buffer
	if err := modzip.CreateFromVCS(&zip, module.Version{Path: path, Version: version}, root, revision, ""); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": at.UTC()})
	if err != nil {
		return err
	}
	for ext, content := range map[string][]byte{".mod": gomod, ".zip": zip.Bytes(), ".info": info} {
		if err := writeOnce(filepath.Join(dir, version+ext), content); err != nil {
			return err
		}
	}
	if err := list(filepath.Join(dir, "list"), version); err != nil {
		return err
	}
	fmt.Printf("%s@%s of %s is in %s\n", path, version, revision, out)
	return nil
}

func git(ctx context.Context, root string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// writeOnce writes a file, unless it exists with the same content.
func writeOnce(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		old, err := os.ReadFile(name)
		if err == nil && !bytes.Equal(old, content) {
			err = fmt.Errorf("%s exists with other content: choose another version", name)
		}
		return err
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewReader(content))
	return errors.Join(err, f.Close())
}

// list adds a version to the file that names all of them, sorted.
func list(name, version string) error {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	versions := strings.Fields(string(text))
	if slices.Contains(versions, version) {
		return nil
	}
	versions = append(versions, version)
	semver.Sort(versions)
	return os.WriteFile(name, []byte(strings.Join(versions, "\n")+"\n"), 0o644)
}
