package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

// A crowd creates tasks that wait for each other, so that a test decides which of them
// are written together.
type crowd struct {
	*harness
	open  chan struct{}
	calls sync.WaitGroup

	mu     sync.Mutex
	writes [][]tasker.NewTask
}

// newCrowd has the next creation hold up those that follow.
func newCrowd(h *harness) *crowd {
	c := &crowd{harness: h, open: make(chan struct{})}
	h.Engine.GateCreations(func(tasks []tasker.NewTask) {
		c.mu.Lock()
		c.writes = append(c.writes, tasks)
		c.mu.Unlock()
		<-c.open
	})
	h.Cleanup(c.calls.Wait)
	c.create(h.Context(), tasker.NewTask{Name: "single", Reason: "the first"}, func(_ engine.Created, err error) {
		if err != nil {
			h.Error(err)
		}
	})
	h.Eventually("the first is being written", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.writes) == 1
	})
	return c
}

// create creates a task in the background and passes on the answer.
func (c *crowd) create(ctx context.Context, r tasker.NewTask, answered func(engine.Created, error)) {
	r.Namespace = enginetest.Namespace
	c.calls.Go(func() {
		created, err := c.Engine.CreateTasks(ctx, []tasker.NewTask{r})
		if err != nil {
			created = []engine.Created{{}}
		}
		answered(created[0], err)
	})
}

// await returns when n creations wait.
func (c *crowd) await(n int) {
	c.Helper()
	c.Eventually(fmt.Sprint(n, " creations wait"), func() bool { return c.Engine.WaitingCreations() == n })
}

// finish lets all be written.
func (c *crowd) finish() {
	close(c.open)
	c.calls.Wait()
}

// stored counts the tasks with a reason, which all tasks of a test have.
func (c *crowd) stored(reason string) int {
	c.Helper()
	return c.Count(`SELECT count(*) FROM tasker.tasks WHERE reason = $1`, reason)
}

// Of tasks that are written together each is answered on its own: one that cannot be
// stored is refused, and no other is.
func TestEachOfManyCreationsGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.Template("replaced", enginetest.Step("one"))
	h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single"}) // the template is cached
	_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "replaced", Context: json.RawMessage(`[]`)}})
	h.WantCode(err, tasker.Invalid)
	h.fails(`INSERT ON tasker.tasks FOR EACH ROW WHEN (NEW.reason = 'refused by PostgreSQL')`)
	c := newCrowd(h)
	var mu sync.Mutex
	answers := map[string][]engine.Created{}
	errs := map[string][]error{}
	for reason, tt := range map[string]struct {
		request tasker.NewTask
		times   int
	}{
		"fine":                  {tasker.NewTask{Name: "single"}, 20},
		"replaced":              {tasker.NewTask{Name: "replaced"}, 2},
		"the same key":          {tasker.NewTask{Name: "single", IdempotencyKey: "same"}, 3},
		"other values":          {tasker.NewTask{Name: "single", IdempotencyKey: "other"}, 1},
		"refused by PostgreSQL": {tasker.NewTask{Name: "single"}, 2},
	} {
		for range tt.times {
			r := tt.request
			r.Reason = reason
			c.create(t.Context(), r, func(created engine.Created, err error) {
				mu.Lock()
				defer mu.Unlock()
				answers[reason], errs[reason] = append(answers[reason], created), append(errs[reason], err)
			})
		}
	}
	c.await(28)
	// Another server takes a key, and replaces a template, while they wait.
	other := newEngine(h.DB, engine.Options{})
	taken, err := other.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "single", IdempotencyKey: "other"}})
	h.Must(err)
	_, _, err = other.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: enginetest.Namespace, Name: "replaced", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("other")},
	}, "")
	h.Must(err)
	c.finish()

	if n := len(c.writes[1]); n != 28 {
		t.Errorf("%d tasks were in the first write after the wait, want 28", n)
	}
	for reason, n := range map[string]int{"fine": 20, "replaced": 2, "the same key": 1, "other values": 0, "refused by PostgreSQL": 0} {
		if got := c.stored(reason); got != n {
			t.Errorf("%s: %d are stored, want %d", reason, got, n)
		}
	}
	for _, reason := range []string{"fine", "replaced", "the same key"} {
		if err := errors.Join(errs[reason]...); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
	fresh := 0
	for _, a := range answers["the same key"] {
		if a.TaskUUID != answers["the same key"][0].TaskUUID {
			t.Errorf("the same key led to %s and %s", a.TaskUUID, answers["the same key"][0].TaskUUID)
		}
		if a.New {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d of the same key are new, want 1", fresh)
	}
	h.WantCode(errs["other values"][0], tasker.Conflict, taken[0].TaskUUID.String())
	for _, err := range errs["refused by PostgreSQL"] {
		if err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("refused by PostgreSQL: got %v", err)
		}
	}
	for _, a := range answers["replaced"] {
		h.step(a.TaskUUID, "other")
	}
	h.drain()
}

