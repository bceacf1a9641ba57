package devpg

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestTheSecondStartFindsWhatTheFirstWrote(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := folder(t)
	for _, want := range []int{1, 2} {
		s, err := Start(ctx, Options{DataDir: dir, Fast: true})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(ctx, s.URL())
		if err != nil {
			t.Fatal(err)
		}
		var got int
		err = conn.QueryRow(ctx, "CREATE TABLE IF NOT EXISTS visit (n int GENERATED ALWAYS AS IDENTITY)").Scan()
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		if err := conn.QueryRow(ctx, "INSERT INTO visit DEFAULT VALUES RETURNING n").Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("visit %d, want %d", got, want)
		}
		if err := conn.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// folder returns an empty folder. The parent of t.TempDir is closed to the user
// that root runs PostgreSQL as.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devpg-test-") //nolint:usetesting // another user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
