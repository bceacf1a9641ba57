package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tasker.example/tasker/internal/httpclient"
	"tasker.example/tasker/internal/pgtest"
)

// patience bounds everything that a test waits for.
const patience = 90 * time.Second

// A process is the program at work.
type process struct {
	*testing.T
	cmd   *exec.Cmd
	lines chan string // of its standard output; closed at its end
	ended chan struct{}

	mu   sync.Mutex
	out  []string
	errs []string
	said chan struct{} // has a value when standard error got a line
}

// launch starts the program, which ends with the test.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	cmd := exec.Command("tasker", args...)
	cmd.Env, cmd.WaitDelay = environment(), 10*time.Second
	p := &process{T: t, cmd: cmd, lines: make(chan string, 1000), ended: make(chan struct{}), said: make(chan struct{}, 1)}
	outRead, outWrite := io.Pipe()
	errRead, errWrite := io.Pipe()
	cmd.Stdout, cmd.Stderr = outWrite, errWrite
	closeBoth := func() error { return errors.Join(outWrite.Close(), errWrite.Close()) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.read(outRead, &p.out, func(line string) { p.lines <- line }) })
	readers.Go(func() { p.read(errRead, &p.errs, func(string) { notify(p.said) }) })
	go func() {
		_ = cmd.Wait() // ProcessState tells
		if err := closeBoth(); err != nil {
			t.Error(err)
		}
		readers.Wait()
		close(p.lines)
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.ended
		if t.Failed() {
			t.Logf("tasker %s said:\n%s", strings.Join(args, " "), p.log())
		}
	})
	return p
}

