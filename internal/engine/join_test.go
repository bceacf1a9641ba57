package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest"
)

// An application is a program with a connection and a table of its own in the database.
type application struct {
	*harness
	conn *pgx.Conn
}

func newApplication(h *harness) *application {
	h.Helper()
	a := &application{h, h.connect(pgtest.AdminURL(h.URL))}
	_, err := a.conn.Exec(h.Context(), `CREATE TABLE public.orders (id integer PRIMARY KEY)`)
	h.Must(err)
	return a
}

func (h *harness) connect(url string) *pgx.Conn {
	h.Helper()
	conn, err := pgx.Connect(h.Context(), url)
	h.Must(err)
	h.Cleanup(func() { _ = conn.Close(context.WithoutCancel(h.Context())) })
	return conn
}

// order places an order and does something else in one transaction, which ends as told.
func (a *application) order(id int, commit bool, do func(tx pgx.Tx) error) error {
	a.Helper()
	tx, err := a.conn.Begin(a.Context())
	a.Must(err)
	failed := do(tx)
	_, err = tx.Exec(a.Context(), `INSERT INTO public.orders VALUES ($1)`, id)
	a.Must(err) // also after an error
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	a.Must(end(a.Context()))
	return failed
}

func (a *application) wantOrders(ids ...int) {
	a.Helper()
	rows, err := a.conn.Query(a.Context(), `SELECT id FROM public.orders ORDER BY id`)
	a.Must(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	a.Must(err)
	if !slices.Equal(got, ids) {
		a.Fatalf("orders %v, want %v", got, ids)
	}
}

// createIn returns what creates a task in a transaction, and where its id will be.
func (a *application) createIn(r tasker.NewTask) (*tasker.ID, func(pgx.Tx) error) {
	id := new(tasker.ID)
	return id, func(tx pgx.Tx) error {
		made, err := a.Engine.CreateTasksTx(a.Context(), tx, []tasker.NewTask{r})
		if err == nil {
			*id = made[0].TaskUUID
		}
		return err
	}
}

// A task that is created in a transaction of a program is there with what else it did, or not
// at all: without it there is not even a notification.
func TestATaskIsCreatedInATransactionOfAProgram(t *testing.T) {
	t.Parallel()
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("reserve"), enginetest.Step("charge", "reserve"))
	listener := a.connect(pgtest.AdminURL(a.URL))
	_, err := listener.Exec(t.Context(), `LISTEN tasker_work`)
	a.Must(err)
	request := tasker.NewTask{Namespace: a.Space, Name: "order", Context: json.RawMessage(`{"id": 1}`), Tags: []string{"web"}}
	id, create := a.createIn(request)
	a.Must(a.order(1, false, create))
	if n := a.Count(`SELECT count(*) FROM tasker.tasks`) + a.Count(`SELECT count(*) FROM tasker.ready_steps`); n != 0 {
		t.Errorf("%d rows after a rollback", n)
	}
	a.Must(a.order(2, true, create))
	n, err := listener.WaitForNotification(t.Context())
	a.Must(err)
	if n.Payload != "transaction "+a.Space {
		t.Errorf("notified of %q", n.Payload)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n, err := listener.WaitForNotification(waiting); err == nil {
		t.Errorf("notified of %q as well", n.Payload)
	}
	a.wantOrders(2)
	task, err := a.DB.Task(t.Context(), *id)
	a.Must(err)
	if !slices.Equal(task.Tags, request.Tags) || task.State != tasker.TaskStepsInProcess {
		t.Errorf("the task is %+v", task)
	}
	a.accepted(success(a.claimOne("reserve"), `1`))
	a.accepted(success(a.claimOne("charge"), `2`))
	a.wantState(*id, tasker.TaskComplete)
}

// Every process hears that the transaction has committed, the one that was asked as well: it
// is not the one that commits.
func TestAnEngineHearsOfATransactionOfAProgram(t *testing.T) {
	t.Parallel()
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("reserve"))
	var heard atomic.Int32
	a.DB.OnCommit(func() { heard.Add(1) })
	ctx, stop := context.WithCancel(t.Context())
	g := loop.NewGroup(ctx)
	g.Go("listen", a.Engine.Listen)
	defer func() { stop(); a.Must(g.Wait()) }()
	a.Eventually("it listens", func() bool {
		return a.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN "tasker_due"%'`) > 0
	})
	_, create := a.createIn(tasker.NewTask{Namespace: a.Space, Name: "order"})
	a.Must(a.order(1, false, create))
	a.Must(a.order(2, true, create))
	a.Eventually("it hears of the commit", func() bool { return heard.Load() > 0 })
	if n := heard.Load(); n != 1 {
		t.Errorf("it heard of %d commits, want 1", n)
	}
}

