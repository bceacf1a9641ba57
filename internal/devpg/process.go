package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A process is a program of PostgreSQL that we started and will outlive.
type process struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended
	err     error         // how it ended; to be read after done
	stopped bool          // we asked it to stop
}

// startProcess starts the command as the account, in a process group of its
// own: Ctrl-C in a terminal must reach us first, and we then stop it in order.
// If we die, it receives the signal onDeath (on Linux).
func startProcess(cmd *exec.Cmd, a account, onDeath syscall.Signal) (*process, error) {
	cmd.Env = environment()
	cmd.SysProcAttr = attributes(a, onDeath)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends onDeath when the thread that started the child
		// ends, not the process. So one thread stays with it for its life.
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

// environment is ours without the variables that PostgreSQL would obey, and
// with messages in English, because we read them.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG")
	})
	return append(env, "LC_ALL=C")
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// wait returns when the process has ended, or kills it when ctx ends first.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill())
	}
}

// kill ends the process at once.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	if err == nil || errors.Is(err, os.ErrProcessDone) {
		<-p.done
		return nil
	}
	return err
}

// stop asks for a fast shutdown; after grace, or when ctx ends, for an
// immediate one; then it kills.
func (p *process) stop(ctx context.Context, grace time.Duration) error {
	if p.stopped {
		<-p.done
		return nil
	}
	p.stopped = true
	select {
	case <-p.done:
		return fmt.Errorf("PostgreSQL had ended by itself: %w", endOf(p.err))
	default:
	}
	for _, step := range []struct {
		signal syscall.Signal
		grace  time.Duration
	}{
		{fastShutdown, grace},
		{immediateShutdown, 5 * time.Second},
	} {
		if err := p.cmd.Process.Signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop PostgreSQL (process %d): %w", p.pid(), err)
		}
		timer := time.NewTimer(step.grace)
		select {
		case <-p.done:
			timer.Stop()
			if step.signal == fastShutdown {
				return p.err
			}
			return fmt.Errorf("PostgreSQL did not stop in time and was forced: its next start will recover")
		case <-ctx.Done():
			timer.Stop()
			ctx = context.WithoutCancel(ctx)
		case <-timer.C:
		}
	}
	return errors.Join(fmt.Errorf("PostgreSQL (process %d) did not stop and was killed", p.pid()), p.kill())
}

// endOf turns the nil of a process that ended well into an error, where its
// end was not wanted at all.
func endOf(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}
