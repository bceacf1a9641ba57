package taskertest_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/taskertest"
)

// A failing is a test that is expected to fail.
type failing struct {
	testing.TB
	mu      sync.Mutex
	message string
}

func (f *failing) Helper()           {}
func (f *failing) Log(...any)        {}
func (f *failing) Output() io.Writer { return io.Discard }

func (f *failing) Fatal(args ...any) {
	f.mu.Lock()
	f.message = fmt.Sprint(args...)
	f.mu.Unlock()
	runtime.Goexit()
}

func (f *failing) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// fails runs what must fail the test, and wants all of the words in what it says.
func fails(t *testing.T, run func(testing.TB), words ...string) {
	t.Helper()
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(f)
	}()
	<-done
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.message == "" {
		t.Errorf("nothing failed, want %q", words)
	}
	for _, w := range words {
		if !strings.Contains(f.message, w) {
			t.Errorf("the failure does not say %q: %s", w, f.message)
		}
	}
}

func TestWhatIsMissingFailsTheTest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.yaml")
	if err := os.WriteFile(broken, []byte("name: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		run   func(testing.TB)
		words []string
	}{
		"no template":        {func(t testing.TB) { taskertest.New(t, taskertest.Options{}) }, []string{"Options requires a template"}},
		"no file":            {func(t testing.TB) { taskertest.New(t, taskertest.Options{Templates: []string{"none.yaml"}}) }, []string{"none.yaml"}},
		"a broken template":  {func(t testing.TB) { taskertest.New(t, taskertest.Options{Templates: []string{broken}}) }, []string{"broken.yaml", "namespace"}},
		"a context not JSON": {func(t testing.TB) { shop(t).Start("{") }, []string{`"{" is not JSON`}},
		"no such template": {
			func(t testing.TB) { shop(t).StartTask(tasker.NewTask{Namespace: "shop", Name: "other"}) }, []string{"shop/other"},
		},
		"a step without anything": {func(t testing.TB) {
			wf := shop(t)
			wf.Start(nil)
			wf.RunUntilIdle()
		}, []string{"step reserve", "has no script", "no worker has handler reserve", "task shop 1.0.0", "in_progress"}},
		"a script that is over": {func(t testing.TB) {
			wf := shop(t)
			wf.Script("reserve", taskertest.Fail("one"))
			wf.Start(nil)
			wf.Advance(time.Hour)
		}, []string{"attempt 2", "the script of reserve ended after 1 outcomes"}},
		"a script for nothing":    {func(t testing.TB) { shop(t).Script("confirm", taskertest.Fail("one")) }, []string{`step or handler "confirm"`}},
		"a constant for nothing":  {func(t testing.TB) { shop(t).Always("nothing", taskertest.Fail("one")) }, []string{`step or handler "nothing"`}},
		"another state":           {func(t testing.TB) { shop(t).Start(nil).AssertComplete() }, []string{"the task is steps_in_process, want complete", "reserve", "enqueued", "queue: "}},
		"another state of a step": {func(t testing.TB) { shop(t).Start(nil).Step("ship").AssertState(tasker.StepComplete) }, []string{"step ship is pending, want complete"}},
		"no such step":            {func(t testing.TB) { shop(t).Start(nil).Step("x") }, []string{`no step "x"`, "reserve, confirm, ship"}},
		"no such item":            {func(t testing.TB) { files(t, nil).Start(nil).Step("read[3]") }, []string{"no item read[3]", "step read, which is pending, has no items"}},
		"a script for no item":    {func(t testing.TB) { files(t, nil).Script("list[0]", taskertest.Fail("one")) }, []string{`step or handler "list[0]"`}},
		"another checkpoint":      {func(t testing.TB) { files(t, nil).Start(nil).Step("list").AssertCheckpoint(`1`) }, []string{"the checkpoint of step list is missing, want 1"}},
		"a checkpoint that is not JSON": {func(t testing.TB) {
			wf := files(t, nil)
			wf.Script("read[0]", taskertest.Fail("one").Saving("row 1"))
			wf.Start(nil)
			wf.RunUntilIdle()
		}, []string{"a checkpoint of step read[0]", "is not JSON"}},
		"no result":                   {func(t testing.TB) { shop(t).Start(nil).Step("ship").AssertResult(`1`) }, []string{"result of step ship, which is pending"}},
		"no child":                    {func(t testing.TB) { shop(t).Start(nil).Step("ship").Child() }, []string{"step ship, which is pending, has started no task"}},
		"no failure":                  {func(t testing.TB) { shop(t).Start(nil).Step("ship").Failure() }, []string{"step ship, which is pending, has no failure"}},
		"no investigation":            {func(t testing.TB) { shop(t).Start(nil).Investigation() }, []string{"the task has no investigation"}},
		"an answer to another":        {func(t testing.TB) { shop(t).Start(nil).Answer("reserve", 1) }, []string{"answer step reserve"}},
		"an answer that is not JSON":  {func(t testing.TB) { shop(t).Start(nil).Answer("confirm", "yes") }, []string{`the answer: "yes" is not JSON`}},
		"an act that is not possible": {func(t testing.TB) { shop(t).Start(nil).Reset("reserve") }, []string{"reset_for_retry step reserve"}},
		"an investigation": {func(t testing.TB) {
			wf := shop(t)
			wf.Always("reserve", taskertest.FailPermanently("sold out"))
			task := wf.Start(nil)
			wf.RunUntilIdle()
			task.AssertNoInvestigation()
		}, []string{"the task has an investigation: max_retries_exceeded", "sold out", "failed: "}},
		"another result": {func(t testing.TB) {
			wf := shop(t)
			wf.Always("reserve", taskertest.Succeed(`{"a": 1}`))
			task := wf.Start(nil)
			wf.RunUntilIdle()
			task.Step("reserve").AssertResult(`{"a": 2}`)
		}, []string{`the result of step reserve is {"a":1}, want {"a":2}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fails(t, tt.run, tt.words...)
		})
	}
}

// What is scripted and is not JSON is a failure of the step, as it is of a handler.
func TestAResultThatIsNoneFailsTheStep(t *testing.T) {
	t.Parallel()
	wf := shop(t)
	wf.Script("reserve", taskertest.Succeed("yes"))
	task := wf.Start(nil)
	wf.RunUntilIdle()
	if f := task.Step("reserve").Failure(); !strings.Contains(f.Message, `"yes" is not JSON`) {
		t.Errorf("the failure is %q", f.Message)
	}
}

// A test leaves no goroutine. It is not parallel, so that those of no other test are counted.
func TestNothingStaysBehind(t *testing.T) {
	run := func(t *testing.T) {
		t.Helper()
		wf := shop(t)
		wf.Always("reserve", taskertest.Succeed(nil))
		wf.Start(nil)
		wf.Advance(time.Minute)
	}
	t.Run("before", run) // PostgreSQL starts
	before := runtime.NumGoroutine()
	t.Run("again", run)
	deadline := time.After(time.Minute)
	for runtime.NumGoroutine() > before {
		select {
		case <-deadline:
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		case <-time.After(10 * time.Millisecond): // a connection ends after it is closed
		}
	}
}
