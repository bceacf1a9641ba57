package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/pgtest"
)

// all runs the tests and then stops their PostgreSQL.
type all struct{ *testing.M }

func (a all) Run() int { return pgtest.Run(a.M) }

func TestMain(m *testing.M) {
	command := func() { os.Exit(Main(os.Args, os.Stdin, os.Stdout, os.Stderr, os.Environ())) }
	testscript.Main(all{m}, map[string]func(){"tasker-ctl": command, "tasker-cli": command})
}

// exits runs a command and compares its exit code: exits 3 tasker-ctl task get $ID.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// save keeps what the last command printed: save TASK.
func save(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: save NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// setUp says to a script's commands where the server is and who acts.
func setUp(e *testscript.Env, url string) error {
	e.Setenv("TASKER_URL", url)
	e.Setenv("TASKER_ACTOR", "ops@example.com")
	e.Setenv("GORACE", "atexit_sleep_ms=0") // else each command rests a second under -race
	return nil
}

// Scripts at the top need no server: nothing listens where they look for one.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:   "testdata",
		Cmds:  map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "save": save},
		Setup: func(e *testscript.Env) error { return setUp(e, "http://127.0.0.1:1") },
	})
}

// Scripts in the folder server speak to one, each with a database of its own.
func TestScriptsWithServer(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/server/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			testscript.Run(t, testscript.Params{
				Files: []string{file},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exits": exits, "save": save, "succeed": h.succeed, "fail": h.fail, "fail-saved": h.failSaved, "sink": h.sink, "operate": h.operate, "go-on": h.goOn, "idle": h.idle, "tick": h.tick,
				},
				Setup: func(e *testscript.Env) error {
					e.Setenv("WORKER", h.worker.String())
					if filepath.Base(file) == "access.txt" {
						h.askForKeys(e)
					}
					return setUp(e, h.url)
				},
			})
		})
	}
}

// A harness is a server with an engine, and one worker that the script moves.
type harness struct {
	*enginetest.Harness
	url    string // of the server
	worker tasker.ID
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{Harness: enginetest.New(t)}
	h.url = h.serve(t, nil)
	r, err := h.Engine.RegisterWorker(t.Context(), tasker.WorkerSpec{
		Name: "crate-7", Namespaces: []string{"orders"}, Handlers: []string{"check", "charge", "ship"}, Version: "2.0.0", MaxConcurrency: 4,
	})
	h.Must(err)
	h.Exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour'`) // it is alive for as long as a test may take
	h.worker = r.WorkerUUID
	return h
}

// serve starts a server and returns its URL.
func (h *harness) serve(t *testing.T, a *auth.Authenticator) string {
	t.Helper()
	stopping, stop := context.WithCancel(t.Context())
	s := httptest.NewServer(h.WithCases(api.New(stopping, api.Options{
		DB: h.DB, Engine: h.Engine, DLQ: h.DLQ, Cases: h.Cases, Version: "9.8.7", Auth: a,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})))
	t.Cleanup(s.Close)
	t.Cleanup(stop)
	return s.URL
}

// askForKeys gives a script a second server, which asks callers for a key, and the first key
// in the file admin.token.
func (h *harness) askForKeys(e *testscript.Env) {
	token, err := auth.BootstrapKey(context.Background(), h.DB, "admin")
	h.Must(err)
	h.Must(os.WriteFile(filepath.Join(e.WorkDir, "admin.token"), []byte(token+"\n"), 0o600))
	e.Setenv("ASKING", h.serve(h.T, auth.New(auth.Options{DB: h.DB})))
}

// sink is sink NAME: events are sent there from now on.
func (h *harness) sink(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(h.DB.OpenSink(context.Background(), args[0]))
}

// report claims the step of a handler, once it is there, and reports its outcome.
func (h *harness) report(ts *testscript.TestScript, handler string, fill func(*tasker.Outcome, tasker.Assignment)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := h.Engine.Claim(ctx, h.worker, 1, 30*time.Second)
	ts.Check(err)
	if len(list) != 1 || list[0].Handler != handler {
		ts.Fatalf("claimed %+v, want the step of handler %s", list, handler)
	}
	o := tasker.Outcome{Lease: list[0].Lease()}
	fill(&o, list[0])
	receipt, err := h.Engine.Report(ctx, h.worker, []tasker.Outcome{o}, 0)
	ts.Check(err)
	if len(receipt.Accepted) != 1 {
		ts.Fatalf("the outcome was refused: %+v", receipt.Rejected)
	}
}

