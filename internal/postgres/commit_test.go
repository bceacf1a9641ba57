package postgres

import (
	"testing"

	"tasker.example/tasker/internal/pgtest"
)

// The smallest commit waits for the disk, and a server may make it.
func TestTheSmallestCommitIsFlushed(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db, err := Open(t.Context(), d.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	owner := d.Pool(t)
	var before, written string
	if err := owner.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	if err := db.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := owner.QueryRow(t.Context(), `SELECT (pg_current_wal_insert_lsn() > $1::pg_lsn)::text`, before).Scan(&written); err != nil || written != "true" {
		t.Errorf("nothing is written that a heartbeat would wait for: %v", err)
	}
}
