package mqtest

import (
	"context"
	"errors"
	"os/exec"
	"syscall"

	"tasker.example/tasker/internal/childproc"
)

// process is a program of the broker with its child processes.
type process struct{ *childproc.Process }

// startProcess starts the command as the account. On Linux, the command receives SIGTERM if this
// process dies. On other systems, longestLife limits how long a killed test leaves it running.
func startProcess(cmd *exec.Cmd, a childproc.Account) (*process, error) {
	p, err := childproc.Start(cmd, a, syscall.SIGTERM)
	return &process{p}, err
}

// stop shuts the process down. It kills the process if ctx ends first.
func (p *process) stop(ctx context.Context) error {
	select {
	case <-p.Done():
		return errors.Join(errors.New("RabbitMQ had ended by itself"), p.Err(), p.Kill())
	default:
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, p.Kill())
	}
	select {
	case <-p.Done():
		return p.Kill() // remaining children
	case <-ctx.Done():
		return errors.Join(errors.New("RabbitMQ did not stop, and was killed"), p.Kill())
	}
}
