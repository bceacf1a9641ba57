// Package live runs the conformance program of an SDK against a real server behind a proxy that
// loses and delays responses. Workers are killed, and the server is restarted, while tasks run.
package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/sdk/conformance/program"
)

// Options configures a run.
type Options struct {
	Tasker  string   // path of the binary of the server
	Command []string // starts the conformance program
	Tasks   int      // default: 300
	Kills   int      // how often a worker is killed; default: 4
	Seed    uint64   // selects the faults
	Log     func(format string, args ...any)
}

// Times of a run.
const (
	startTime   = 2 * time.Minute // until the server is ready
	killPause   = 2 * time.Second // between two kills
	runTime     = 5 * time.Minute // until all tasks are complete
	drainTime   = 30 * time.Second
	pollPause   = 50 * time.Millisecond
	concurrency = "8"
	workers     = 2
)

// template has a step for each way in which a result depends on the worker.
const template = `namespace: conformance
name: real
version: 1.0.0
steps:
  - name: first
    handler: {callable: echo}
    retry: {max_attempts: 50, backoff_base_ms: 50, max_backoff_ms: 200}
  - name: nap
    dependencies: [first]
    handler: {callable: sleep, initialization: {ms: 40}}
    retry: {max_attempts: 50, backoff_base_ms: 50, max_backoff_ms: 200}
  - name: save
    dependencies: [first]
    handler: {callable: checkpoint}
    retry: {max_attempts: 50, backoff_base_ms: 50, max_backoff_ms: 200}
  - name: last
    dependencies: [nap, save]
    handler: {callable: result_of, initialization: {of: nap}}
    retry: {max_attempts: 50, backoff_base_ms: 50, max_backoff_ms: 200}
`

// napTime is the result of the step nap, in milliseconds.
const napTime = 40

// run is one run.
type run struct {
	Options

	dir     string
	url     string // of the server
	proxy   *proxy
	server  *program.Program
	client  *client.Client
	workers []*program.Program
}

