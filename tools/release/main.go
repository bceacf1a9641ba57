// Command release builds the artifacts of a release: module proxy files, binaries, SBOMs and
// checksums. Builds are reproducible.
//
// It writes a module proxy into one directory: set GOPROXY to its file:// URL, or serve it by any
// web server. It writes the archives with the programs per platform, the SBOMs, the licenses, the
// source and the checksums into another. The same commit results in identical files.
//
//	go run ./release -version v0.1.0 -out ../artifacts/proxy -programs ../artifacts/release
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

	"tasker.example/tasker/tools/licences"
)

func main() {
	r := request{}
	flag.StringVar(&r.version, "version", "", "the version, such as v0.1.0")
	flag.StringVar(&r.out, "out", "", "the directory of the module proxy; other versions in it stay")
	flag.StringVar(&r.programs, "programs", "", "the directory of the programs; none if it is empty")
	platforms := flag.String("platforms", strings.Join(licences.Platforms(), ","), "what to build the programs for")
	flag.StringVar(&r.revision, "revision", "HEAD", "the git revision to release")
	flag.StringVar(&r.root, "root", "..", "the checkout of the module")
	flag.Parse()
	r.platforms = strings.FieldsFunc(*platforms, func(c rune) bool { return c == ',' || c == ' ' })
	os.Exit(execute(r, flag.NArg() == 0))
}

// execute writes a release and returns the exit code.
func execute(r request, complete bool) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := errors.New("set -version and -out; see -help")
	if complete && r.out != "" {
		err = r.write(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		return 1
	}
	return 0
}

// A request describes a release.
type request struct {
	root, revision, version string
	out                     string // directory of the module proxy
	programs                string // directory of the programs; optional
	platforms               []string
}

// write writes a release and reports to w.
func (r request) write(ctx context.Context, w io.Writer) error {
	source, err := r.writeModule(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s of %s is in %s\n", source.module, r.revision, r.out)
	if r.programs == "" || len(r.platforms) == 0 {
		return nil
	}
	dir := filepath.Join(r.programs, r.version)
	if err := r.writePrograms(ctx, source, dir); err != nil {
		return err
	}
	fmt.Fprintf(w, "the programs for %s are in %s\n", strings.Join(r.platforms, ", "), dir)
	return nil
}

// source is the released commit.
type source struct {
	module module.Version
	at     time.Time // commit time
	zip    []byte
}

// writeModule writes the files of a module version and then adds it to the list. It never replaces
// a version, because programs have its checksum.
func (r request) writeModule(ctx context.Context) (source, error) {
	if semver.Canonical(r.version) != r.version || r.version == "" {
		return source{}, fmt.Errorf("invalid version %q: must be a semantic version with three numbers, such as v0.1.0", r.version)
	}
	gomod, err := git(ctx, r.root, "show", r.revision+":go.mod")
	if err != nil {
		return source{}, err
	}
	s := source{module: module.Version{Path: modfile.ModulePath(gomod), Version: r.version}}
	if err := module.Check(s.module.Path, s.module.Version); err != nil {
		return source{}, err
	}
	committed, err := git(ctx, r.root, "log", "-1", "--format=%cI", r.revision)
	if err != nil {
		return source{}, err
	}
	if s.at, err = time.Parse(time.RFC3339, strings.TrimSpace(string(committed))); err != nil {
		return source{}, err
	}
	escaped, err := module.EscapePath(s.module.Path)
	if err != nil {
		return source{}, err
	}
	dir := filepath.Join(r.out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return source{}, err
	}
	var zip bytes.Buffer
	if err := modzip.CreateFromVCS(&zip, s.module, r.root, r.revision, ""); err != nil {
		return source{}, err
	}
	s.zip = zip.Bytes()
	info, err := json.Marshal(map[string]any{"Version": r.version, "Time": s.at.UTC()})
	if err != nil {
		return source{}, err
	}
	for ext, content := range map[string][]byte{".mod": gomod, ".zip": s.zip, ".info": info} {
		if err := writeOnce(filepath.Join(dir, r.version+ext), content); err != nil {
			return source{}, err
		}
	}
	return s, list(filepath.Join(dir, "list"), r.version)
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

// list adds a version to the sorted list of versions.
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