func TestACallerThatGoesAwayCreatesNothing(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	c := newCrowd(h)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	c.create(ctx, tasker.NewTask{Name: "single", Reason: "left"}, func(_ engine.Created, err error) { left <- err })
	c.create(t.Context(), tasker.NewTask{Name: "single", Reason: "stayed"}, func(_ engine.Created, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	c.await(2)
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	c.finish()
	if n := c.stored("left"); n != 0 {
		t.Errorf("%d tasks were stored for a caller that left", n)
	}
	if n := c.stored("stayed"); n != 1 {
		t.Errorf("%d tasks were stored for one that stayed", n)
	}
	h.drain()
}

// A caller that leaves while its task is being written leaves a task that others of the
// batch do not suffer from.
func TestACallerThatGoesAwayDuringTheWriteHarmsNoOther(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	c := newCrowd(h)
	ctx, leave := context.WithCancel(t.Context())
	for range 4 { // the first of them writes for all
		c.create(ctx, tasker.NewTask{Name: "single", Reason: "together"}, func(_ engine.Created, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	c.await(4)
	c.open <- struct{}{}
	h.Eventually("they are being written", func() bool { return c.Engine.WaitingCreations() == 0 })
	leave()
	c.finish()
	if n := c.stored("together"); n != 4 {
		t.Errorf("%d tasks are stored, want 4", n)
	}
	h.drain()
}

func TestABatchOfCreationsIsBounded(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	c := newCrowd(h)
	failed := func(_ engine.Created, err error) {
		if err != nil {
			t.Error(err)
		}
	}
	large := json.RawMessage(`{"v": "` + strings.Repeat("x", 60<<10) + `"}`)
	for range 30 {
		c.create(t.Context(), tasker.NewTask{Name: "single", Context: large}, failed)
	}
	c.await(30)
	for range 150 {
		c.create(t.Context(), tasker.NewTask{Name: "single"}, failed)
	}
	c.await(180)
	// One that is too large to share does not wait for them.
	alone := make(chan error)
	c.create(t.Context(), tasker.NewTask{Name: "single", Context: json.RawMessage(`{"v": "` + strings.Repeat("x", 70<<10) + `"}`)},
		func(_ engine.Created, err error) { alone <- err })
	h.Must(<-alone)
	c.finish()
	most := 0
	for _, tasks := range c.writes {
		size := 0
		for _, r := range tasks {
			size += len(r.Context)
		}
		if most = max(most, len(tasks)); len(tasks) > tasker.MaxSharedCreates || size > tasker.MaxSharedCreateBytes {
			t.Errorf("%d tasks with contexts of %d bytes were written together", len(tasks), size)
		}
	}
	if most < 10 || len(c.writes) > 8 {
		t.Errorf("%d writes of up to %d tasks", len(c.writes), most)
	}
	h.drain()
}

// One that waits for another transaction holds up nobody.
func TestACreationThatWaitsForALockHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.Template("locked", enginetest.Step("one"))
	h.Exec(`CREATE TABLE public.waits (name text, ms text)`)
	h.Exec(`GRANT INSERT ON public.waits TO PUBLIC`)
	h.Exec(`CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.waits VALUES (NEW.name, current_setting('lock_timeout')); RETURN NULL; END $$`)
	h.Exec(`CREATE TRIGGER noted AFTER INSERT ON tasker.tasks FOR EACH ROW EXECUTE FUNCTION public.note()`)
	c := newCrowd(h)
	tx, err := h.pool.Begin(t.Context())
	h.Must(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM tasker.task_templates WHERE name = 'locked' FOR UPDATE`)
	h.Must(err)
	others, waited := make(chan error, 8), make(chan error, 1)
	c.create(t.Context(), tasker.NewTask{Name: "locked"}, func(_ engine.Created, err error) { waited <- err })
	for range cap(others) {
		c.create(t.Context(), tasker.NewTask{Name: "single"}, func(_ engine.Created, err error) { others <- err })
	}
	c.await(9)
	close(c.open)
	for range cap(others) {
		h.Must(<-others)
	}
	select {
	case err := <-waited:
		t.Errorf("the one that waits for a lock was answered first: %v", err)
	default:
	}
	h.Must(tx.Rollback(t.Context()))
	h.Must(<-waited)
	for wait, name := range map[string]string{"250ms": "single", "5s": "locked"} { // of a shared write, and of one by itself
		if n := h.Count(`SELECT count(*) FROM public.waits WHERE name = $1 AND ms = $2`, name, wait); n != 1 {
			t.Errorf("%d tasks of %s were stored that would have waited %s, want 1", n, name, wait)
		}
	}
	h.drain()
}

// The connection breaks under a batch. Each request is one task, also when it is sent
// again.
func TestABatchWithoutAnAnswerCreatesOnce(t *testing.T) {
	t.Parallel()
	for name, reach := range map[string]bool{"answer lost": true, "commit lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, cutter := newCutHarness(t)
			h.Template("single", enginetest.Step("one"))
			c := newCrowd(h)
			ids := make([]tasker.ID, 8)
			request := func(i int) tasker.NewTask {
				return tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", IdempotencyKey: fmt.Sprint("k", i), SourceSystem: cutHere}
			}
			for i := range ids {
				c.create(within(t, 30*time.Second), request(i), func(created engine.Created, err error) {
					if ids[i] = created.TaskUUID; err != nil || !created.New {
						t.Errorf("created %+v, %v; want a new task", created, err)
					}
				})
			}
			c.await(len(ids))
			cutter.Cut(1, cutHere, reach)
			c.finish()
			if n := cutter.Count(); n != 1 {
				t.Fatalf("%d connections were broken, want 1", n)
			}
			if n := len(h.tasks()); n != len(ids)+1 {
				t.Errorf("%d tasks are stored, want %d", n, len(ids)+1)
			}
			for i, id := range ids {
				if again := h.CreateWith(request(i)); again != id {
					t.Errorf("the same request led to %s and %s", id, again)
				}
			}
			if n := h.drain(); n != len(ids)+1 {
				t.Errorf("%d steps ran, want %d", n, len(ids)+1)
			}
		})
	}
}

// A template that an engine remembers is not used once there is a newer one.
func TestANewerTemplateOfAnotherServerIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	other := newEngine(h.DB, engine.Options{})
	schemas := []string{`{"type": "object"}`, `{"type": "object", "required": ["a"]}`, `{"type": "object"}`}
	for n, schema := range schemas {
		name := fmt.Sprint("step", n)
		_, _, err := other.RegisterTemplate(t.Context(), tasker.Template{
			Namespace: enginetest.Namespace, Name: "single", Version: fmt.Sprintf("1.0.%d", n),
			Steps: []tasker.StepTemplate{enginetest.Step(name)}, InputSchema: json.RawMessage(schema),
		}, "")
		h.Must(err)
		_, err = h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "single"}})
		if n == 1 {
			h.WantCode(err, tasker.Invalid, "context")
			continue
		}
		h.Must(err)
		for range 2 {
			h.step(h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Version: fmt.Sprintf("1.0.%d", n)}), name)
			h.step(h.Create("single"), name)
		}
	}
	h.drain()
}

// The answer to a commit is lost, and the template is not the newest any more when the
// engine asks again: still there is one task.
func TestACommitWithoutAnAnswerBesideANewerTemplateCreatesOnce(t *testing.T) {
	t.Parallel()
	h, cutter := newCutHarness(t)
	h.Template("single", enginetest.Step("one"))
	h.Create("single")
	cutter.Cut(1, cutHere, true)
	done := make(chan error, 1)
	go func() {
		_, err := h.Engine.CreateTasks(within(t, 30*time.Second), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "single", SourceSystem: cutHere}})
		done <- err
	}()
	h.Eventually("the answer is lost", func() bool { return cutter.Count() == 1 })
	cutter.Cut(1000, cutHere, false) // no further try arrives before the template does
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: enginetest.Namespace, Name: "single", Version: "2.0.0", Steps: []tasker.StepTemplate{enginetest.Step("two")},
	}, "")
	h.Must(err)
	cutter.Cut(0, "", false)
	h.Must(<-done)
	if n := len(h.tasks()); n != 2 {
		t.Errorf("%d tasks are stored, want 2", n)
	}
	h.drain()
}