// succeed is succeed HANDLER [RESULT [WHAT-THE-STEP-WAS-GIVEN]].
func (h *harness) succeed(ts *testscript.TestScript, _ bool, args []string) {
	h.report(ts, args[0], func(o *tasker.Outcome, a tasker.Assignment) {
		o.Success, o.Result = true, json.RawMessage(`{}`)
		if len(args) > 1 {
			o.Result = json.RawMessage(args[1])
		}
		given, err := json.Marshal(a.DependencyResults)
		ts.Check(err)
		if len(args) > 2 && string(given) != args[2] {
			ts.Fatalf("the step was given %s, want %s", given, args[2])
		}
	})
}

// operate is operate [ITEMS]: it does what servers do with operations, until they have come to their
// end or are paused or, with a number, until so many items are released and not looked at yet.
func (h *harness) operate(ts *testscript.TestScript, _ bool, args []string) {
	ops := operation.New(h.DB, h.Engine, h.DLQ, operation.Options{})
	h.Eventually("operations are where they should be", func() bool {
		_, err := ops.Release(context.Background())
		ts.Check(err)
		if len(args) > 0 {
			items, err := h.DB.OpenItems(context.Background())
			ts.Check(err)
			return strconv.FormatInt(items[tasker.ItemReleased], 10) == args[0]
		}
		_, err = ops.VerifyItems(context.Background())
		ts.Check(err)
		running, _, err := h.DB.Operations(context.Background(), tasker.OperationFilter{State: tasker.OperationRunning, Limit: 1})
		ts.Check(err)
		return len(running) == 0
	})
}

// goOn is go-on: it does what servers do with holds, a few times.
func (h *harness) goOn(ts *testscript.TestScript, _ bool, _ []string) {
	holds := hold.New(h.DB, h.Engine, hold.Options{})
	for range 3 {
		_, err := holds.ParkSteps(context.Background())
		ts.Check(err)
		_, err = holds.AdvanceHolds(context.Background())
		ts.Check(err)
	}
}

// tick is tick: it does once what servers do by the clock.
func (h *harness) tick(ts *testscript.TestScript, _ bool, _ []string) {
	_, err := h.Engine.Tick(context.Background())
	ts.Check(err)
}

// idle is idle: nothing is handed out, also after what is held was put aside.
func (h *harness) idle(ts *testscript.TestScript, _ bool, _ []string) {
	for range 2 {
		list, err := h.Engine.Claim(context.Background(), h.worker, 10, 0)
		ts.Check(err)
		if len(list) > 0 {
			ts.Fatalf("%d steps are handed out: %+v", len(list), list)
		}
		_, err = hold.New(h.DB, h.Engine, hold.Options{}).ParkSteps(context.Background())
		ts.Check(err)
	}
}

// failSaved is fail-saved HANDLER CHECKPOINT: an attempt saves it and fails.
func (h *harness) failSaved(ts *testscript.TestScript, _ bool, args []string) {
	h.report(ts, args[0], func(o *tasker.Outcome, a tasker.Assignment) {
		ts.Check(h.Engine.SaveCheckpoint(context.Background(), h.worker, a.Lease(), json.RawMessage(args[1])))
		o.Failure = &tasker.Failure{Message: "gateway down", Type: "gateway"}
	})
}

// fail is fail HANDLER MESSAGE [retryable]; \e in the message stands for escape.
func (h *harness) fail(ts *testscript.TestScript, _ bool, args []string) {
	h.report(ts, args[0], func(o *tasker.Outcome, _ tasker.Assignment) {
		message := strings.ReplaceAll(args[1], `\e`, "\x1b")
		o.Failure = &tasker.Failure{Message: message, Type: "gateway", Retryable: len(args) > 2}
	})
}
