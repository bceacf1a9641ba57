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
	h.Must(errOf(a.conn.Exec(h.Context(), `CREATE TABLE public.orders (id integer PRIMARY KEY)`)))
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
	require(a, slices.Equal(got, ids), "orders %v, want %v", got, ids)
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

func TestTaskIsCreatedInTheCallersTransaction(t *testing.T) {
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("reserve"), enginetest.Step("charge", "reserve"))
	listener := a.connect(pgtest.AdminURL(a.URL))
	a.Must(errOf(listener.Exec(t.Context(), `LISTEN tasker_work`)))
	request := tasker.NewTask{Namespace: a.Space, Name: "order", Context: json.RawMessage(`{"id": 1}`), Tags: []string{"web"}}
	id, create := a.createIn(request)
	a.Must(a.order(1, false, create))
	a.WantCount(0, `SELECT (SELECT count(*) FROM tasker.tasks) + (SELECT count(*) FROM tasker.ready_steps)`)
	a.Must(a.order(2, true, create))
	n, err := listener.WaitForNotification(t.Context())
	a.Must(err)
	equal(t, "notified of", n.Payload, "transaction "+a.Space)
	waiting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n, err := listener.WaitForNotification(waiting); err == nil {
		t.Errorf("notified of %q as well", n.Payload)
	}
	a.wantOrders(2)
	task, err := a.DB.Task(t.Context(), *id)
	a.Must(err)
	check(t, slices.Equal(task.Tags, request.Tags) && task.State == tasker.TaskStepsInProcess,
		"the task is %+v", task)
	a.Complete("reserve")
	a.Accepted(success(a.ClaimOne("charge"), `2`))
	a.WantState(*id, tasker.TaskComplete)
}

func TestEngineIsNotifiedOfTheCallersCommit(t *testing.T) {
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
	equal(t, "commits", heard.Load(), 1)
}

func TestRejectedRequestKeepsTheCallersTransaction(t *testing.T) {
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
	check(t, before != "" && after == before, "the settings are %q after, %q before", after, before)
	a.wantOrders(1, 2, 3)
	a.WantCount(1, `SELECT count(*) FROM tasker.tasks`)
	if _, err := a.Engine.CreateTasksTx(t.Context(), nil, nil); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("no tasks: %v", err)
	}
}

func TestIdempotencyKeyWorksInTheCallersTransaction(t *testing.T) {
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("reserve"))
	r := tasker.NewTask{Namespace: a.Space, Name: "order", IdempotencyKey: "1", Context: json.RawMessage(`{"id": 1}`)}
	first, create := a.createIn(r)
	again, createAgain := a.createIn(r)
	a.Must(a.order(1, true, func(tx pgx.Tx) error { return errors.Join(create(tx), createAgain(tx)) }))
	check(t, *first == *again && *first != (tasker.ID{}), "the same key made %s and %s", first, again)
	other := r
	other.Context = json.RawMessage(`{"id": 2}`)
	_, different := a.createIn(other)
	a.WantCode(a.order(2, true, different), tasker.Conflict, `idempotency_key "1" was used for task`)
	// A transaction that does not see what was committed since it began is told so.
	tx, err := a.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	a.Must(err)
	a.Must(errOf(tx.Exec(t.Context(), `SELECT count(*) FROM public.orders`)))
	late := tasker.NewTask{Namespace: a.Space, Name: "order", IdempotencyKey: "2"}
	a.CreateWith(late)
	_, create = a.createIn(late)
	a.WantCode(create(tx), tasker.Conflict, "restart it")
	a.Must(errOf(tx.Exec(t.Context(), `INSERT INTO public.orders VALUES (3)`)))
	a.Must(tx.Commit(t.Context()))
	a.wantOrders(1, 2, 3)
}

func TestCallersTransactionNeedsThePrivilegesOfAServer(t *testing.T) {
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
	a.Must(errOf(a.conn.Exec(t.Context(), `CREATE DATABASE "`+t.Name()+`"`)))
	elsewhere := a.connect(strings.Replace(pgtest.AdminURL(a.URL), a.conn.Config().Database, t.Name(), 1))
	tx, err = elsewhere.Begin(t.Context())
	a.Must(err)
	a.WantCode(create(tx), tasker.Invalid, "does not have this version of Tasker")
	a.Must(elsewhere.Close(t.Context()))
	a.Must(errOf(a.conn.Exec(t.Context(), `DROP DATABASE "`+t.Name()+`"`)))
}

