package checkpoints_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/checkpoints"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

// A store has two files; the disk of the second is full at first.
type store struct {
	puts []string
	full bool
}

func (s *store) Files(context.Context) ([]string, error) { return []string{"a", "b"}, nil }

func (s *store) Rows(_ context.Context, file string) (int, error) {
	return map[string]int{"a": 150, "b": 350}[file], nil
}

func (s *store) Put(_ context.Context, file string, from, to int) error {
	if s.full && file == "b" && from == 200 {
		return errors.New("the disk is full")
	}
	s.puts = append(s.puts, fmt.Sprintf("%s %d-%d", file, from, to))
	return nil
}

func (s *store) Publish(context.Context, int) error { return nil }

func workflow(t *testing.T, s *store) *taskertest.Workflow {
	t.Helper()
	w := worker.New(nil, worker.Options{})
	checkpoints.Register(w, s)
	return taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
}

// A file whose import fails half way goes on from there when somebody has made room: no row of any
// file is stored twice.
func TestAnImportGoesOn(t *testing.T) {
	t.Parallel()
	s := &store{full: true}
	wf := workflow(t, s)
	task := wf.Start(nil)
	wf.Advance(time.Hour)
	task.AssertState(tasker.TaskError)
	task.Step("import[1]").AssertCheckpoint(`200`)
	s.full = false
	task.Reset("import[1]")
	wf.RunUntilIdle()
	task.AssertComplete()
	task.Step("publish").AssertResult(`500`)
	slices.Sort(s.puts)
	if want := []string{"a 0-100", "a 100-150", "b 0-100", "b 100-200", "b 200-300", "b 300-350"}; !slices.Equal(s.puts, want) {
		t.Errorf("stored %v, want %v", s.puts, want)
	}
}

// A worker that is killed loses what it did since its last checkpoint, and no more.
func TestAnImportOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	s := &store{}
	wf := workflow(t, s)
	wf.Script("import[1]", taskertest.Crash().Saving(100, 200))
	task := wf.Start(nil)
	wf.Advance(time.Hour)
	task.AssertComplete()
	task.AssertNoInvestigation()
	if got := slices.Index(s.puts, "b 200-300"); got < 0 || slices.Contains(s.puts, "b 0-100") {
		t.Errorf("stored %v", s.puts)
	}
}
