package operation_test

import (
	"context"
	"flag"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/postgres"
)

// A crash breaks the connection at one statement: before PostgreSQL has it, or when it has
// answered. It stands for the server that dies there.
type crash struct {
	at    atomic.Int64 // the statement, from 1; 0: none
	after atomic.Bool
	seen  atomic.Int64
	hit   atomic.Bool
}

type crashKey struct{}

var everyCrash = flag.Bool("every-crash", false, "break the connection both before and after each statement")

// crashStep returns the distance between two statements that break: tests break the connection
// before odd and after even ones, unless -every-crash is set.
func crashStep() int64 {
	if *everyCrash {
		return 1
	}
	return 2
}

func firstCrash(after bool) int64 {
	if after {
		return crashStep()
	}
	return 1
}

func (c *crash) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	n := c.seen.Add(1)
	if n != c.at.Load() {
		return ctx
	}
	c.hit.Store(true)
	if !c.after.Load() {
		_ = conn.PgConn().Conn().Close()
		return ctx
	}
	return context.WithValue(ctx, crashKey{}, true)
}

func (*crash) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(crashKey{}) != nil {
		_ = conn.PgConn().Conn().Close()
	}
}

// arm has the n-th statement from now on break the connection.
func (c *crash) arm(n int64, after bool) {
	c.hit.Store(false)
	c.seen.Store(0)
	c.after.Store(after)
	c.at.Store(n)
}

// consistent checks what holds at every instant: the items add up, and no step was released
// twice or without its item.
func (h *harness) consistent(o tasker.Operation) {
	h.Helper()
	var items, sum, twice, strays int
	h.Must(h.Admin().QueryRow(h.Context(), `
		SELECT o.items, (SELECT count(*) FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid),
			(SELECT count(*) FROM (SELECT FROM tasker.step_history x WHERE x.operation_uuid = o.operation_uuid GROUP BY x.step_uuid HAVING count(*) > 1) t),
			(SELECT count(*) FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid AND (i.released_at IS NOT NULL) <> EXISTS (
				SELECT FROM tasker.step_history x WHERE x.operation_uuid = o.operation_uuid AND x.step_uuid = i.step_uuid))
		FROM tasker.operations o WHERE o.operation_uuid = $1`, o.UUID).Scan(&items, &sum, &twice, &strays))
	if items != sum || twice != 0 || strays != 0 {
		h.Fatalf("%d items, %d counted; %d steps released twice, %d items whose act and state differ", items, sum, twice, strays)
	}
}

// Whatever statement a server dies at, releasing or looking, another one goes on: nothing is
// released twice, nothing is forgotten, and each investigation ends once.
func TestAServerMayDieAtEveryStatement(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	c := &crash{}
	db := enginetest.Open(t, h.URL, postgres.Options{Tracer: c, MaxConns: 2})
	e := engine.New(db, engine.Options{})
	dying := operation.New(db, e, h.DLQ, operation.Options{})
	hits := 0
	for name, pass := range map[string]func() error{
		"release": func() error { _, err := dying.Release(t.Context()); return err },
		"look":    func() error { _, err := dying.VerifyItems(t.Context()); return err },
	} {
		for _, after := range []bool{false, true} {
			for n := firstCrash(after); ; n += crashStep() {
				h.stuck(3)
				o := h.started(plan())
				if name == "look" {
					h.release()
					h.work(10, succeeds)
				}
				c.arm(n, after)
				_ = pass()
				died := c.hit.Load()
				c.arm(0, false)
				h.consistent(o)
				h.Eventually("another server has gone on", func() bool { // what the dead one held is free in a moment
					h.releaseDue()
					h.work(10, succeeds)
					h.look()
					return h.now(o).State == tasker.OperationDone
				})
				h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 3})
				h.consistent(o)
				h.work(10, succeeds) // what is behind
				if !died {
					break
				}
				hits++
				if n > 100 {
					t.Fatal("there is no end of statements")
				}
			}
		}
	}
	if hits < 20 {
		t.Errorf("a server died at %d statements only", hits)
	}
	t.Logf("a server died at %d statements", hits)
	if n := h.Count(`SELECT count(*) FROM (SELECT FROM tasker.tasks_dlq_history WHERE event = 'resolved' GROUP BY dlq_entry_uuid HAVING count(*) > 1) x`); n != 0 {
		t.Errorf("%d investigations have ended twice", n)
	}
}

// Several servers, of which some die and whose database goes away and comes back, do all of an
// operation, each item once. The items add up at every instant.
func TestManyServersAndARestart(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const items = 200
	h.stuck(items)
	o := h.planned(inWaves(5, 15))
	o, err := h.ops.Start(t.Context(), o.UUID, o.PlanDigest, "ann")
	h.Must(err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	serve := func(ctx context.Context) {
		db := enginetest.Open(t, h.URL, postgres.Options{MaxConns: 4, ApplicationName: "restarted"})
		ops := operation.New(db, engine.New(db, engine.Options{}), h.DLQ, operation.Options{})
		for _, pass := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := ops.Release(ctx); return err },
			func(ctx context.Context) error { _, err := ops.VerifyItems(ctx); return err },
		} {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = pass(ctx)
				}
			})
		}
	}
	serve(ctx)
	killed, kill := context.WithCancel(ctx)
	defer kill()
	serve(killed)
	for i := 0; ; i++ {
		if now := h.now(o); now.State == tasker.OperationDone {
			break
		}
		h.consistent(o)
		h.work(100, succeeds)
		switch i {
		case 3:
			kill() // in the middle of what it does
		case 6, 12:
			h.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'restarted' AND datname = current_database()`)
		case 5000:
			t.Fatalf("it does not end: %+v", h.now(o).Counts)
		}
	}
	stop()
	wg.Wait()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: items})
	h.consistent(o)
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'manually_resolved' AND metadata -> 'proof' ->> 'operation_uuid' = $1`, o.UUID.String()); n != items {
		t.Errorf("%d investigations have ended with the proof", n)
	}
}

