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

func TestSharedCreatesAreAnsweredIndividually(t *testing.T) {
	h := newSingle(t)
	h.Template("replaced", enginetest.Step("one"))
	h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single"}) // the template is remembered
	_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "replaced", Context: json.RawMessage(`[]`)}})
	h.WantCode(err, tasker.Invalid)
	h.poison("INSERT ON tasker.tasks", `NEW.reason = 'refused by PostgreSQL'`)
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

	equal(t, "tasks of the first write after the wait", len(c.writes[1]), 28)
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
		equal(t, "task of the same key", a.TaskUUID, answers["the same key"][0].TaskUUID)
		if a.New {
			fresh++
		}
	}
	equal(t, "new tasks of the same key", fresh, 1)
	h.WantCode(errs["other values"][0], tasker.Conflict, taken[0].TaskUUID.String())
	for _, err := range errs["refused by PostgreSQL"] {
		if err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("refused by PostgreSQL: got %v", err)
		}
	}
	for _, a := range answers["replaced"] {
		h.Step(a.TaskUUID, "other")
	}
	h.Drain()
}

func TestCreateWaitingForALockBlocksNoOther(t *testing.T) {
	h := newSingle(t)
	h.Template("locked", enginetest.Step("one"))
	h.Exec(`CREATE TABLE public.waits (name text, ms text)`)
	h.Exec(`GRANT INSERT ON public.waits TO PUBLIC`)
	h.Exec(`CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.waits VALUES (NEW.name, current_setting('lock_timeout')); RETURN NULL; END $$`)
	h.Exec(`CREATE TRIGGER noted AFTER INSERT ON tasker.tasks FOR EACH ROW EXECUTE FUNCTION public.note()`)
	c := newCrowd(h)
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	h.Must(errOf(tx.Exec(t.Context(), `SELECT FROM tasker.task_templates WHERE name = 'locked' FOR UPDATE`)))
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
		h.WantCount(1, `SELECT count(*) FROM public.waits WHERE name = $1 AND ms = $2`, name, wait)
	}
	h.Drain()
}

func TestSharedCommitWithoutAnswerCreatesOnce(t *testing.T) {
	t.Parallel()
	for name, reach := range map[string]bool{"answer lost": true, "commit lost": false} {
		t.Run(name, func(t *testing.T) {
			h, cutter := newCutHarness(t)
			h.Template("single", enginetest.Step("one"))
			c := newCrowd(h)
			ids := make([]tasker.ID, 8)
			request := func(i int) tasker.NewTask {
				return tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", IdempotencyKey: fmt.Sprint("k", i), SourceSystem: cutHere}
			}
			for i := range ids {
				c.create(wrapPath(t, 30*time.Second), request(i), func(created engine.Created, err error) {
					if ids[i] = created.TaskUUID; err != nil || !created.New {
						t.Errorf("created %+v, %v; want a new task", created, err)
					}
				})
			}
			c.await(len(ids))
			cutter.Cut(1, cutHere, reach)
			c.finish()
			n := cutter.Count()
			require(t, n == 1, "%d connections were broken, want 1", n)
			equal(t, "tasks are stored", len(h.tasks()), len(ids)+1)
			for i, id := range ids {
				equal(t, "task of the same request", h.CreateWith(request(i)), id)
			}
			equal(t, "steps ran", h.Drain(), len(ids)+1)
		})
	}
}

func TestNewTemplateOfAnotherServerIsUsedImmediately(t *testing.T) {
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
			h.Step(h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", Version: fmt.Sprintf("1.0.%d", n)}), name)
			h.Step(h.Create("single"), name)
		}
	}
	h.Drain()
}

func TestCommitWithoutAnswerAndNewTemplateCreateOnce(t *testing.T) {
	h, cutter := newCutHarness(t)
	h.Template("single", enginetest.Step("one"))
	h.Create("single")
	cutter.Cut(1, cutHere, true)
	done := make(chan error, 1)
	go func() {
		_, err := h.Engine.CreateTasks(wrapPath(t, 30*time.Second), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "single", SourceSystem: cutHere}})
		done <- err
	}()
	h.Eventually("the answer is lost", func() bool { return cutter.Count() == 1 })
	cutter.Cut(1000, cutHere, false) // no further try arrives before the template does
	h.RegisterTemplate(tasker.Template{
		Namespace: enginetest.Namespace, Name: "single", Version: "2.0.0", Steps: []tasker.StepTemplate{enginetest.Step("two")},
	})
	cutter.Cut(0, "", false)
	h.Must(<-done)
	equal(t, "tasks are stored", len(h.tasks()), 2)
	h.Drain()
}