func TestStepIsCompletedInTheCallersTransaction(t *testing.T) {
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("reserve"), enginetest.Step("charge", "reserve"))
	task := a.Create("order")
	held := a.ClaimOne("reserve")
	complete := func(o tasker.Outcome) func(pgx.Tx) error {
		return func(tx pgx.Tx) error { return a.Engine.CompleteStepTx(t.Context(), tx, o) }
	}
	a.Must(a.order(1, false, complete(success(held, `{"id": 1}`))))
	a.WantStep(task, "reserve", tasker.StepInProgress, 1)
	a.WantCode(a.order(2, true, complete(failure(held, true))), tasker.Invalid, "roll back the transaction")
	a.WantCode(a.order(3, true, complete(success(held, `{"id": `))), tasker.Invalid, "result")
	a.Must(a.order(4, true, complete(success(held, `{"id": 1}`))))
	a.WantStep(task, "reserve", tasker.StepComplete, 1)
	a.WantStep(task, "charge", tasker.StepEnqueued, 1)
	a.WantState(task, tasker.TaskStepsInProcess)
	a.wantOrders(2, 3, 4)
	a.Accepted(success(held, `{"id": 1}`))
	a.Must(a.order(5, true, complete(success(held, `{"id": 1}`))))
	a.WantCode(a.order(6, true, complete(success(held, `{"id": 2}`))), tasker.Conflict, "a different outcome of this attempt was already accepted")
	r := a.Report(success(held, `{"id": 2}`))
	check(t, len(r.Rejected) == 1, "another result: %+v", r)
	lost := a.ClaimOne("charge")
	a.Release(lost)
	a.WantCode(a.order(7, true, complete(success(lost, `1`))), tasker.Conflict, "lease lost")
	a.WantStep(task, "charge", tasker.StepEnqueued, 1)
}

// Elsewhere two last steps that end at once would leave their task open.
func TestStepIsCompletedOnlyInReadCommitted(t *testing.T) {
	a := newApplication(newHarness(t))
	a.Template("order", enginetest.Step("one"), enginetest.Step("two"), external("three"))
	task := a.Create("order")
	held := a.claimAll("one", "two")
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable, pgx.ReadCommitted} {
		tx, err := a.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		a.Must(err)
		a.Must(errOf(tx.Exec(t.Context(), `SELECT count(*) FROM public.orders`)))
		if level == pgx.RepeatableRead {
			a.Accepted(success(held[1], `1`))
		}
		step := a.Engine.CompleteStepTx(t.Context(), tx, success(held[0], `1`))
		answer := a.Engine.CompleteExternalTx(t.Context(), tx, tasker.StepRef{TaskUUID: task, StepUUID: a.Step(task, "three").UUID}, tasker.Outcome{Success: true}, "desk")
		if level != pgx.ReadCommitted {
			a.WantCode(step, tasker.Invalid, "only be completed in a READ COMMITTED transaction")
			a.WantCode(answer, tasker.Invalid, "only be completed in a READ COMMITTED transaction")
		} else {
			a.Must(errors.Join(step, answer))
		}
		a.Must(tx.Commit(t.Context()))
	}
	a.WantState(task, tasker.TaskComplete)
}

func TestDecisionIsNotCompletedInTheCallersTransaction(t *testing.T) {
	a := newApplication(newHarness(t))
	a.routing()
	held := a.claimAll("route")[0]
	a.WantCode(a.order(1, true, func(tx pgx.Tx) error { return a.Engine.CompleteStepTx(t.Context(), tx, success(held, `{"steps": []}`)) }),
		tasker.Invalid, "return the result from the handler")
}

func TestExternalStepIsAnsweredInTheCallersTransaction(t *testing.T) {
	a := newApplication(newHarness(t))
	a.Template("order", external("approve"), enginetest.Step("ship", "approve"))
	task := a.Create("order")
	approve := a.Step(task, "approve").UUID
	answer := func(o tasker.Outcome) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			return a.Engine.CompleteExternalTx(t.Context(), tx, tasker.StepRef{TaskUUID: task, StepUUID: approve}, o, "desk")
		}
	}
	yes := tasker.Outcome{Success: true, Result: json.RawMessage(`"yes"`)}
	a.Must(a.order(1, false, answer(yes)))
	a.WantStep(task, "approve", tasker.StepPending, 0)
	a.Must(a.order(2, true, answer(yes)))
	a.WantState(task, tasker.TaskStepsInProcess)
	a.Must(a.order(3, true, answer(yes)))
	a.WantCode(a.order(4, true, answer(tasker.Outcome{Success: true, Result: json.RawMessage(`"no"`)})), tasker.Conflict, "already complete")
	a.WantCode(a.order(5, true, func(tx pgx.Tx) error {
		return a.Engine.CompleteExternalTx(t.Context(), tx, tasker.StepRef{TaskUUID: task, StepUUID: approve}, yes, strings.Repeat("x", 300))
	}), tasker.Invalid, "source")
	a.wantOrders(2, 3, 4, 5)
	a.Complete("ship")
	a.WantState(task, tasker.TaskComplete)
}
