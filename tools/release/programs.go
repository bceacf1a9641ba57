package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker/tools/licences"
)

const (
	checksumsFile = "SHA256SUMS"
	noticesFile   = "THIRD_PARTY_NOTICES"
)

// aliases are links to programs in the archives.
var aliases = map[string]string{"tasker-cli": "tasker-ctl"}

// artifacts contains the files of a release by name.
type artifacts map[string][]byte

// writePrograms writes the programs for all platforms with their documents. It never replaces a
// version.
func (r request) writePrograms(ctx context.Context, s source, dir string) (err error) {
	checkout, err := r.checkout(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(checkout)) }()
	list, err := licences.ReadList()
	if err != nil {
		return err
	}
	modules, err := licences.Released(ctx, checkout, licences.Platforms())
	if err != nil {
		return err
	}
	if err := list.Check(modules, true); err != nil {
		return err
	}
	var notices bytes.Buffer
	if err := list.Notices(&notices, checkout, modules); err != nil {
		return err
	}
	files := artifacts{noticesFile: notices.Bytes(), "tasker_" + r.version + "_source.zip": s.zip}
	for _, platform := range r.platforms {
		b := builder{checkout: checkout, platform: platform, source: s, list: list}
		if err := b.build(ctx, files); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	files[checksumsFile] = files.checksums()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := writeOnce(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return nil
}

// checkout creates a clean checkout of the revision, tagged with the version, because the go
// command records both in programs.
func (r request) checkout(ctx context.Context) (dir string, err error) {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return "", err
	}
	commit, err := git(ctx, root, "rev-parse", r.revision+"^{commit}")
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "tasker-release-"); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"clone", "--quiet", "--shared", "--no-tags", "--no-checkout", root, "."},
		{"checkout", "--quiet", "--detach", strings.TrimSpace(string(commit))},
		{"tag", r.version},
	} {
		if _, err := git(ctx, dir, args...); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

// A builder builds the programs for one platform.
type builder struct {
	checkout, platform string
	source             source
	list               licences.List
}

// build adds an archive with the programs and their SBOMs.
func (b builder) build(ctx context.Context, files artifacts) error {
	goos, goarch, ok := strings.Cut(b.platform, "/")
	if !ok {
		return errors.New("invalid platform: must be as linux/amd64")
	}
	suffix := fmt.Sprintf("_%s_%s_%s", b.source.module.Version, goos, goarch)
	out, err := os.MkdirTemp("", "tasker-programs-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(out) }() // its files are in memory
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-ldflags=-s", "-o", out + "/"}, licences.Programs()...)...)
	cmd.Dir, cmd.Stderr = b.checkout, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=true", "GOWORK=off")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	a := newArchive("tasker"+suffix, b.source.at)
	for _, pkg := range licences.Programs() {
		name := path.Base(pkg)
		program, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		info, err := buildinfo.Read(bytes.NewReader(program))
		if err != nil {
			return err
		}
		if info.Main.Version != b.source.module.Version {
			return fmt.Errorf("%s was built as version %s, not as %s", name, info.Main.Version, b.source.module.Version)
		}
		sbom, err := b.sbom(name, program, info)
		if err != nil {
			return err
		}
		files[name+suffix+".cdx.json"] = sbom
		a.add(name, 0o755, program)
	}
	for alias, name := range aliases {
		a.link(alias, name)
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		text, err := os.ReadFile(filepath.Join(b.checkout, name))
		if err != nil {
			return err
		}
		a.add(name, 0o644, text)
	}
	a.add(noticesFile, 0o644, files[noticesFile])
	files["tasker"+suffix+".tar.gz"], err = a.close()
	return err
}

// checksums returns the SHA-256 of each file in the format of sha256sum -c.
func (files artifacts) checksums() []byte {
	var lines []string
	for name, content := range files {
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[sha256.Size*2:], b[sha256.Size*2:]) })
	return []byte(strings.Join(lines, ""))
}

// archive builds a reproducible tar.gz.
type archive struct {
	folder string
	at     time.Time
	text   bytes.Buffer
	zip    *gzip.Writer
	tar    *tar.Writer
	err    error // first error
}

func newArchive(folder string, at time.Time) *archive {
	a := &archive{folder: folder, at: at.UTC().Truncate(time.Second)}
	a.zip = gzip.NewWriter(&a.text)
	a.tar = tar.NewWriter(a.zip)
	return a
}

func (a *archive) add(name string, mode int64, content []byte) {
	a.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))})
	if a.err == nil {
		_, a.err = a.tar.Write(content)
	}
}

func (a *archive) link(name, to string) {
	a.header(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Mode: 0o777, Linkname: to})
}

func (a *archive) header(h tar.Header) {
	h.Name, h.ModTime, h.Format = path.Join(a.folder, h.Name), a.at, tar.FormatPAX
	if a.err == nil {
		a.err = a.tar.WriteHeader(&h)
	}
}

func (a *archive) close() ([]byte, error) {
	err := errors.Join(a.err, a.tar.Close(), a.zip.Close())
	return a.text.Bytes(), err
}
