package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/rabbitmq"
	"tasker.example/tasker/worker"
)

// A step gets all results of its dependencies, also those too large to come with the step.
func TestLargeResultsReachTheStepsAfterThem(t *testing.T) {
	eachWay(t, engine.Options{}, runsLargeFanIn)
}

func runsLargeFanIn(h *enginetest.Harness, b worker.Backend) {
	const parents = 8
	var steps []tasker.StepTemplate
	var names []string
	for i := range parents {
		names = append(names, fmt.Sprint("p", i))
		s := stepOf(names[i])
		s.Handler.Callable = "parent"
		steps = append(steps, s)
	}
	h.Template("fan", append(steps, stepOf("child", names...), stepOf("raw", names...))...)
	w := worker.New(b, worker.Options{Namespaces: []string{"n"}})
	piece := strings.Repeat("x", 200<<10)
	worker.Handle(w, "parent", func(_ context.Context, s *worker.Step[struct{}]) ([]string, error) {
		return []string{s.Name, piece, piece, piece, piece}, nil
	})
	var inline, fetched, raw atomic.Int64
	worker.Handle(w, "child", func(_ context.Context, s *worker.Step[struct{}]) (int, error) {
		for _, d := range s.Dependencies() {
			var got []string
			if err := s.Dependency(d.Name, &got); err != nil {
				return 0, err
			}
			if len(got) != 5 || got[0] != d.Name || got[4] != piece || d.Bytes < 800<<10 || d.Bytes > 801<<10 {
				return 0, fmt.Errorf("result of %s: %d elements, %d bytes", d.Name, len(got), d.Bytes)
			}
			if d.Inline {
				inline.Add(1)
			} else {
				fetched.Add(1)
			}
		}
		return 1, nil
	})
	w.HandleRaw("raw", func(ctx context.Context, c *worker.Call) (json.RawMessage, error) {
		for _, d := range c.Dependencies() {
			doc, err := c.DependencyRaw(ctx, d.Name)
			if err != nil {
				return nil, err
			}
			raw.Add(int64(len(doc)))
		}
		return nil, nil
	})
	task := h.Create("fan")
	r := start(h.T, w)
	waitFor(h, task, tasker.TaskComplete)
	r.finish()
	if inline.Load() != 5 || fetched.Load() != 3 || raw.Load() < parents*800<<10 {
		h.Errorf("%d results came along, %d were fetched, %d bytes were read raw", inline.Load(), fetched.Load(), raw.Load())
	}
}

// The results of the items of a map step reach the step after it, whether they fit into its result or
// not.
func TestResultsOfItemsReachTheStepAfterThem(t *testing.T) {
	eachWay(t, engine.Options{}, runsMaps)
	t.Run("with a message broker", func(t *testing.T) {
		h := newEngine(t, engine.Options{})
		runsMaps(h, rabbitmq.NewBackend(overHTTP(h), rabbitmq.Options{}))
	})
}

func runsMaps(h *enginetest.Harness, b worker.Backend) {
	each := stepOf("each")
	each.Type, each.Over, each.Handler.Callable = tasker.MapStep, "context.list", "item"
	h.Template("map", each, stepOf("sum", "each"))
	w := worker.New(b, worker.Options{Namespaces: []string{"n"}})
	piece := strings.Repeat("x", 250_000)
	worker.Handle(w, "item", func(_ context.Context, s *worker.Step[struct{}]) (any, error) {
		var large bool
		if err := s.Element(&large); err != nil || !large {
			return []any{s.Index}, err
		}
		var whole struct{ List []bool }
		if err := s.TaskContext(&whole); err != nil || len(whole.List) != 12 || string(s.Context) != "{}" || !slices.Equal(s.ContextOmitted, []string{"/list"}) {
			return nil, worker.Permanent(fmt.Errorf("the context is %s without %v, with it %v: %w", s.Context, s.ContextOmitted, whole, err))
		}
		return []any{s.Index, piece, piece, piece, piece}, nil
	})
	var seen [2][]int
	worker.Handle(w, "sum", func(_ context.Context, s *worker.Step[struct{ List []bool }]) (int, error) {
		var at []int
		for doc, err := range s.ItemResults("each") {
			var got []json.RawMessage
			if err == nil {
				err = json.Unmarshal(doc, &got)
			}
			if err != nil {
				return 0, err
			}
			i, _ := strconv.Atoi(string(got[0]))
			at = append(at, i)
		}
		seen[len(s.Input.List)/10] = at
		return len(at), nil
	})
	r := start(h.T, w)
	for _, list := range []string{`[false, false, false]`, `[true` + strings.Repeat(", true", 11) + `]`} {
		task := h.CreateWith(tasker.NewTask{Namespace: "n", Name: "map", Context: json.RawMessage(`{"list": ` + list + `}`)})
		waitFor(h, task, tasker.TaskComplete)
	}
	r.finish()
	if !slices.Equal(seen[0], []int{0, 1, 2}) || !slices.Equal(seen[1], []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
		h.Errorf("saw the results of %v", seen)
	}
}

