// Package childproc runs servers such as PostgreSQL as unprivileged child processes that terminate
// with the parent.
package childproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// killTimeout limits how long Kill waits for a process to end.
const killTimeout = 10 * time.Second

// A Process is a program that this process started.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended
	err  error         // valid after done
}

// Start starts the command as the account. The child has its own process group, so that Ctrl-C in
// a terminal does not reach it and the parent can stop it in an orderly way. If this process dies,
// the child receives the signal onDeath (on Linux).
func Start(cmd *exec.Cmd, a Account, onDeath syscall.Signal) (*Process, error) {
	cmd.SysProcAttr = Attributes(a, onDeath)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends onDeath when the thread that started the child ends, so that thread must
		// not end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the end of the program and returns the result of [exec.Cmd.Wait].
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the program. It returns no error if the program has ended.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Kill kills the process group of the program. It returns after all of its processes have ended,
// so that their ports and directories are free.
func (p *Process) Kill() error {
	group := -p.PID()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(killTimeout)
	defer deadline.Stop()
	for {
		err := syscall.Kill(group, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			<-p.done
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return errors.Join(fmt.Errorf("cannot kill process group %d", -group), err)
		}
	}
}

// newGroup returns the attributes that do not depend on the operating system.
func newGroup(a Account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a.IsOtherUser() {
		attr.Credential = &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}
	}
	return attr
}