func (p *process) read(r io.Reader, into *[]string, each func(string)) {
	for s := bufio.NewScanner(r); s.Scan(); {
		p.mu.Lock()
		*into = append(*into, s.Text())
		p.mu.Unlock()
		each(s.Text())
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(append(append([]string{}, p.out...), p.errs...), "\n")
}

// ready waits for the line that says where the server is.
func (p *process) ready() string {
	p.Helper()
	select {
	case line, open := <-p.lines:
		address, ok := strings.CutPrefix(line, "tasker is ready at ")
		if !open || !ok {
			p.Fatalf("first line %q:\n%s", line, p.log())
		}
		return address
	case <-time.After(patience):
		p.Fatal("the server is not ready")
	}
	return ""
}

// awaitError waits until standard error says something.
func (p *process) awaitError(want string) {
	p.Helper()
	deadline := time.After(patience)
	for !strings.Contains(p.log(), want) {
		select {
		case <-p.said:
		case <-p.ended:
			p.Fatalf("ended without %q", want)
		case <-deadline:
			p.Fatalf("waited in vain for %q", want)
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.Fatal(err)
	}
}

// wait returns how it ended.
func (p *process) wait() *os.ProcessState {
	p.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState
	case <-time.After(patience):
		p.Fatal("the program did not end")
		return nil
	}
}

func (p *process) healthy(address string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/health/ready", nil)
	if err != nil {
		p.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		p.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		p.Errorf("ready: %s", resp.Status)
	}
}

// dataDir returns a directory that PostgreSQL may enter when we are root; one of
// the testing package it may not.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tasker-cmd-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

// postmaster returns the process of the private PostgreSQL, 0 if none runs.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// awaitGone waits for the end of a process that is not our child.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(patience)
	for syscall.Kill(pid, 0) == nil {
		select {
		case <-deadline:
			t.Fatalf("process %d still runs", pid)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// One directory through its life: made, used, asked for twice, crashed, started
// again, stopped in order.
func TestDev(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	args := []string{"dev", "--listen", "127.0.0.1:0", "--data-dir", dir}
	first := launch(t, args...)
	first.healthy(first.ready())
	postgres := postmaster(t, dir)

	second := launch(t, args...)
	if code := second.wait().ExitCode(); code != 1 {
		t.Errorf("the second one on the directory ended with %d", code)
	}
	want := fmt.Sprintf("Error: %s is in use by process %d: ", dir, first.cmd.Process.Pid)
	if said := second.log(); !strings.Contains(said, want) {
		t.Errorf("the second one on the directory said %q, which lacks %q", said, want)
	}

	first.signal(syscall.SIGKILL)
	first.wait()
	again := launch(t, args...)
	again.healthy(again.ready())
	awaitGone(t, postgres)
	postgres = postmaster(t, dir)

	again.signal(syscall.SIGTERM)
	if code := again.wait().ExitCode(); code != 0 {
		t.Errorf("ended with %d", code)
	}
	awaitGone(t, postgres)
	if postmaster(t, dir) != 0 {
		t.Error("PostgreSQL did not stop in order")
	}
	for line := range again.lines {
		t.Errorf("after its address it said %q", line)
	}
}

// The test clock makes a wait of three days end, and exists only with its flag.
func TestDevWithATestClock(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := launch(t, "dev", "--test-clock", "--listen", "127.0.0.1:0", "--data-dir", dir)
	url := p.ready()
	call := func(method, path, body string, status int) (answer struct {
		Now              time.Time
		TaskUUID, Status string
		Error            struct{ Code, Message string }
	}) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		got, err := httpclient.New(nil).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		if err != nil || got.StatusCode != status {
			t.Fatalf("%s %s: %d %s, %v; want %d", method, path, got.StatusCode, text, err, status)
		}
		text = bytes.ReplaceAll(text, []byte("task_uuid"), []byte("TaskUUID"))
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	call("POST", "/v1/templates", `{"namespace": "shop", "name": "later", "version": "1.0.0", "steps": [{"name": "wait", "type": "wait", "wait_seconds": 259200}]}`, http.StatusCreated)
	task := call("POST", "/v1/tasks", `{"namespace": "shop", "name": "later"}`, http.StatusCreated)
	before := call("GET", "/test/clock", "", http.StatusOK).Now
	after := call("POST", "/test/clock", `{"advance_ms": 259200000}`, http.StatusOK).Now
	if jumped := after.Sub(before); jumped < 72*time.Hour || jumped > 73*time.Hour {
		t.Errorf("the clock jumped from %s to %s", before, after)
	}
	if got := call("GET", "/v1/tasks/"+task.TaskUUID+"?wait_ms=60000", "", http.StatusOK); got.Status != "complete" {
		t.Errorf("the task is %s", got.Status)
	}
	for _, body := range []string{"", `{}`, `{"advance_ms": -1}`, `{"advance_ms": 1e18}`, `{"by": 1}`} {
		if got := call("POST", "/test/clock", body, http.StatusBadRequest); got.Error.Code != "INVALID" {
			t.Errorf("%s: %+v", body, got.Error)
		}
	}
	call("DELETE", "/test/clock", "", http.StatusMethodNotAllowed)
	p.signal(syscall.SIGTERM)
	p.wait()

	p = launch(t, "dev", "--listen", "127.0.0.1:0", "--data-dir", dir)
	url = p.ready()
	call("GET", "/test/clock", "", http.StatusNotFound)
	if got := call("GET", "/v1/tasks", "", http.StatusOK); got.TaskUUID != "" {
		t.Errorf("the database of the test clock was kept: %+v", got)
	}

	p = launch(t, "dev", "--test-clock", "--listen", "0.0.0.0:0", "--data-dir", dir)
	if code := p.wait().ExitCode(); code == 0 || !strings.Contains(p.log(), "--test-clock is only for this machine") {
		t.Errorf("on all addresses it ended with %d: %s", code, p.log())
	}
}

// An address that is taken is said at once, and nothing is made for it.
func TestDevOnATakenAddress(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := dataDir(t)
	p := launch(t, "dev", "--listen", l.Addr().String(), "--data-dir", dir)
	if code := p.wait().ExitCode(); code != 1 {
		t.Errorf("ended with %d", code)
	}
	if said := p.log(); !strings.Contains(said, "is in use: stop the other program") {
		t.Errorf("said %q", said)
	}
	if found, err := os.ReadDir(dir); err == nil && len(found) > 0 {
		t.Errorf("the data directory has %v", found)
	}
}

// Ctrl-C ends the demo too, with its worker at work. Orders come no faster than a busy
// machine can finish them.
func TestDemoEndsInOrder(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := launch(t, "dev", "--demo", "--demo-every", "250ms", "--listen", "127.0.0.1:0", "--data-dir", dir)
	address := p.ready()
	deadline := time.After(patience)
	guided := false
	for done := false; !done; {
		select {
		case line := <-p.lines:
			guided = guided || strings.Contains(line, "export TASKER_URL="+address)
			done = strings.Contains(line, "is complete")
		case <-deadline:
			t.Fatal("no order is complete")
		}
	}
	if !guided {
		t.Error("the guide does not say where the server is")
	}
	postgres := postmaster(t, dir)
	p.signal(syscall.SIGINT)
	if code := p.wait().ExitCode(); code != 0 {
		t.Errorf("ended with %d", code)
	}
	awaitGone(t, postgres)
}

func TestDevEndsWithItsPostgreSQL(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := launch(t, "dev", "--listen", "127.0.0.1:0", "--data-dir", dir)
	p.ready()
	if err := syscall.Kill(postmaster(t, dir), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if code := p.wait().ExitCode(); code != 1 {
		t.Errorf("ended with %d", code)
	}
	if said := p.log(); !strings.Contains(said, "Error: the private PostgreSQL exited unexpectedly") {
		t.Errorf("said %q", said)
	}
}

// A request that never ends keeps an orderly stop waiting; the second signal does not care.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := launch(t, "serve", "--listen", "127.0.0.1:0", "--database-url", pgtest.New(t).URL)
	address := strings.TrimPrefix(p.ready(), "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n", address); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(answer, "100 Continue") {
		t.Fatalf("the server does not ask for the body: %q, %v", answer, err)
	}
	p.signal(syscall.SIGTERM)
	deadline := time.After(patience)
	for { // until it has taken the first signal, the second would count as the first
		c, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		c.Close()
		select {
		case <-deadline:
			t.Fatal("the server still takes connections")
		case <-time.After(5 * time.Millisecond):
		}
	}
	for ended := false; !ended; { // as a person does: the handler goes a moment after the listener
		p.signal(syscall.SIGTERM)
		select {
		case <-p.ended:
			ended = true
		case <-deadline:
			t.Fatal("the program does not end")
		case <-time.After(50 * time.Millisecond):
		}
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v, not by the signal", p.cmd.ProcessState)
	}
}

// To be told to end before it was ready is no failure.
func TestEndsInOrderWhileItWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	p := launch(t, "serve", "--listen", "127.0.0.1:0", "--database-url", "postgres://tasker@"+closed.Addr().String()+"/tasker")
	p.awaitError("database unavailable")
	p.signal(syscall.SIGTERM)
	if code := p.wait().ExitCode(); code != 0 {
		t.Errorf("ended with %d", code)
	}
}