// A worker without a way to read results of items says so, and what is no result of a map is an error.
func TestResultsOfItemsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFake()
	a := step("sum")
	a.DependencyResults = map[string]json.RawMessage{"each": json.RawMessage(`{"items": 2, "results_truncated": true}`), "other": json.RawMessage(`[1]`)}
	for name, want := range map[string]string{
		"each": "this worker has no backend to read them from", "other": "result of step other", "none": `does not depend on "none"`,
	} {
		w := worker.New(f, worker.Options{})
		worker.Handle(w, "sum", func(_ context.Context, s *worker.Step[struct{}]) (int, error) {
			for _, err := range s.ItemResults(name) {
				if err != nil {
					return 0, err
				}
			}
			return 1, nil
		})
		o, _ := w.Execute(t.Context(), a)
		if o.Failure == nil || o.Failure.Retryable || !strings.Contains(o.Failure.Message, want) {
			t.Errorf("%s: %+v", name, o.Failure)
		}
	}
}

// The context is fetched only where it came without something.
func TestTheContextOfATask(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, context string
		omitted       []string
		want          string // of the failure; empty: there is none
	}{
		{"whole", `{"n": 1}`, nil, ""},
		{"none", ``, nil, ""},
		{"not as it should be", `{"n": "1"}`, nil, "context of the task"},
		{"no way to read it", `{"n": 1}`, []string{"/a", "/b"}, "lacks /a, /b, and this worker has no backend"},
	} {
		w := worker.New(newFake(), worker.Options{})
		worker.Handle(w, "sum", func(_ context.Context, s *worker.Step[json.RawMessage]) (int, error) {
			var in struct{ N int }
			return in.N, s.TaskContext(&in)
		})
		a := step("sum")
		a.Context, a.ContextOmitted = json.RawMessage(tt.context), tt.omitted
		o, _ := w.Execute(t.Context(), a)
		if tt.want == "" && (o.Failure != nil || (tt.context != "") != (string(o.Result) == "1")) || tt.want != "" && (o.Failure == nil || o.Failure.Retryable || !strings.Contains(o.Failure.Message, tt.want)) {
			t.Errorf("%s: %s, %+v", tt.name, o.Result, o.Failure)
		}
	}
}

// Steps that do not fit into one answer come in several, and use no attempt meanwhile.
func TestLargeContextsArriveAFewAtATime(t *testing.T) {
	eachWay(t, engine.Options{}, runsLargeContexts)
}

func runsLargeContexts(h *enginetest.Harness, b worker.Backend) {
	const tasks = 24 // three answers
	h.Template("large", enginetest.Once(stepOf("one")))
	piece := `"` + strings.Repeat("x", 255<<10) + `"`
	var ids []tasker.ID
	for range tasks {
		ids = append(ids, h.CreateWith(tasker.NewTask{
			Namespace: "n", Name: "large", Context: json.RawMessage(`{"a":[` + piece + `,` + piece + `,` + piece + `,` + piece + `]}`),
		}))
	}
	w := worker.New(b, worker.Options{Namespaces: []string{"n"}, Concurrency: tasks})
	worker.Handle(w, "one", func(_ context.Context, s *worker.Step[struct{ A []string }]) (int, error) { return len(s.Input.A), nil })
	r := start(h.T, w)
	for _, id := range ids {
		waitFor(h, id, tasker.TaskComplete)
	}
	r.finish()
}

// referring is a step with a result that it must fetch.
func referring(f *fake) (a tasker.Assignment, parent tasker.ID) {
	a, parent = step("child"), tasker.NewID()
	a.DependencyResults = map[string]json.RawMessage{"small": json.RawMessage(`1`)}
	a.DependencyRefs = map[string]tasker.ResultRef{"large": {StepUUID: parent, Bytes: 5}}
	f.results = map[tasker.ID]json.RawMessage{parent: json.RawMessage(`[1,2]`)}
	return a, parent
}

func TestFetchingAResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail      func(n int) error
		gone      bool
		pathless  bool // the server does not know the path
		calls     int
		failure   string // its type; empty for a success
		permanent bool
	}{
		"at once":          {calls: 1},
		"after a while":    {fail: func(n int) error { return unavailableUntil(n, 3) }, calls: 3},
		"never":            {fail: func(int) error { return unavailableUntil(0, 1) }, calls: 5, failure: worker.InputUnavailable},
		"it is gone":       {gone: true, calls: 1, failure: worker.InvalidInput, permanent: true},
		"it is too large":  {fail: func(int) error { return tasker.Errorf(tasker.TooLarge, "too large") }, calls: 1, failure: worker.InvalidInput, permanent: true},
		"another key":      {fail: func(int) error { return tasker.Errorf(tasker.Unauthorized, "not valid") }, calls: 5, failure: worker.InputUnavailable},
		"not this step":    {fail: func(int) error { return tasker.Errorf(tasker.Forbidden, "not now") }, calls: 5, failure: worker.InputUnavailable},
		"a foreign answer": {fail: func(int) error { return tasker.Errorf(tasker.NotFound, "no such page") }, calls: 5, failure: worker.InputUnavailable},
		"another server":   {pathless: true, calls: 5, failure: worker.InputUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				a, parent := referring(f)
				if c.pathless {
					c.fail = func(int) error { return noSuchPath("/v1/tasks/%s/results/%s", a.TaskUUID, parent) }
				}
				if c.gone {
					f.results = nil
				}
				n := 0
				f.fail = func(string) error {
					if n++; c.fail != nil {
						return c.fail(n)
					}
					return nil
				}
				w := worker.New(f, worker.Options{})
				worker.Handle(w, "child", func(_ context.Context, s *worker.Step[struct{}]) (int, error) {
					var small int
					var large []int
					err := errors.Join(s.Dependency("small", &small), s.Dependency("large", &large))
					if err == nil { // it is kept
						err = s.Dependency("large", &large)
					}
					return small + len(large), err
				})
				o, err := w.Execute(t.Context(), a)
				if f.count("result") != c.calls {
					t.Errorf("asked %d times, want %d", f.count("result"), c.calls)
				}
				if c.failure == "" {
					if string(o.Result) != "3" {
						t.Errorf("result %s, %v", o.Result, err)
					}
					return
				}
				if o.Failure == nil || o.Failure.Type != c.failure || o.Failure.Retryable == c.permanent || !strings.Contains(o.Failure.Message, "large (5 bytes)") {
					t.Errorf("failure %+v", o.Failure)
				}
			})
		})
	}
}

// noSuchPath is what a server says that does not know the path of a request.
func noSuchPath(path string, ids ...any) error {
	return tasker.Errorf(tasker.NotFound, "path not found: %s; see /api-docs/openapi.json for all paths", fmt.Sprintf(path, ids...))
}

func unavailableUntil(n, good int) error {
	if n < good {
		return tasker.Errorf(tasker.Unavailable, "not now")
	}
	return nil
}

// The context of the handler ends a fetch.
func TestAFetchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		a, _ := referring(f)
		f.fail = func(string) error { return unavailableUntil(0, 1) }
		w := worker.New(f, worker.Options{})
		w.HandleRaw("child", func(ctx context.Context, c *worker.Call) (json.RawMessage, error) {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			return c.DependencyRaw(ctx, "large")
		})
		begun := time.Now()
		if _, err := w.Execute(t.Context(), a); err == nil || time.Since(begun) > time.Second {
			t.Errorf("got %v after %s", err, time.Since(begun))
		}
	})
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	f := newFake()
	a, _ := referring(f)
	w := worker.New(f, worker.Options{})
	w.HandleRaw("child", func(ctx context.Context, c *worker.Call) (json.RawMessage, error) {
		want := []worker.Dependency{{Name: "large", Bytes: 5}, {Name: "small", Bytes: 1, Inline: true}}
		if got := c.Dependencies(); !slices.Equal(got, want) {
			t.Errorf("dependencies %+v", got)
		}
		return c.DependencyRaw(ctx, "none")
	})
	if _, err := w.Execute(t.Context(), a); err == nil || !strings.Contains(err.Error(), "it depends on large, small") {
		t.Errorf("got %v", err)
	}
}
