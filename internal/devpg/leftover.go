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

// leftoverGrace is how long a server without its parent may take to stop.
const leftoverGrace = 30 * time.Second

// postmaster is what PostgreSQL writes about itself into its data.
type postmaster struct {
	pid   int
	port  int
	ready bool // it accepts connections
}

// postmaster reads it; [fs.ErrNotExist] says that no server runs, and that the
// last one stopped in order.
func (d *directory) postmaster() (postmaster, error) {
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
		m.port, _ = strconv.Atoi(strings.TrimSpace(lines[3])) // 0 is none
	}
	return m, nil
}

// stopLeftover ends a server that has lost its parent: on Linux it is about to
// end by itself, elsewhere nobody has told it. We hold the lock of the
// directory, so it is nobody's. Its process id may meanwhile belong to a
// stranger; PostgreSQL would then refuse to start, so the file goes.
func (d *directory) stopLeftover(ctx context.Context, log *slog.Logger) error {
	m, err := d.postmaster()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, errNoFile) {
		return err // PostgreSQL would open it, and wait
	}
	if err != nil {
		// Empty or garbled: PostgreSQL gives its own advice about the file.
		log.WarnContext(ctx, "cannot tell which server used the data", "err", err)
		return nil
	}
	if !alive(m.pid) {
		return nil
	}
	if !d.serves(m.pid) {
		log.InfoContext(ctx, "process id of the last server belongs to another program now", "pid", m.pid)
		return d.root.Remove(postmasterFile)
	}
	log.InfoContext(ctx, "stopping a server that lost its parent", "pid", m.pid)
	return d.end(ctx, m.pid)
}

// serves reports whether the process is a server on this directory.
func (d *directory) serves(pid int) bool {
	args := commandLine(pid)
	return strings.Contains(args, "postgres") && strings.Contains(args, d.data())
}

// end stops a process that is not our child, and waits for its end.
func (d *directory) end(ctx context.Context, pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }() // it frees what we hold of it, no more
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(leftoverGrace)
	defer deadline.Stop()
	signal := fastShutdown
	if err := p.Signal(signal); err != nil && alive(pid) {
		return fmt.Errorf("stop the server that was left running on %s (process %d): %w", d.path, pid, err)
	}
	for alive(pid) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of the server that was left running on %s (process %d): %w", d.path, pid, ctx.Err())
		case <-deadline.C:
			if signal == immediateShutdown {
				return fmt.Errorf("the server that was left running on %s (process %d) does not stop: kill it, then start again", d.path, pid)
			}
			signal = immediateShutdown
			deadline.Reset(leftoverGrace)
			_ = p.Signal(signal) // if it has just ended, the loop sees that
		case <-tick.C:
		}
	}
	return nil
}
