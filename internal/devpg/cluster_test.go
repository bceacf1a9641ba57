package devpg

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// launched starts a server in the folder, and stops it with the test.
func launched(t *testing.T, o Options) *Server {
	t.Helper()
	o.Fast = true
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopped(t, s) })
	return s
}

func stopped(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(t.Context()); err != nil && t.Context().Err() == nil {
		t.Error(err)
	}
}

func refusedToStart(t *testing.T, o Options, words ...string) {
	t.Helper()
	o.Fast = true
	s, err := Start(t.Context(), o)
	if err == nil {
		stopped(t, s)
		t.Fatalf("it started, want an error that says %v", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// inside puts a file into the data directory, as if somebody had left it.
func inside(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func tree(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Base(path) != lockFile {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAHalfMadeClusterIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	inside(t, dir, "data.new/PG_VERSION", "15\n")
	inside(t, dir, "data.new/half", "")
	stopped(t, launched(t, Options{DataDir: dir}))
	if _, err := os.Stat(filepath.Join(dir, "data", "half")); err == nil {
		t.Error("what an interrupted start left behind is in use")
	}
}

func TestDataThatAreNotOursAreRefusedAndKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file, content string
		says                []string
	}{
		{"of another version", "data/PG_VERSION", "9\n", []string{"created by PostgreSQL 9", "pg_upgrade", "nothing was changed"}},
		{"no cluster at all", "data/photo.jpg", "x", []string{"is not a PostgreSQL cluster", "nothing was changed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			inside(t, dir, tt.file, tt.content)
			if os.Geteuid() == 0 { // PostgreSQL's account must own its data
				a, err := chooseAccount(filepath.Join(dir, "none"))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(filepath.Join(dir, "data"), a.UID, a.GID); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, dir)
			refusedToStart(t, Options{DataDir: dir}, tt.says...)
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// After a crash the process id of the server may belong to somebody else.
func TestAStrangersProcessIDIsNoServer(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := launched(t, Options{DataDir: dir})
	stopped(t, s)
	inside(t, dir, postmasterFile, fmt.Sprintf("%d\n%s\n1\n5432\n\n127.0.0.1\n0\nready\n", os.Getpid(), filepath.Join(dir, "data")))
	launched(t, Options{DataDir: dir})
}

func TestStopMayBeRepeated(t *testing.T) {
	t.Parallel()
	s := launched(t, Options{DataDir: folder(t)})
	for range 3 {
		stopped(t, s)
	}
}

func TestTheDirectoryHasOneUser(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	launched(t, Options{DataDir: dir})
	refusedToStart(t, Options{DataDir: dir}, "is in use by process "+fmt.Sprint(os.Getpid()), "choose another data directory")
}

func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	refusedToStart(t, Options{DataDir: folder(t), Port: port}, fmt.Sprintf("port %d is in use", port), "choose another port")
}

func TestProgramsThatAreAskedForMustBeThere(t *testing.T) {
	old := filepath.Join(t.TempDir(), "old")
	inside(t, old, "postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 9.6.1'\n")
	inside(t, old, "initdb", "#!/bin/sh\n")
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.Chmod(filepath.Join(old, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	refusedToStart(t, Options{DataDir: folder(t), BinDir: old}, "is PostgreSQL 9.6.1", "requires 15 or newer")
	t.Setenv(binEnv, filepath.Join(t.TempDir(), "none"))
	refusedToStart(t, Options{DataDir: folder(t)}, "no PostgreSQL found where "+binEnv+" points")
}

func TestTheNewestVersionComesFirst(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // its own name has numbers, too
	for _, v := range []string{"9", "15", "17", "16"} {
		inside(t, dir, "pg/"+v+"/bin/postgres", "")
	}
	var got []string
	for _, d := range sortNewestFirst([]string{"pg/*/bin"}) {
		got = append(got, filepath.Base(filepath.Dir(d)))
	}
	if diff := cmp.Diff([]string{"17", "16", "15", "9"}, got); diff != "" {
		t.Error(diff)
	}
}