// What is refused leaves the transaction as it was, and so it is with its settings.
func TestATransactionOfAProgramGoesOn(t *testing.T) {
	t.Parallel()
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("reserve"))
	const settings = `SELECT concat_ws('|', current_setting('search_path'), current_setting('timezone'), current_setting('lock_timeout'),
		current_setting('enable_seqscan'), current_setting('jit'))`
	_, err := a.conn.Exec(t.Context(), `SET timezone = 'Asia/Tokyo'; SET search_path = public; SET lock_timeout = '7s'`)
	a.Must(err)
	var before, after string
	a.Must(a.conn.QueryRow(t.Context(), settings).Scan(&before))
	_, unknown := a.createIn(tasker.NewTask{Namespace: a.Space, Name: "other"})
	a.WantCode(a.order(1, true, unknown), tasker.NotFound, "template shop/other not found")
	_, none := a.createIn(tasker.NewTask{})
	a.WantCode(a.order(2, true, none), tasker.Invalid, "namespace")
	_, create := a.createIn(tasker.NewTask{Namespace: a.Space, Name: "order"})
	a.Must(a.order(3, true, func(tx pgx.Tx) error {
		if err := create(tx); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), settings).Scan(&after)
	}))
	if before == "" || after != before {
		t.Errorf("the settings are %q after, %q before", after, before)
	}
	a.wantOrders(1, 2, 3)
	if n := a.Count(`SELECT count(*) FROM tasker.tasks`); n != 1 {
		t.Errorf("%d tasks", n)
	}
	if _, err := a.Engine.CreateTasksTx(t.Context(), nil, nil); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("no tasks: %v", err)
	}
}

// The same key leads to the same task, also when another transaction was faster.
func TestAKeyInATransactionOfAProgram(t *testing.T) {
	t.Parallel()
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("reserve"))
	r := tasker.NewTask{Namespace: a.Space, Name: "order", IdempotencyKey: "1", Context: json.RawMessage(`{"id": 1}`)}
	first, create := a.createIn(r)
	again, createAgain := a.createIn(r)
	a.Must(a.order(1, true, func(tx pgx.Tx) error { return errors.Join(create(tx), createAgain(tx)) }))
	if *first != *again || *first == (tasker.ID{}) {
		t.Errorf("the same key made %s and %s", first, again)
	}
	other := r
	other.Context = json.RawMessage(`{"id": 2}`)
	_, different := a.createIn(other)
	a.WantCode(a.order(2, true, different), tasker.Conflict, `idempotency_key "1" was used for task`)
	// A transaction that does not see what was committed since it began is told so.
	tx, err := a.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	a.Must(err)
	_, err = tx.Exec(t.Context(), `SELECT count(*) FROM public.orders`)
	a.Must(err)
	late := tasker.NewTask{Namespace: a.Space, Name: "order", IdempotencyKey: "2"}
	a.CreateWith(late)
	_, create = a.createIn(late)
	a.WantCode(create(tx), tasker.Conflict, "restart it")
	_, err = tx.Exec(t.Context(), `INSERT INTO public.orders VALUES (3)`)
	a.Must(err)
	a.Must(tx.Commit(t.Context()))
	a.wantOrders(1, 2, 3)
}

// The role of the transaction needs what a server needs.
func TestARoleThatMayNotCreateTasks(t *testing.T) {
	t.Parallel()
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("reserve"))
	_, create := a.createIn(tasker.NewTask{Namespace: a.Space, Name: "order"})
	reader := strings.Replace(a.URL, pgtest.ServerRole, pgtest.ReaderRole, 1)
	tx, err := a.connect(reader).Begin(t.Context())
	a.Must(err)
	a.WantCode(create(tx), tasker.Forbidden, "docs/reference/database-roles.md")
	a.Must(tx.Rollback(t.Context()))
	tx, err = a.connect(a.URL).Begin(t.Context())
	a.Must(err)
	a.Must(create(tx))
	a.Must(tx.Commit(t.Context()))
	_, err = a.conn.Exec(t.Context(), `CREATE DATABASE "`+t.Name()+`"`)
	a.Must(err)
	elsewhere := a.connect(strings.Replace(pgtest.AdminURL(a.URL), a.conn.Config().Database, t.Name(), 1))
	tx, err = elsewhere.Begin(t.Context())
	a.Must(err)
	a.WantCode(create(tx), tasker.Invalid, "does not have this version of Tasker")
	a.Must(elsewhere.Close(t.Context()))
	_, err = a.conn.Exec(t.Context(), `DROP DATABASE "`+t.Name()+`"`)
	a.Must(err)
}

