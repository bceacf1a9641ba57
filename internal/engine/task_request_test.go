package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

// request calls tasker.create_task with arguments in SQL, as a program without Tasker's Go packages.
func (h *harness) request(q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, args string,
) (id tasker.ID, err error) {
	err = q.QueryRow(h.Context(), `SELECT tasker.create_task(`+args+`)`).Scan(&id)
	return id, err
}

// program begins a transaction of a program.
func (h *harness) program() pgx.Tx {
	h.Helper()
	tx, err := h.Admin().Begin(h.Context())
	h.Must(err)
	return tx
}

// A task that is requested in SQL is created after the commit, with the UUID of the request. A
// rollback leaves no trace.
func TestTasksAreRequestedInSQL(t *testing.T) {
	h := newSingle(t)
	const order = `namespace => 'shop', name => 'single', context => '{"order": 7}', priority => 5, tags => '{vip}', reason => 'r'`
	tx := h.program()
	undone, err := h.request(tx, order)
	h.Must(err)
	h.Must(tx.Rollback(t.Context()))
	tx = h.program()
	id, err := h.request(tx, order)
	h.Must(err)
	h.Tick()
	h.WantCode(errOf(h.DB.Task(t.Context(), id)), tasker.NotFound, "not found")
	h.Must(tx.Commit(t.Context()))
	ended := h.awaited(h.Engine, id)
	h.Tick()
	got := h.Task(id)
	if got.State != tasker.TaskStepsInProcess || got.Priority != 5 || string(got.Context) != `{"order": 7}` || got.Tags[0] != "vip" || got.Reason != "r" || got.Initiator == "" {
		t.Errorf("the task is %+v", got)
	}
	h.WantCode(errOf(h.DB.Task(t.Context(), undone)), tasker.NotFound, "not found")
	h.WantCount(0, `SELECT count(*) FROM tasker.task_requests`)
	h.Complete("one")
	<-ended
	h.WantState(id, tasker.TaskComplete)
}

