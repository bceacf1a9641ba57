package mqtest

import (
	"context"
	"errors"
	"os/exec"
	"syscall"

	"tasker.example/tasker/internal/childproc"
)

// A process is a program of the broker, and what it has started.
type process struct{ *childproc.Process }

// startProcess starts the command as the account. On Linux it is told to stop when we die;
// elsewhere only its longest life ends what a killed test leaves behind.
func startProcess(cmd *exec.Cmd, a childproc.Account) (*process, error) {
	p, err := childproc.Start(cmd, a, syscall.SIGTERM)
	return &process{p}, err
}

// stop asks for an orderly end, and kills when ctx ends first.
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
		return p.Kill() // what it may have left behind
	case <-ctx.Done():
		return errors.Join(errors.New("RabbitMQ did not stop, and was killed"), p.Kill())
	}
}
