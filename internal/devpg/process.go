package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"tasker.example/tasker/internal/childproc"
)

// Shutdown signals of a postmaster.
const (
	fastShutdown      = syscall.SIGINT
	immediateShutdown = syscall.SIGQUIT
)

// process is a running program of PostgreSQL.
type process struct {
	*childproc.Process
	stopped bool // by this program
}

// startProcess starts the command as the account. If this process dies, the program receives
// onDeath.
func startProcess(cmd *exec.Cmd, a childproc.Account, onDeath syscall.Signal) (*process, error) {
	cmd.Env = buildEnvironment()
	p, err := childproc.Start(cmd, a, onDeath)
	return &process{Process: p}, err
}

// buildEnvironment returns the environment without the variables of PostgreSQL and locales. It sets
// the locale C, because log messages are parsed and must be in English.
func buildEnvironment() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG")
	})
	return append(env, "LC_ALL=C")
}

// wait waits for the end of the process. It kills the process if ctx ends first.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.Done():
		return p.Err()
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Kill())
	}
}

// stop requests a fast shutdown, then an immediate one after grace or when ctx ends, and finally
// kills the process.
func (p *process) stop(ctx context.Context, grace time.Duration) error {
	if p.stopped {
		<-p.Done()
		return nil
	}
	p.stopped = true
	select {
	case <-p.Done():
		return fmt.Errorf("PostgreSQL exited unexpectedly: %w", exitReason(p.Err()))
	default:
	}
	for _, step := range []struct {
		signal syscall.Signal
		grace  time.Duration
	}{
		{fastShutdown, grace},
		{immediateShutdown, 5 * time.Second},
	} {
		if err := p.Signal(step.signal); err != nil {
			return fmt.Errorf("stop PostgreSQL (process %d): %w", p.PID(), err)
		}
		timer := time.NewTimer(step.grace)
		select {
		case <-p.Done():
			timer.Stop()
			if step.signal == fastShutdown {
				return p.Err()
			}
			return fmt.Errorf("PostgreSQL did not shut down in time and was forced to stop: it will recover at " +
				"the next start")
		case <-ctx.Done():
			timer.Stop()
			ctx = context.WithoutCancel(ctx)
		case <-timer.C:
		}
	}
	return errors.Join(fmt.Errorf("PostgreSQL (process %d) did not stop and was killed", p.PID()), p.Kill())
}

// exitReason returns err, or an error that reports status 0 if err is nil, for a process that
// exited unexpectedly.
func exitReason(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}