// A worker completes its step in the transaction in which it does the work: both count, or
// neither. The report that follows changes nothing.
func TestAStepIsCompletedInATransactionOfAProgram(t *testing.T) {
	t.Parallel()
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("reserve"), enginetest.Step("charge", "reserve"))
	task := a.Create("order")
	held := a.claimOne("reserve")
	complete := func(o tasker.Outcome) func(pgx.Tx) error {
		return func(tx pgx.Tx) error { return a.Engine.CompleteStepTx(t.Context(), tx, o) }
	}
	a.Must(a.order(1, false, complete(success(held, `{"id": 1}`))))
	a.wantStep(task, "reserve", tasker.StepInProgress, 1)
	a.WantCode(a.order(2, true, complete(failure(held, true))), tasker.Invalid, "roll back the transaction")
	a.WantCode(a.order(3, true, complete(success(held, `{"id": `))), tasker.Invalid, "result")
	a.Must(a.order(4, true, complete(success(held, `{"id": 1}`))))
	a.wantStep(task, "reserve", tasker.StepComplete, 1)
	a.wantStep(task, "charge", tasker.StepEnqueued, 1)
	a.wantState(task, tasker.TaskStepsInProcess)
	a.wantOrders(2, 3, 4)
	a.accepted(success(held, `{"id": 1}`))
	a.Must(a.order(5, true, complete(success(held, `{"id": 1}`))))
	a.WantCode(a.order(6, true, complete(success(held, `{"id": 2}`))), tasker.Conflict, "a different outcome of this attempt was already accepted")
	if r := a.report(success(held, `{"id": 2}`)); len(r.Rejected) != 1 {
		t.Errorf("another result: %+v", r)
	}
	lost := a.claimOne("charge")
	_, _, err := a.Engine.Release(t.Context(), a.worker, []tasker.Lease{lost.Lease()})
	a.Must(err)
	a.WantCode(a.order(7, true, complete(success(lost, `1`))), tasker.Conflict, "lease lost")
	a.wantStep(task, "charge", tasker.StepEnqueued, 1)
}

// A transaction that does not see what others commit would leave a task whose last two steps end
// at once without an end: it is refused.
func TestAStepIsNotCompletedInATransactionThatSeesTheOld(t *testing.T) {
	t.Parallel()
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("one"), enginetest.Step("two"), external("three"))
	task := a.Create("order")
	held := a.claimAll("one", "two")
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable, pgx.ReadCommitted} {
		tx, err := a.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		a.Must(err)
		_, err = tx.Exec(t.Context(), `SELECT count(*) FROM public.orders`)
		a.Must(err)
		if level == pgx.RepeatableRead {
			a.accepted(success(held[1], `1`))
		}
		step := a.Engine.CompleteStepTx(t.Context(), tx, success(held[0], `1`))
		answer := a.Engine.CompleteExternalTx(t.Context(), tx, tasker.StepRef{TaskUUID: task, StepUUID: a.step(task, "three").UUID}, tasker.Outcome{Success: true}, "desk")
		if level != pgx.ReadCommitted {
			a.WantCode(step, tasker.Invalid, "only be completed in a READ COMMITTED transaction")
			a.WantCode(answer, tasker.Invalid, "only be completed in a READ COMMITTED transaction")
		} else {
			a.Must(errors.Join(step, answer))
		}
		a.Must(tx.Commit(t.Context()))
	}
	a.wantState(task, tasker.TaskComplete)
}

// The result of a decision is checked when it is reported.
func TestADecisionIsNotCompletedInATransactionOfAProgram(t *testing.T) {
	t.Parallel()
	a := newApplication(newHarness(t))
	a.routing()
	held := a.claimAll("route")[0]
	a.WantCode(a.order(1, true, func(tx pgx.Tx) error { return a.Engine.CompleteStepTx(t.Context(), tx, success(held, `{"steps": []}`)) }),
		tasker.Invalid, "return the result from the handler")
}

// An external step is answered in the transaction that has the answer.
func TestAnExternalStepIsAnsweredInATransactionOfAProgram(t *testing.T) {
	t.Parallel()
	a := newApplication(newHarness(t))
	a.Template("order", external("approve"), enginetest.Step("ship", "approve"))
	task := a.Create("order")
	approve := a.step(task, "approve").UUID
	answer := func(o tasker.Outcome) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			return a.Engine.CompleteExternalTx(t.Context(), tx, tasker.StepRef{TaskUUID: task, StepUUID: approve}, o, "desk")
		}
	}
	yes := tasker.Outcome{Success: true, Result: json.RawMessage(`"yes"`)}
	a.Must(a.order(1, false, answer(yes)))
	a.wantStep(task, "approve", tasker.StepPending, 0)
	a.Must(a.order(2, true, answer(yes)))
	a.wantState(task, tasker.TaskStepsInProcess)
	a.Must(a.order(3, true, answer(yes)))
	a.WantCode(a.order(4, true, answer(tasker.Outcome{Success: true, Result: json.RawMessage(`"no"`)})), tasker.Conflict, "complete already")
	a.WantCode(a.order(5, true, func(tx pgx.Tx) error {
		return a.Engine.CompleteExternalTx(t.Context(), tx, tasker.StepRef{TaskUUID: task, StepUUID: approve}, yes, strings.Repeat("x", 300))
	}), tasker.Invalid, "source")
	a.wantOrders(2, 3, 4, 5)
	a.accepted(success(a.claimOne("ship"), `1`))
	a.wantState(task, tasker.TaskComplete)
}
