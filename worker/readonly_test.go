package worker_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/pgtest"
)

// A database that takes no writes for longer than a lease, as after a failover to a
// node that is not promoted yet, costs no result and no attempt: nobody could extend
// a lease, so none counts as run out until everybody had the time to.
func TestADatabaseThatIsReadOnlyForAWhile(t *testing.T) {
	const lease = 15 * time.Second // a busy machine loses shorter ones without an outage
	c, p := newCrowd(t, engine.Options{Leases: engine.LeaseOptions{Duration: lease, HeartbeatInterval: lease / 3}})
	admin, err := pgx.Connect(t.Context(), pgtest.AdminURL(c.DB.Pool().Config().ConnString()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(t.Context()) }()
	var name string
	if err := admin.QueryRow(t.Context(), `SELECT quote_ident(current_database())`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	readOnly := func(how string) {
		t.Helper()
		for _, sql := range []string{
			`SET default_transaction_read_only = off`,
			`ALTER DATABASE ` + name + ` SET default_transaction_read_only = ` + how,
			`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
		} {
			if _, err := admin.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	// It begins while all places are taken: a claim that is committed, and whose answer is cut off,
	// costs an attempt.
	c.tally.until = make(chan struct{})
	c.start(2, p.URL)
	c.create(60)
	c.Eventually("the places are taken", func() bool { return c.tally.busy(40, 40) })
	readOnly("on")
	close(c.tally.until)
	time.Sleep(max(lease+time.Second, *badFor)) //nolint:forbidigo // the outage
	readOnly("off")
	c.Eventually("the database is there", func() bool { _, err := c.DB.Task(t.Context(), c.tasks[0]); return err == nil })
	c.check()
}
