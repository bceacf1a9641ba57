package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
)

const postmasterFile = dataFolder + "/postmaster.pid"

// leftoverGrace is the shutdown timeout of a leftover server.
const leftoverGrace = 30 * time.Second

// postmaster is the content of postmaster.pid.
type postmaster struct {
	pid   int
	port  int
	ready bool // it accepts connections
}

// readPostmaster reads postmaster.pid. It returns [fs.ErrNotExist] if no server is running and the
// last one was shut down.
func (d *directory) readPostmaster() (postmaster, error) {
	b, err := d.readFile(postmasterFile)
	if err != nil {
		return postmaster{}, err
	}
	lines := strings.Split(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 {
		return postmaster{}, fmt.Errorf("%s does not begin with a process id", postmasterFile)
	}
	m := postmaster{pid: pid}
	if len(lines) > 7 {
		m.ready = strings.TrimSpace(lines[7]) == "ready"
		m.port, _ = strconv.Atoi(strings.TrimSpace(lines[3])) // 0 if invalid
	}
	return m, nil
}

// stopLeftover stops a server whose parent has died. On Linux it is already ending. The lock of the
// directory ensures that no other process uses it. If its process id now belongs to another
// program, PostgreSQL would refuse to start, so the file is removed.
func (d *directory) stopLeftover(ctx context.Context, log *slog.Logger) error {
	m, err := d.readPostmaster()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, errNoFile) {
		return err // PostgreSQL would block on the file
	}
	if err != nil {
		// PostgreSQL reports an empty or invalid file itself.
		log.WarnContext(ctx, "cannot determine which server used the data", "err", err)
		return nil
	}
	if !isAlive(m.pid) {
		return nil
	}
	if !d.isServedBy(m.pid) {
		log.InfoContext(ctx, "the process id of the previous server now belongs to another program", "pid", m.pid)
		return d.root.Remove(postmasterFile)
	}
	log.InfoContext(ctx, "stopping an orphaned server", "pid", m.pid)
	return d.endProcess(ctx, m.pid)
}

// isServedBy reports whether the process is a server on this directory.
func (d *directory) isServedBy(pid int) bool {
	args := readCommandLine(pid)
	return strings.Contains(args, "postgres") && strings.Contains(args, d.dataPath())
}

// endProcess stops a process that is not a child, and waits for it.
func (d *directory) endProcess(ctx context.Context, pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(leftoverGrace)
	defer deadline.Stop()
	signal := fastShutdown
	if err := p.Signal(signal); err != nil && isAlive(pid) {
		return fmt.Errorf("stop the orphaned server on %s (process %d): %w", d.path, pid, err)
	}
	for isAlive(pid) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the orphaned server on %s (process %d) to stop: %w",
				d.path, pid, ctx.Err())
		case <-deadline.C:
			if signal == immediateShutdown {
				return fmt.Errorf("the orphaned server on %s (process %d) does not stop: kill it, then start again",
					d.path, pid)
			}
			signal = immediateShutdown
			deadline.Reset(leftoverGrace)
			_ = p.Signal(signal) // fails if the process has just ended
		case <-tick.C:
		}
	}
	return nil
}
