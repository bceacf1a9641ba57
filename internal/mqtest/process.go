package mqtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// An account is the user that the broker runs as. The zero value is ourselves.
type account struct{ uid, gid int }

// unprivileged returns the account for the broker, which has no business with
// the rights of root.
func unprivileged() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"rabbitmq", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil || uid == 0 {
			continue
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			continue
		}
		return account{uid, gid}, nil
	}
	return account{}, errors.New("RabbitMQ shall not run as root, and this machine has neither a user rabbitmq nor nobody: " +
		"create one (useradd --system rabbitmq), or run the tests as an ordinary user")
}

// A process is a program that we started, and what it has started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program itself has ended
	err  error         // how; to be read after done
}

// startProcess starts the command as the account, in a process group of its
// own. On Linux it is told to stop when we die.
func startProcess(cmd *exec.Cmd, a account) (*process, error) {
	cmd.SysProcAttr = attributes(a)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel watches the thread that started the child, not the
		// process. So one thread stays with it for its life.
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

// group is the part of attributes that every system has.
func group(a account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a != (account{}) {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

// stop asks for an orderly end, and kills when ctx ends first.
func (p *process) stop(ctx context.Context) error {
	select {
	case <-p.done:
		return errors.Join(fmt.Errorf("RabbitMQ had ended by itself (%v)", p.cmd.ProcessState), p.kill())
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, p.kill())
	}
	select {
	case <-p.done:
		return p.kill() // what it may have left behind
	case <-ctx.Done():
		return errors.Join(errors.New("RabbitMQ did not stop, and was killed"), p.kill())
	}
}

// kill ends the whole group at once, and waits until it is gone: a port or a
// folder of one that is about to go cannot be used.
func (p *process) kill() error {
	id := -p.cmd.Process.Pid
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for {
		err := syscall.Kill(id, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			<-p.done
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return errors.Join(fmt.Errorf("process group %d cannot be killed", -id), err)
		}
	}
}
