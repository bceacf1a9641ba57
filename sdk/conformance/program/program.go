// Package program runs the conformance program of an SDK.
package program

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Program is a running conformance program.
type Program struct {
	Stopping bool // its end is expected

	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	log  lockedBuffer  // stderr and stdout
}

// lockedBuffer is the output of a running program.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds output.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns the output so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pipeTime limits how long the output of a child of the program is awaited.
const pipeTime = 2 * time.Second

// Start starts a command in its own process group, in the directory dir and with additional
// environment variables. It calls onEnd when the program ends.
func Start(command []string, dir string, env []string, onEnd func()) (*Program, error) {
	if len(command) == 0 {
		return nil, errors.New("the command of the program is missing")
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // Kill ends it with its children
	p := &Program{cmd: cmd, done: make(chan struct{})}
	p.cmd.Env = append(CleanEnv(), env...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = dir, &p.log, &p.log, pipeTime
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the status is in ProcessState
		close(p.done)
		onEnd()
	}()
	return p, nil
}

// CleanEnv returns the environment without the variables of the suite and of the server.
func CleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TASKER_") && !strings.HasPrefix(v, "CONFORMANCE_") {
			env = append(env, v)
		}
	}
	return env
}

// Signal sends a signal to the program, but not to its children.
func (p *Program) Signal(s syscall.Signal) {
	p.Stopping = true
	_ = p.cmd.Process.Signal(s) // it may have ended
}

// PID returns the process ID of the program.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Exited returns whether the program has ended, and its status. It is -1 after a signal.
func (p *Program) Exited() (bool, int) {
	select {
	case <-p.done:
		return true, p.cmd.ProcessState.ExitCode()
	default:
		return false, 0
	}
}

// Kill ends the program and its children.
func (p *Program) Kill() {
	if exited, _ := p.Exited(); !exited {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	}
	<-p.done
}

// shownLines is the number of lines of output that a failure shows.
const shownLines = 25

// Output returns what the program has printed so far.
func (p *Program) Output() string { return p.log.String() }

// Tail returns the last lines of the output.
func (p *Program) Tail() string {
	lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-shownLines):], "\n")
}
