package sqlfile_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker/internal/sqlfile"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	got := sqlfile.Load(fstest.MapFS{
		"sql/a.sql": {Data: []byte("-- about the file\n\n-- name: one\n-- What it does.\nSELECT 1; -- first\n\n-- name: two\nSELECT 2;\n")},
		"sql/b.sql": {Data: []byte("-- name: three\nSELECT 3;\nSELECT 4;\n")},
	})
	want := sqlfile.Statements{"one": "SELECT 1; -- first", "two": "SELECT 2", "three": "SELECT 3;\nSELECT 4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statements (-want +got):\n%s", diff)
	}
}

func TestLoadPanicsIfANameIsUsedTwice(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	sqlfile.Load(fstest.MapFS{"sql/a.sql": {Data: []byte("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n")}})
}

func TestGetPanicsIfThereIsNoStatement(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	sqlfile.Statements{}.Get("one")
}
