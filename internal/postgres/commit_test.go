package postgres

import (
	"testing"

	"tasker.example/tasker/internal/pgtest"
)

// The smallest commit writes WAL, so that it waits for the disk.
func TestTheSmallestCommitIsFlushed(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db, err := Open(t.Context(), d.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	owner := d.Pool(t)
	before, err := queryValue[string](t.Context(), owner, `SELECT pg_current_wal_insert_lsn()::text`)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if written, err := queryValue[bool](t.Context(), owner, `SELECT pg_current_wal_insert_lsn() > $1::pg_lsn`, before); err != nil || !written {
		t.Errorf("nothing is written that a heartbeat would wait for: %v", err)
	}
}
