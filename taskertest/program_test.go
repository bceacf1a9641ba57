package taskertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/embedded"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

const reserveTemplate = `
namespace_name: shop
name: order
version: 1.0.0
steps: [{name: reserve, handler: {callable: reserve_stock}}]
`

// stockWorker returns the worker of a program that writes to a table and completes its step in one
// transaction.
func stockWorker(e *embedded.Engine, pool *pgxpool.Pool) *worker.Worker {
	w := worker.New(e.Backend(), worker.Options{Namespaces: []string{"shop"}})
	worker.Handle(w, "reserve_stock", func(ctx context.Context, s *worker.Step[struct{ Item string }]) (json.RawMessage, error) {
		result := json.RawMessage(`{"reserved": true}`)
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, `UPDATE stock SET free = free - 1 WHERE item = $1 AND free > 0`, s.Input.Item)
			if err != nil {
				return err
			}
			if err := e.CompleteStepTx(ctx, tx, s.Lease(), result); err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return worker.Permanent(errors.New("out of stock"))
			}
			return nil
		})
		return result, err
	})
	return w
}

// A program creates tasks and completes steps in its transactions: a rollback leaves no trace.
func TestStepsAreCompletedInTransactionsOfTheProgram(t *testing.T) {
	t.Parallel()
	wf := taskertest.New(t, taskertest.Options{Documents: []string{reserveTemplate}, NewWorker: stockWorker})
	ctx, pool := t.Context(), wf.Pool()
	_, err := pool.Exec(ctx, `CREATE TABLE stock (item text, free integer); INSERT INTO stock VALUES ('pen', 1)`)
	if err != nil {
		t.Fatal(err)
	}
	order := func(fails error) (id tasker.ID) {
		t.Helper()
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			id, err = wf.Engine().CreateTaskTx(ctx, tx, tasker.NewTask{
				Namespace: "shop", Name: "order", Context: json.RawMessage(`{"item": "pen"}`),
			})
			return errors.Join(err, fails)
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
		return id
	}
	order(errors.New("rolled back"))
	first, second := wf.Task(order(nil)), wf.Task(order(nil))
	wf.RunUntilIdle()
	if n := len(wf.Tasks("")); n != 2 {
		t.Errorf("%d tasks, want 2", n)
	}
	first.AssertComplete()
	first.Step("reserve").AssertResult(`{"reserved": true}`)
	second.AssertState(tasker.TaskError)
	var free int
	if err := pool.QueryRow(ctx, `SELECT free FROM stock`).Scan(&free); err != nil || free != 0 {
		t.Errorf("%d are free, %v", free, err)
	}
}

// A task that waits for an answer moves to a version with another step.
func TestAnOpenTaskChangesItsVersion(t *testing.T) {
	t.Parallel()
	const before = `{namespace_name: shop, name: claim, version: 1.0.0, steps: [{name: approve, type: external}]}`
	const after = `{namespace_name: shop, name: claim, version: 1.1.0, steps: [{name: approve, type: external},
		{name: inform, handler: {callable: inform}, dependencies: [approve]}]}`
	wf := taskertest.New(t, taskertest.Options{Documents: []string{before, after}})
	wf.Always("inform", taskertest.Succeed(`"sent"`))
	task := wf.StartTask(tasker.NewTask{Namespace: "shop", Name: "claim", Version: "1.0.0"})
	wf.RunUntilIdle()
	if change := task.ChangeVersion("1.1.0"); !change.Changed || len(change.Added) != 1 {
		t.Errorf("the change is %+v", change)
	}
	task.Answer("approve", `"yes"`)
	wf.RunUntilIdle()
	task.AssertComplete()
	task.Step("inform").AssertResult(`"sent"`)
	fails(t, func(t testing.TB) {
		wf := taskertest.New(t, taskertest.Options{Documents: []string{before}})
		wf.Start(nil).ChangeVersion("7.0.0")
	}, "change to version 7.0.0")
}