// An item at which something fails holds up neither the others of its operation nor other
// operations, when it is released and when it is looked at.
func TestFailingItemDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(6)
	first, second := plan(), plan()
	first.Selection, second.Selection = tasker.OperationSelection{IDs: tasks[:5]}, tasker.OperationSelection{IDs: tasks[5:]}
	bad, good := h.started(first), h.started(second)
	h.refuse("broken", `BEFORE INSERT ON tasker.step_history FOR EACH ROW WHEN (NEW.task_uuid = '`+tasks[1].String()+`' AND NEW.event = 'reset_for_retry')`)
	h.releaseAll(bad, good)
	h.wantCounts(bad, tasker.OperationRunning, counts{tasker.ItemReleased: 4, tasker.ItemSkipped: 1})
	h.wantCounts(good, tasker.OperationRunning, counts{tasker.ItemReleased: 1})
	h.refuse("broken_too", `BEFORE UPDATE ON tasker.tasks_dlq FOR EACH ROW WHEN (NEW.task_uuid = '`+tasks[2].String()+`')`)
	h.work(10, succeeds)
	h.look()
	h.wantCounts(good, tasker.OperationDone, counts{tasker.ItemVerified: 1})
	h.wantCounts(bad, tasker.OperationRunning, counts{tasker.ItemReleased: 1, tasker.ItemVerified: 3, tasker.ItemSkipped: 1})
	h.Exec(`DROP TRIGGER broken_too ON tasker.tasks_dlq`)
	h.look()
	h.wantCounts(bad, tasker.OperationDone, counts{tasker.ItemVerified: 4, tasker.ItemSkipped: 1})
}

// refuse makes the database refuse the statements that a trigger fires for.
func (h *harness) refuse(name, trigger string) {
	h.Helper()
	h.Exec(`CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(`CREATE TRIGGER ` + name + ` ` + trigger + ` EXECUTE FUNCTION public.refuse()`)
}

// Of two operations with a poisoned item each, neither loses another item: what is skipped is the
// item that was tried.
func TestOnlyThePoisonedItemIsSkipped(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(8)
	first, second := plan(), plan()
	first.Selection, second.Selection = tasker.OperationSelection{IDs: tasks[:5]}, tasker.OperationSelection{IDs: tasks[5:]}
	a, b := h.started(first), h.started(second)
	h.refuse("broken", `BEFORE INSERT ON tasker.step_history FOR EACH ROW WHEN (NEW.task_uuid IN ('`+tasks[0].String()+`', '`+tasks[5].String()+`') AND NEW.event = 'reset_for_retry')`)
	h.releaseAll(a, b)
	h.wantCounts(a, tasker.OperationRunning, counts{tasker.ItemReleased: 4, tasker.ItemSkipped: 1})
	h.wantCounts(b, tasker.OperationRunning, counts{tasker.ItemReleased: 2, tasker.ItemSkipped: 1})
	var skipped []tasker.ID
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT array_agg(task_uuid ORDER BY task_uuid) FROM tasker.operation_items WHERE state = 'skipped' AND outcome = 'error'`).Scan(&skipped))
	if !slices.Equal(skipped, []tasker.ID{tasks[0], tasks[5]}) {
		t.Errorf("%v are skipped, want %v and %v", skipped, tasks[0], tasks[5])
	}
}

// An operation about which nothing can be decided loses no item, and holds up no other operation.
func TestFailingOperationDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(4)
	first, second := plan(), plan()
	first.Selection, first.Waves = tasker.OperationSelection{IDs: tasks[:2]}, []int{1}
	second.Selection = tasker.OperationSelection{IDs: tasks[2:]}
	bad := h.started(first)
	h.release()
	h.work(1, succeeds)
	h.look()
	h.refuse("broken", `BEFORE UPDATE ON tasker.operations FOR EACH ROW WHEN (NEW.wave <> OLD.wave)`)
	good := h.started(second)
	h.releaseDue()
	h.wantCounts(good, tasker.OperationRunning, counts{tasker.ItemReleased: 2})
	h.wantCounts(bad, tasker.OperationRunning, counts{tasker.ItemVerified: 1, tasker.ItemPlanned: 1})
	h.Exec(`DROP TRIGGER broken ON tasker.operations`)
	h.releaseDue()
	h.wantCounts(bad, tasker.OperationRunning, counts{tasker.ItemVerified: 1, tasker.ItemReleased: 1})
}
