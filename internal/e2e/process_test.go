package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tasker.example/tasker/client"
)

// patience bounds everything that a test waits for.
const patience = 5 * time.Minute

// A process is a program that runs beside the test and ends with it.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; to be read after done
	log  *lockedBuffer
}

// lockedBuffer is what a process has said, read while it still speaks.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a program; when the test ends it is told to end, and what it said
// is shown if the test has failed.
func start(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second // for a grandchild that holds our pipe
	p := &process{t: t, cmd: cmd, done: make(chan struct{}), log: &lockedBuffer{}}
	cmd.Stderr = p.log
	cmd.Stdout = p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s %s said:\n%s", name, strings.Join(args, " "), tail(p.log.String()))
		}
	})
	return p
}

func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// stop tells it to end and waits until it has; it must end well.
func (p *process) stop() {
	p.t.Helper()
	select {
	case <-p.done:
		return
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	select {
	case <-p.done:
		if p.err != nil {
			p.t.Errorf("%s did not end well: %v", p.cmd.Path, p.err)
		}
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.done
		p.t.Errorf("%s did not end when it was told to", p.cmd.Path)
	}
}

// kill ends it as a power cut would.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.done
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// url waits for the line that says where the server is.
func (p *process) url() string {
	p.t.Helper()
	var found string
	await(p.t, "the server's address", func() bool {
		select {
		case <-p.done:
			p.t.Fatalf("the server ended at its start: %v\n%s", p.err, tail(p.log.String()))
		default:
		}
		for s := bufio.NewScanner(strings.NewReader(p.log.String())); s.Scan(); {
			if strings.HasPrefix(s.Text(), "tasker is ready") {
				found = address.FindString(s.Text())
			}
		}
		return found != ""
	})
	return found
}

// serve starts a server on a database.
func serve(t *testing.T, database string, env ...string) *process {
	t.Helper()
	return start(t, env, program("tasker"), "serve", "--database-url", database, "--listen", "127.0.0.1:0", "--templates", "testdata/templates")
}

// startWorker starts a worker of its own process.
func startWorker(t *testing.T, url, databaseUp string, env ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, append(env, workerEnv+"="+url, databaseEnv+"="+databaseUp), self)
}

// ctl runs tasker-ctl, which must succeed, and returns what it prints.
func ctl(t *testing.T, url string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program("tasker-ctl"), append([]string{"--server", url}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("tasker-ctl %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

func newClient(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// await looks again and again until it is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}
