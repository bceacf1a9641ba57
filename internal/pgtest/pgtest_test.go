package pgtest

import "testing"

func TestMain(m *testing.M) { Main(m) }

func TestADatabaseIsMigrated(t *testing.T) {
	pool := New(t).Pool(t)
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM tasker.tasks").Scan(&n); err != nil {
		t.Fatal(err)
	}
}
