package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/browsertest"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/rabbitmq"
	"tasker.example/tasker/worker"
)

// A test binary that finds this variable is a worker of the server that it names.
const workerEnv = "TASKER_E2E_WORKER"

// databaseEnv names the file that exists when the database that the handlers need is up.
const databaseEnv = "TASKER_E2E_DATABASE_UP"

// With this variable a worker hears of steps from the broker that it names.
const brokerEnv = "TASKER_E2E_BROKER"

// namespaceEnv names the namespace whose steps a worker takes, if it is not the usual one.
const namespaceEnv = "TASKER_E2E_NAMESPACE"

// concurrencyEnv is how many steps a worker executes at once, if not 8.
const concurrencyEnv = "TASKER_E2E_CONCURRENCY"

// With this variable a worker signs in with the token in the file that it names.
const tokenFileEnv = "TASKER_TOKEN_FILE"

// bin is where the programs under test are.
var bin string

func TestMain(m *testing.M) {
	if url := os.Getenv(workerEnv); url != "" {
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(build(m))
}

// build builds the programs, then runs the tests.
func build(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "tasker-e2e-")
	if err == nil {
		bin = dir
		// Programs that are built to find races wait a second at their end otherwise.
		err = os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	}
	if err == nil {
		cmd := exec.Command("go", "build", "-o", dir, "tasker.example/tasker/cmd/tasker", "tasker.example/tasker/cmd/tasker-ctl", "tasker.example/tasker/examples/minimal")
		cmd.Stderr = os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return browsertest.Run(func() int {
		return mqtest.Run(func() int { return pgtest.Run(m) })
	})
}

func workerName(pid int) string { return fmt.Sprint("e2e ", pid) }

// work is a worker until it is told to end.
func work(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := client.New(url, client.WithTokenFile(os.Getenv(tokenFileEnv)))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var engine worker.Backend = c.Backend()
	if broker := os.Getenv(brokerEnv); broker != "" {
		engine = rabbitmq.NewBackend(c.Backend(), rabbitmq.Options{URL: broker, Log: log})
	}
	concurrency, err := strconv.Atoi(cmp.Or(os.Getenv(concurrencyEnv), "8"))
	if err != nil {
		return err
	}
	w := worker.New(engine, worker.Options{
		Name: workerName(os.Getpid()), Namespaces: []string{cmp.Or(os.Getenv(namespaceEnv), "order_processing")}, Concurrency: concurrency, Log: log,
	})
	worker.Handle(w, "echo", func(_ context.Context, s *worker.Step[map[string]any]) (map[string]any, error) {
		return map[string]any{"step": s.Name, "received": s.DependencyResults}, nil
	})
	worker.Handle(w, "needs_database", func(_ context.Context, _ *worker.Step[map[string]any]) (map[string]any, error) {
		if _, err := os.Stat(os.Getenv(databaseEnv)); err != nil {
			return nil, errors.New("database connection timeout")
		}
		return map[string]any{"validation_status": "checked", "score": 7}, nil
	})
	worker.Handle(w, "import", func(ctx context.Context, s *worker.Step[map[string]any]) ([2]int, error) {
		var row int
		if _, err := s.LastCheckpoint(&row); err != nil {
			return [2]int{}, err
		}
		from := row
		for row < 100 {
			row += 10
			if err := s.SaveCheckpoint(ctx, row); err != nil {
				return [2]int{}, err
			}
			if row == 30 && s.Attempt == 1 { // until the process is killed
				<-ctx.Done()
				return [2]int{}, context.Cause(ctx)
			}
		}
		return [2]int{from, row}, nil
	})
	worker.Handle(w, "broken", func(_ context.Context, _ *worker.Step[map[string]any]) (map[string]any, error) {
		return nil, &worker.Error{Type: "bad_order", Permanent: true, Err: errors.New("the order has no address")}
	})
	for name, longest := range map[string]int{"slow": 40, "unhurried": 400} { // ms
		worker.Handle(w, name, func(ctx context.Context, s *worker.Step[map[string]any]) (string, error) {
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(time.Duration(rand.IntN(longest)) * time.Millisecond):
				return s.Name, nil
			}
		})
	}
	return w.Run(ctx)
}

func program(name string) string { return filepath.Join(bin, name) }
