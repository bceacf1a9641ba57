package pgtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// startFrom starts a server from a prepared cluster, or makes both, and stops it.
func startFrom(t *testing.T, kept preparedCluster) {
	t.Helper()
	s, err := startPrivate(t.Context(), kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.makeTemplate(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.exec(t.Context(), "CREATE DATABASE copy TEMPLATE "+quoteIdentifier(s.template)); err != nil {
		t.Error(err)
	}
	if err := s.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAClusterIsPreparedOnce(t *testing.T) {
	t.Parallel()
	kept := newPreparedCluster(t.TempDir())
	if _, err := startCopy(t.Context(), kept); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a cluster: %v", err)
	}
	// One that does not start is replaced.
	data := filepath.Join(kept.path, "data")
	err := os.MkdirAll(data, 0o700)
	for _, name := range []string{filepath.Join(data, "PG_VERSION"), filepath.Join(kept.path, "password")} {
		err = errors.Join(err, os.WriteFile(name, []byte("9\n"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	startFrom(t, kept)
	mark := filepath.Join(data, "mark")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startFrom(t, kept)
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the second start made a cluster of its own: %v", err)
	}
	if list, err := os.ReadDir(filepath.Dir(kept.path)); len(list) != 1 {
		t.Errorf("the folder has %v, %v", list, err)
	}
}

func TestAClusterThatCannotBeKept(t *testing.T) {
	t.Parallel()
	if err := (preparedCluster{}).store(t.TempDir()); err != nil {
		t.Errorf("without a cache folder: %v", err)
	}
	folder := t.TempDir()
	if err := newPreparedCluster(folder).store(t.TempDir()); err == nil {
		t.Error("a directory without a cluster was kept")
	}
	if list, err := os.ReadDir(folder); len(list) > 0 {
		t.Errorf("it left %v, %v", list, err)
	}
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newPreparedCluster(file).store(t.TempDir()); err == nil {
		t.Error("a cluster was kept in a file")
	}
}

func TestPreparedClustersThatNobodyUsesGo(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{"old": preparedAge + time.Hour, "used": preparedAge - time.Hour} {
		path := filepath.Join(folder, preparedName+name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chtimes(path, now.Add(-age), now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeUnused(folder, now.Add(-preparedAge)); err != nil {
		t.Error(err)
	}
	list, err := os.ReadDir(folder)
	if err != nil || len(list) != 1 || list[0].Name() != preparedName+"used" {
		t.Errorf("left are %v, %v", list, err)
	}
}