// The function refuses what it can check itself, with a code.
func TestRequestsInSQLAreChecked(t *testing.T) {
	h := newSingle(t)
	for args, want := range map[string]string{
		`'shop', 'other'`:                               "TK404",
		`'shop', 'single', version => '9.0.0'`:          "TK404",
		`'nowhere', 'single'`:                           "TK404",
		`'', 'single'`:                                  "TK400",
		`NULL, 'single'`:                                "TK400",
		`'shop', ''`:                                    "TK400",
		`'shop', 'single', '[1]'`:                       "TK400",
		`'shop', 'single', priority => 1001`:            "TK400",
		`'shop', 'single', idempotency_key => ' '`:      "TK400",
		`'shop', 'single', tags => '{""}'`:              "TK400",
		`'shop', 'single', reason => repeat('x', 2001)`: "TK400",
		`'shop', 'single', jsonb_build_object('a', repeat('x', 1048576))`: "TK413",
	} {
		tx := h.program()
		_, err := h.request(tx, args)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != want || pg.Detail == "" {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
		h.Must(tx.Rollback(t.Context()))
	}
	h.WantCount(0, `SELECT count(*) FROM tasker.task_requests`)
	id, err := h.request(h.Admin(), `'shop', 'single', NULL, NULL, NULL`)
	h.Must(err)
	h.Tick()
	h.WantState(id, tasker.TaskStepsInProcess)
}

// The same key with the same values is the same task, whether the first request was committed, has
// become a task or is still in another transaction. Other values are a conflict.
func TestKeysOfRequestsInSQL(t *testing.T) {
	h := newSingle(t)
	const keyed = `'shop', 'single', '{"a": 1}', idempotency_key => 'k'`
	other := `'shop', 'single', '{"a": 2}', idempotency_key => 'k'`
	conflict := func(when string) {
		t.Helper()
		var pg *pgconn.PgError
		if _, err := h.request(h.Admin(), other); !errors.As(err, &pg) || pg.Code != "TK409" {
			t.Errorf("%s: %v", when, err)
		}
	}
	first := h.program()
	id, err := h.request(first, keyed)
	h.Must(err)
	concurrent := make(chan error, 1)
	go func() {
		again, err := h.request(h.Admin(), keyed)
		if err == nil && again != id {
			err = fmt.Errorf("the task is %s, want %s", again, id)
		}
		concurrent <- err
	}()
	h.Eventually("the second request waits", func() bool {
		return h.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	h.Must(first.Commit(t.Context()))
	h.Must(<-concurrent)
	for _, when := range []string{"before the task exists", "when the task exists"} {
		if again, err := h.request(h.Admin(), keyed); err != nil || again != id {
			t.Errorf("%s: %s, %v, want %s", when, again, err, id)
		}
		conflict(when)
		h.WantCount(1, `SELECT (SELECT count(*) FROM tasker.task_requests) + (SELECT count(*) FROM tasker.tasks)`)
		h.Tick()
	}
}

// A request that a server refuses stays visible, and its key is free again.
func TestRefusedRequestsInSQLAreKept(t *testing.T) {
	h := newHarness(t)
	h.Template("single", enginetest.Step("one"))
	h.Exec(`UPDATE tasker.task_templates SET configuration = jsonb_set(configuration, '{input_schema}', '{"type": "object", "required": ["order"]}')`)
	id, err := h.request(h.Admin(), `'shop', 'single', idempotency_key => 'k'`)
	h.Must(err)
	h.Tick()
	refused := true
	list, more, err := h.DB.TaskRequests(t.Context(), tasker.TaskRequestFilter{Refused: &refused, Limit: 10})
	h.Must(err)
	if len(list) != 1 || more || list[0].TaskUUID != id || list[0].ErrorCode != tasker.OptionalString(tasker.Invalid) || list[0].RefusedAt == nil {
		t.Fatalf("refused: %+v", list)
	}
	h.Tick()
	if n, err := h.DB.RefusedTaskRequests(t.Context()); n != 1 || err != nil {
		t.Errorf("%d are refused, %v", n, err)
	}
	next, err := h.request(h.Admin(), `'shop', 'single', '{"order": 1}', idempotency_key => 'k'`)
	h.Must(err)
	h.Tick()
	h.WantState(next, tasker.TaskStepsInProcess)
	h.Must(h.DB.DeleteTaskRequest(t.Context(), id, "ann"))
	h.WantCode(h.DB.DeleteTaskRequest(t.Context(), id, "ann"), tasker.NotFound, "no request for task")
	h.WantCount(1, `SELECT count(*) FROM tasker.audit_events WHERE action = 'task_request.dismissed' AND actor = 'ann'`)
}

// A commit of a program notifies the servers, a rollback does not.
func TestRequestsInSQLAreAnnounced(t *testing.T) {
	h := newSingle(t)
	begun, messages := make(chan struct{}), make(chan string, 10)
	go func() {
		_ = h.DB.Listen(t.Context(), []string{postgres.DueChannel}, func() { close(begun) }, func(_, message string) { messages <- message })
	}()
	<-begun
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }, func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
	} {
		tx := h.program()
		_, err := h.request(tx, `'shop', 'single'`)
		h.Must(err)
		if len(messages) > 0 {
			t.Errorf("announced before the commit: %s", <-messages)
		}
		h.Must(end(tx))
	}
	if message := <-messages; message != "sql 0" {
		t.Errorf("announced %q", message)
	}
}

// A program needs only the privilege to execute the function, and can do nothing else.
func TestAProgramNeedsOnlyExecute(t *testing.T) {
	h := newSingle(t)
	tx := h.program()
	for _, sql := range []string{
		`CREATE ROLE program_of_a_test`, `GRANT USAGE ON SCHEMA tasker TO program_of_a_test`,
		`GRANT EXECUTE ON FUNCTION tasker.create_task TO program_of_a_test`, `SET LOCAL ROLE program_of_a_test`,
	} {
		_, err := tx.Exec(t.Context(), sql)
		h.Must(err)
	}
	_, err := h.request(tx, `'shop', 'single'`)
	h.Must(err)
	if _, err := tx.Exec(t.Context(), `SELECT task_uuid FROM tasker.task_requests`); err == nil {
		t.Error("the program can read the requests")
	}
	h.Must(tx.Rollback(t.Context()))
}
