package pgtest

import (
	_ "embed"
	"testing"
)

//go:embed follow.sql
var followSQL string

// FollowSteps keeps the queue tables in step with steps that the test writes by SQL.
// A test that wants them to disagree sets session_replication_role to replica first.
func (db *DB) FollowSteps(t testing.TB) {
	t.Helper()
	if _, err := db.Pool(t).Exec(t.Context(), followSQL); err != nil {
		t.Fatalf("install the triggers that follow steps: %v", err)
	}
}
