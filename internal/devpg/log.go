package devpg

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Limits of a log excerpt in an error.
const (
	tailLines = 20
	tailBytes = 4 << 10
)

// createLog opens the log and truncates it. PostgreSQL writes to the file itself, because a pipe
// would break when this process ends.
func (d *directory) createLog() (*os.File, error) {
	f, err := d.root.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the PostgreSQL log: %w", err)
	}
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("restrict access to the PostgreSQL log: %w", err), f.Close())
	}
	return f, nil
}

// readLogTail returns the end of the log, indented.
func (d *directory) readLogTail() string {
	b, err := d.root.ReadFile(logFile)
	if err != nil {
		return "  (the log cannot be read: " + err.Error() + ")"
	}
	b = b[max(0, len(b)-tailBytes):]
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return "  " + strings.Join(lines, "\n  ")
}