// A schedule fires at its times, while the clock jumps.
func TestSchedulesFireWithTheClock(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	wf := taskertest.New(t, taskertest.Options{Documents: []string{reserveTemplate}, Begin: begin})
	wf.Always("reserve", taskertest.Succeed(nil))
	schedule, err := wf.Engine().CreateSchedule(t.Context(), tasker.ScheduleSpec{
		Namespace: "shop", Name: "nightly", Template: "order",
		ScheduleRule: tasker.ScheduleRule{Cron: "30 2 * * *", Zone: "Europe/Berlin"},
	}, "ann", "reports")
	if err != nil {
		t.Fatal(err)
	}
	wf.Advance(7 * 24 * time.Hour)
	tasks := wf.Tasks("order")
	if len(tasks) != 7 {
		t.Fatalf("%d tasks, want 7", len(tasks))
	}
	for i, task := range tasks {
		task.AssertComplete()
		want := time.Date(2030, time.March, 2+i, 1, 30, 0, 0, time.UTC)
		if at := task.Get().CreatedAt; at.Before(want) || at.After(want.Add(time.Second)) {
			t.Errorf("task %d was created at %s, want %s", i, at, want)
		}
	}
	if err := wf.Engine().DeleteSchedule(t.Context(), schedule.UUID, "ann", "done"); err != nil {
		t.Fatal(err)
	}
	wf.Advance(48 * time.Hour)
	if n := len(wf.Tasks("order")); n != 7 {
		t.Errorf("%d tasks after the schedule was deleted", n)
	}
}

// A hold keeps steps from running until it ends or is released, and the waves of its release succeed.
func TestHoldsEndWithTheClock(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]bool{"by its end": false, "by an operator": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wf := taskertest.New(t, taskertest.Options{Documents: []string{reserveTemplate}})
			wf.Always("reserve", taskertest.Succeed(nil))
			hold, err := wf.Engine().BeginHold(t.Context(), tasker.NewHold{
				HoldScope: tasker.HoldScope{Namespace: "shop", Handler: "reserve_stock"},
				For:       2 * time.Hour, Owner: "ann", Reason: "the warehouse is closed",
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				wf.Start(nil)
			}
			wf.Advance(time.Hour)
			for _, task := range wf.Tasks("") {
				task.Step("reserve").AssertState(tasker.StepEnqueued)
				task.AssertNoInvestigation()
			}
			if release {
				if _, err := wf.Engine().ReleaseHold(t.Context(), hold.UUID, nil, "ann", "open again"); err != nil {
					t.Fatal(err)
				}
				wf.RunUntilIdle()
			} else {
				wf.Advance(time.Hour + time.Minute)
			}
			for _, task := range wf.Tasks("") {
				task.AssertComplete()
			}
			if h, err := wf.Engine().Hold(t.Context(), hold.UUID); err != nil || h.State != tasker.HoldEnded {
				t.Errorf("the hold is %s, %v", h.State, err)
			}
		})
	}
}

// A released step whose worker crashes has no outcome, so the hold is active again.
func TestAFailedReleaseExtendsTheHold(t *testing.T) {
	t.Parallel()
	wf := taskertest.New(t, taskertest.Options{Documents: []string{reserveTemplate}})
	wf.Script("reserve", taskertest.Fail("closed"))
	wf.Always("reserve", taskertest.Succeed(nil))
	_, err := wf.Engine().BeginHold(t.Context(), tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: "shop"}, For: time.Hour, Owner: "ann", Reason: "closed",
	})
	if err != nil {
		t.Fatal(err)
	}
	wf.Start(nil)
	wf.Start(nil)
	wf.Advance(time.Hour + time.Second)
	holds, _, err := wf.Engine().Holds(t.Context(), tasker.HoldFilter{Open: true})
	if err != nil || len(holds) != 1 || holds[0].State != tasker.HoldActive {
		t.Fatalf("the holds are %+v, %v", holds, err)
	}
	wf.Advance(time.Hour)
	for _, task := range wf.Tasks("") {
		task.AssertComplete()
	}
}
