package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const version = "v0.1.0-test.1"

// A release has programs that know their version and commit, with what they consist of,
// the licences of others, and checksums; and the same commit gives the same files.
func TestPrograms(t *testing.T) {
	t.Parallel()
	root, out := checkout(t), t.TempDir()
	suffix := "_" + version + "_" + runtime.GOOS + "_" + runtime.GOARCH
	write := func(dir string) {
		t.Helper()
		r := request{
			root: root, revision: "HEAD", version: version, out: filepath.Join(out, "proxy"), programs: filepath.Join(out, dir),
			platforms: []string{runtime.GOOS + "/" + runtime.GOARCH},
		}
		if err := r.write(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	write("second")
	dir := filepath.Join(out, "first", version)
	files := contents(t, dir)
	if other := contents(t, filepath.Join(out, "second", version)); !maps.EqualFunc(files, other, bytes.Equal) {
		t.Error("the same commit gives other files the second time")
	}
	want := []string{
		checksumsFile, noticesFile, "tasker-ctl" + suffix + ".cdx.json", "tasker_" + version + "_source.zip",
		"tasker" + suffix + ".cdx.json", "tasker" + suffix + ".tar.gz",
	}
	if got := slices.Collect(maps.Keys(files)); !sameNames(got, want) {
		t.Errorf("the release has %q, want %q", got, want)
	}
	commit := strings.TrimSpace(run(t, root, "git", "rev-parse", "HEAD"))
	programs := unpacked(t, files["tasker"+suffix+".tar.gz"], "tasker"+suffix)
	for _, name := range []string{"tasker", "tasker-ctl"} {
		knowsItself(t, name, programs[name], commit)
		sbomIsWhatIsLinked(t, programs[name], files[name+suffix+".cdx.json"])
		conforms(t, files[name+suffix+".cdx.json"])
	}
	if got := []string{string(programs["tasker-cli"]), string(programs[noticesFile])}; got[0] != "link to tasker-ctl" || got[1] != string(files[noticesFile]) {
		t.Errorf("the archive has no tasker-cli, or other notices than the release: %.50q", got)
	}
	assets := map[string]bool{"tasker": true, "tasker-ctl": false}
	for name, want := range assets {
		if got := bytes.Contains(files[name+suffix+".cdx.json"], []byte("pkg:npm/idiomorph@")); got != want {
			t.Errorf("the SBOM of %s has what the pages embed: %v", name, got)
		}
	}
	checksumsHold(t, dir, files)
}

func sameNames(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// knowsItself fails unless a program runs and knows its version and commit.
func knowsItself(t *testing.T, name string, program []byte, commit string) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if info.Main.Version != version || settings["vcs.revision"] != commit || settings["vcs.modified"] != "false" || settings["-trimpath"] != "true" {
		t.Errorf("%s is of version %s, %v, want %s of %s", name, info.Main.Version, settings, version, commit)
	}
	path := filepath.Join(t.TempDir(), name)
	syscall.ForkLock.RLock() // or a process that is being started would have the file open
	err = os.WriteFile(path, program, 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	if said := run(t, t.TempDir(), path, "version"); !strings.Contains(said, version) {
		t.Errorf("%s version prints %q", name, said)
	}
}

// sbomIsWhatIsLinked compares the components with what the program says of itself.
func sbomIsWhatIsLinked(t *testing.T, program, text []byte) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, m.Path+"@"+m.Version+" "+m.Sum)
	}
	bom := decoded(t, text)
	var got []string
	for _, c := range *bom.Components {
		if !strings.HasPrefix(c.PackageURL, "pkg:golang/") {
			continue
		}
		line := c.Name + "@" + c.Version
		if c.Properties != nil {
			line += " " + (*c.Properties)[0].Value
		}
		got = append(got, line)
		if c.Licenses == nil || (*c.Licenses)[0].Expression == "" {
			t.Errorf("%s has no licence", c.Name)
		}
	}
	if len(want) < 5 || !sameNames(got, want) {
		t.Errorf("the components are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func decoded(t *testing.T, text []byte) cdx.BOM {
	t.Helper()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	return bom
}

// conforms checks an SBOM against the schemas of CycloneDX.
func conforms(t *testing.T, text []byte) {
	t.Helper()
	dir := filepath.Join(strings.TrimSpace(run(t, ".", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go")), "schema")
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for name, file := range map[string]string{
		"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		schema, err := os.Open(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(schema)
		if err := errors.Join(err, schema.Close(), compiler.AddResource("http://cyclonedx.org/schema/"+name, doc)); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []bool{false, true} {
		if broken {
			text = bytes.Replace(text, []byte(`"type": "library"`), []byte(`"type": "book"`), 1)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); (err != nil) != broken {
			t.Errorf("broken is %v: %v", broken, err)
		}
	}
}

// checksumsHold checks the files as the documents say, and that it notices a changed byte in each.
func checksumsHold(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	verify := func() ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksumsFile)
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	if out, err := verify(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, content := range files {
		if name == checksumsFile {
			continue
		}
		path, changed := filepath.Join(dir, name), bytes.Clone(content)
		changed[len(changed)/2] ^= 1
		for _, text := range [][]byte{changed, content} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := verify(); (err != nil) != bytes.Equal(text, changed) {
				t.Errorf("%s with a changed byte: %v\n%s", name, err, out)
			}
		}
	}
}

// A version is released once: other files of the same version are refused.
func TestAVersionIsNotReplaced(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	for _, tt := range []struct {
		text string
		says string
	}{{"one", ""}, {"one", ""}, {"two", "choose another version"}} {
		err := writeOnce(name, []byte(tt.text))
		if (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.says)
		}
	}
}

// contents returns the files of a directory.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// unpacked returns the files of an archive, in which all lie in one folder.
func unpacked(t *testing.T, text []byte, folder string) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(h.Name, folder+"/")
		if !ok || h.Uid != 0 || h.Uname != "" {
			t.Errorf("the archive has %s of the user %d %q", h.Name, h.Uid, h.Uname)
		}
		if files[name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			files[name] = []byte("link to " + h.Linkname)
		}
	}
}

// checkout returns a git checkout of this repository as it is on disk, committed.
func checkout(t *testing.T) string {
	t.Helper()
	const from = "../.."
	dir := t.TempDir()
	skipped := []string{".git", ".cache", "bin", "artifacts"}
	err := filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil || slices.Contains(skipped, name) {
			if err == nil && entry.IsDir() {
				err = filepath.SkipDir
			}
			return err
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o750), os.WriteFile(to, text, info.Mode().Perm()))
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "git", "init", "-q")
	run(t, dir, "git", "add", "-A")
	run(t, dir, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-qm", "as it is on disk")
	return dir
}

// run runs a command and returns what it prints.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out)
}
