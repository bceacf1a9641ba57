package overload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

// Namespaces of the steady load and of the flood.
const (
	steadySpace = "steady"
	floodSpace  = "flood"
)

// The lease is short, so that a late heartbeat loses it.
const (
	leaseSeconds     = 6
	heartbeatSeconds = 1
)

// A server is the measured process.
type server struct {
	url, database string
	admin         *client.Client
	dir           string
	process       *exec.Cmd
	log           *os.File
}

const startTime = time.Minute

// startServer builds and starts the server, with a first key and the templates.
func startServer(ctx context.Context, database string, env []string) (_ *server, err error) {
	dir, err := os.MkdirTemp("", "tasker-overload-")
	if err != nil {
		return nil, err
	}
	s := &server{database: database, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	program := filepath.Join(dir, "tasker")
	if out, err := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", program, "./cmd/tasker").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the server (run this in the folder bench): %w\n%s", err, out)
	}
	env = append(append(os.Environ(), "TASKER_DATABASE_URL="+database, "TASKER_AUTH_MODE=required", "TASKER_SERVER_LISTEN=127.0.0.1:0",
		"TASKER_LOG_LEVEL=warn", "TASKER_EMISSION_SINKS=",
		fmt.Sprintf("TASKER_WORKERS_LEASE_SECONDS=%d", leaseSeconds), fmt.Sprintf("TASKER_WORKERS_HEARTBEAT_INTERVAL_SECONDS=%d", heartbeatSeconds)), env...)
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	migrate := exec.CommandContext(ctx, program, "migrate", "up")
	migrate.Env = env
	if out, err := migrate.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("create the schema: %w\n%s", err, out)
	}
	if err := s.start(ctx, program, env); err != nil {
		return nil, err
	}
	bootstrap := exec.CommandContext(ctx, program, "key", "bootstrap")
	bootstrap.Env, bootstrap.Stderr = env, os.Stderr
	out, err := bootstrap.Output()
	if err != nil {
		return nil, fmt.Errorf("make the first key: %w", err)
	}
	if s.admin, err = s.client(tokenIn(string(out))); err != nil {
		return nil, err
	}
	for _, space := range []string{steadySpace, floodSpace} {
		if _, err := s.admin.RegisterTemplate(ctx, []byte(fmt.Sprintf(template, space)), "application/yaml"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

const template = `
namespace_name: %s
name: one
version: 1.0.0
steps:
  - name: only
    handler: {callable: work}
`

// tokenIn extracts the key from the output.
func tokenIn(text string) string {
	for word := range strings.FieldsSeq(text) {
		if strings.HasPrefix(word, "tsk_") {
			return word
		}
	}
	return ""
}

func (s *server) start(ctx context.Context, program string, env []string) error {
	s.process = exec.CommandContext(context.WithoutCancel(ctx), program, "serve") // ended by stop
	s.process.Env, s.process.Stderr = env, s.log
	out, err := s.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	ready := make(chan string, 1)
	go func() {
		defer close(ready)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), "ready at "); ok {
				ready <- strings.TrimSpace(url)
			}
		}
	}()
	select {
	case url, ok := <-ready:
		if !ok {
			said, _ := os.ReadFile(s.log.Name()) // before it is removed
			return fmt.Errorf("the server ended at once:\n%s", said)
		}
		s.url = url
		return nil
	case <-time.After(startTime):
		return errors.New("the server did not start in time")
	}
}

// stop stops the server and removes its files.
func (s *server) stop() error {
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Signal(syscall.SIGTERM) // Wait returns the result
		_ = s.process.Wait()
	}
	if s.log != nil {
		_ = s.log.Close() // the file is removed
	}
	return os.RemoveAll(s.dir)
}

// client returns a client with its own connections and without retries.
func (s *server) client(token string, options ...client.Option) (*client.Client, error) {
	return client.New(s.url, append([]client.Option{client.WithToken(token), client.WithRetries(0), client.WithHTTPClient(&http.Client{Transport: newTransport()})}, options...)...)
}

func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 10_000, IdleConnTimeout: time.Minute}
}

// key creates an API key.
func (s *server) key(ctx context.Context, name string, grants ...string) (string, error) {
	k, err := s.admin.CreateKey(ctx, apiv1.CreateKey{Name: name, Grants: grants})
	return k.Token, err
}

// damage counts lost attempts and investigations, which are errors.
func (s *server) damage(ctx context.Context) (lost, investigations int, err error) {
	conn, err := pgx.Connect(ctx, s.database)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM tasker.workflow_step_transitions WHERE event IN ('lose', 'fail', 'time_out', 'expire')),
		(SELECT count(*) FROM tasker.tasks_dlq)`).Scan(&lost, &investigations)
	return lost, investigations, err
}