// Run runs the program against a real server. It returns an error if a task is not completed, a
// result is wrong, or the database is inconsistent.
func Run(ctx context.Context, o Options) (err error) {
	o.Tasks, o.Kills = cmp.Or(max(o.Tasks, 0), 300), cmp.Or(max(o.Kills, 0), 4)
	r := &run{Options: o}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(ctx); err != nil {
		return err
	}
	began := time.Now()
	tasks, err := r.submit(ctx, "conformance", func(i int) any { return map[string]int{"i": i} })
	if err != nil {
		return err
	}
	if err := r.disturb(ctx); err != nil {
		return err
	}
	if err := r.await(ctx, tasks); err != nil {
		return fmt.Errorf("%w\nlast output of a worker:\n%s", err, r.workers[0].Tail())
	}
	r.Log("%d tasks completed in %.1f s, %d faults of the proxy", len(tasks), time.Since(began).Seconds(), r.proxy.faults.Load())
	if err := r.check(ctx, tasks); err != nil {
		return err
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	return r.doctor(ctx)
}

// open starts the server, the proxy and the workers.
func (r *run) open(ctx context.Context) (err error) {
	if err := r.makeDir(template); err != nil {
		return err
	}
	if r.proxy, err = newProxy(r.Seed); err != nil {
		return err
	}
	if err := r.startServer(ctx); err != nil {
		return err
	}
	for range workers {
		if err := r.startWorker(); err != nil {
			return err
		}
	}
	return nil
}

// makeDir creates the directory of the run, with its template.
func (r *run) makeDir(template string) (err error) {
	if r.dir, err = os.MkdirTemp("", "conformance-real-"); err != nil {
		return err
	}
	// PostgreSQL runs as another user if this program runs as root.
	if err := os.Chmod(r.dir, 0o755); err != nil {
		return err
	}
	templates := filepath.Join(r.dir, "templates")
	if err := os.Mkdir(templates, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(templates, "template.yaml"), []byte(template), 0o600)
}

// startServer starts the server and directs the proxy to it, if there is one.
func (r *run) startServer(ctx context.Context) (err error) {
	command := []string{
		r.Tasker, "dev", "--data-dir", filepath.Join(r.dir, "data"), "--listen", "127.0.0.1:0",
		"--templates", filepath.Join(r.dir, "templates"),
	}
	env := []string{"TASKER_WORKERS_LEASE_SECONDS=3", "TASKER_WORKERS_HEARTBEAT_INTERVAL_SECONDS=1"}
	if r.server, err = program.Start(command, "", env, func() {}); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	address := ""
	err = r.poll(ctx, startTime, "the server to be ready", func() (bool, error) {
		if ended, status := r.server.Exited(); ended {
			return false, fmt.Errorf("the server ended with status %d:\n%s", status, r.server.Tail())
		}
		_, rest, found := strings.Cut(r.server.Output(), "tasker is ready at http://")
		address, _, _ = strings.Cut(rest, "\n")
		return found && strings.Contains(rest, "\n"), nil
	})
	if err != nil {
		return err
	}
	address = strings.TrimRight(strings.TrimSpace(address), "/")
	r.url = "http://" + address
	if r.proxy != nil {
		r.proxy.target.Store(address)
	}
	r.client, err = client.New(r.url)
	return err
}

func (r *run) startWorker() error {
	env := []string{"TASKER_URL=" + r.proxy.url(), "CONFORMANCE_CONCURRENCY=" + concurrency}
	p, err := program.Start(r.Command, "", env, func() {})
	if err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	r.workers = append(r.workers, p)
	return nil
}

// batch is the number of tasks that one request creates.
const batch = 500

// submit creates the tasks.
func (r *run) submit(ctx context.Context, namespace string, input func(i int) any) (tasks []tasker.Task, err error) {
	list := make([]apiv1.CreateTask, r.Tasks)
	for i := range list {
		doc, err := json.Marshal(input(i))
		if err != nil {
			return nil, err
		}
		list[i] = apiv1.CreateTask{Namespace: namespace, Name: "real", Context: doc, IdempotencyKey: fmt.Sprint("real-", i)}
	}
	for chunk := range slices.Chunk(list, batch) {
		created, err := r.client.CreateTasks(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("create the tasks: %w", err)
		}
		for _, t := range created.Tasks {
			tasks = append(tasks, tasker.Task{UUID: t.TaskUUID})
		}
	}
	return tasks, nil
}

// disturb kills and restarts workers, and once the server.
func (r *run) disturb(ctx context.Context) error {
	for i := range r.Kills {
		if !loop.Sleep(ctx, killPause) {
			return ctx.Err()
		}
		victim := r.workers[0]
		if ended, status := victim.Exited(); ended {
			return fmt.Errorf("a worker ended by itself with status %d:\n%s", status, victim.Tail())
		}
		victim.Kill()
		r.workers = r.workers[1:]
		r.Log("killed a worker")
		if err := r.startWorker(); err != nil {
			return err
		}
		if i == r.Kills/2 {
			r.proxy.target.Store("")
			r.server.Kill()
			if err := r.startServer(ctx); err != nil {
				return err
			}
			r.Log("killed and restarted the server")
		}
	}
	return nil
}

// poll calls done until it returns true.
func (r *run) poll(ctx context.Context, limit time.Duration, description string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if !loop.Sleep(ctx, pollPause) {
			return fmt.Errorf("waited %s in vain for %s", limit, description)
		}
	}
}

// drain stops the workers with SIGTERM. They must exit with 0.
func (r *run) drain(ctx context.Context) error {
	for _, w := range r.workers {
		w.Signal(syscall.SIGTERM)
	}
	return r.awaitExit(ctx)
}

// awaitExit waits until the workers have exited with 0.
func (r *run) awaitExit(ctx context.Context) error {
	for _, w := range r.workers {
		err := r.poll(ctx, drainTime, "the end of a worker after SIGTERM", func() (bool, error) {
			ended, status := w.Exited()
			if ended && status != 0 {
				return false, fmt.Errorf("a worker ended with status %d after SIGTERM:\n%s", status, w.Tail())
			}
			return ended, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// doctor checks the invariants of the database.
func (r *run) doctor(ctx context.Context) error {
	printed, err := r.command(ctx, "dev", "--data-dir", filepath.Join(r.dir, "data"), "--print-url").Output()
	if err != nil {
		return fmt.Errorf("read the URL of the database: %w", err)
	}
	var out bytes.Buffer
	cmd := r.command(ctx, "doctor", "--database-url", strings.TrimSpace(string(printed)))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("tasker doctor: %w\n%s", err, out.String())
	}
	r.Log("tasker doctor: ok")
	return nil
}

// command returns a command of the server's binary, without the variables of this program.
func (r *run) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.Tasker, args...)
	cmd.Env = program.CleanEnv()
	return cmd
}

// close ends everything that the run started.
func (r *run) close() error {
	for _, w := range r.workers {
		w.Kill()
	}
	if r.proxy != nil {
		r.proxy.close()
	}
	if r.server != nil {
		r.server.Signal(syscall.SIGTERM)
		err := r.poll(context.Background(), drainTime, "the end of the server", func() (bool, error) {
			ended, _ := r.server.Exited()
			return ended, nil
		})
		if err != nil {
			r.server.Kill()
			return err
		}
	}
	return os.RemoveAll(r.dir)
}
