package devpg

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"tasker.example/tasker/internal/childproc"
)

// What a directory holds.
const (
	lockFile     = "lock"         // locked while in use, holds the user's process id
	passwordFile = "password"     // of the cluster's owner
	logFile      = "postgres.log" // what PostgreSQL has said since its last start
	dataFolder   = "data"         // the cluster
	newFolder    = "data.new"     // a cluster in the making, never used
)

// directory is a data directory that this process has to itself.
//
// When we are root, the folder is ours and only the cluster in it belongs to
// the unprivileged user. All files are reached through root, an [os.Root]: a
// link that somebody put there cannot lead us out of the folder.
type directory struct {
	path string
	root *os.Root
	lock *os.File
}

// DefaultDataDir is where the data of a private PostgreSQL lie unless told
// otherwise: in the user's folder for application data, or, for root, in one
// that an unprivileged user may enter too.
func DefaultDataDir() (string, error) {
	if os.Geteuid() == 0 {
		if runtime.GOOS == "linux" {
			return "/var/lib/tasker", nil
		}
		return "/usr/local/var/tasker", nil
	}
	if runtime.GOOS != "linux" {
		base, err := os.UserConfigDir()
		if err != nil {
			return "", fmt.Errorf("find a folder for the data: %w", err)
		}
		return filepath.Join(base, "tasker"), nil
	}
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "tasker"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the data: %w", err)
	}
	return filepath.Join(home, ".local", "share", "tasker"), nil
}

// openDirectory makes the directory when it is missing and takes it, or says
// who has it.
func openDirectory(path string) (*directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := makeFolder(path); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	d := &directory{path: path, root: root}
	err = d.othersMayChange()
	if err == nil {
		err = d.take()
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// The modes of a folder of root's: before it is known as whom PostgreSQL will run, and
// after.
const (
	openToEnter os.FileMode = 0o711
	openToGroup os.FileMode = 0o710
)

// makeFolder makes path. A folder that is new or empty is closed to other users, except
// that the user that root will run PostgreSQL as may enter it; any other keeps its mode.
func makeFolder(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) > 0 {
		return err
	}
	if os.Geteuid() == 0 {
		return os.Chmod(path, openToEnter)
	}
	return os.Chmod(path, 0o700)
}

// othersMayChange refuses a directory in which other users may replace the cluster or
// its password. In one with the sticky bit they may not.
func (d *directory) othersMayChange() error {
	info, err := d.root.Stat(".")
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("data directory: other users may change what is in %s (mode %04o): take that away with chmod go-w %s, or choose another directory",
			d.path, mode.Perm(), d.path)
	}
	return nil
}

// take locks the directory. The kernel releases the lock when this process
// ends, however it ends, so a lock is never stale.
func (d *directory) take() error {
	f, err := d.root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s belongs to another user: run this program as that user, or choose another data directory: %w", d.path, err)
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", d.path, err)
	}
	got, err := childproc.TryLock(f)
	if err != nil {
		return errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	if !got {
		holder := make([]byte, 20)
		n, _ := f.ReadAt(holder, 0) // a short read is the rule, an empty one a holder that has just come
		pid := strings.TrimSpace(string(holder[:n]))
		if pid == "" {
			pid = "unknown"
		}
		return errors.Join(fmt.Errorf("%s is in use by process %s: stop that process, or choose another data directory", d.path, pid), f.Close())
	}
	d.lock = f
	// Who can open the file can take its lock, and keep us out.
	if err := errors.Join(f.Chmod(0o600), f.Truncate(0)); err != nil {
		return errors.Join(err, f.Close())
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// close gives the directory back. It is safe to repeat.
func (d *directory) close() error {
	return errors.Join(childproc.Unlock(d.lock), d.root.Close())
}

// data is the path of the cluster.
func (d *directory) data() string { return filepath.Join(d.path, dataFolder) }

// newPassword makes a password and writes it to its file, which initdb reads as
// the account.
func (d *directory) newPassword(a childproc.Account) error {
	if err := d.root.Remove(passwordFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.root.OpenFile(passwordFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if a.Other() {
		err = f.Chown(a.UID, a.GID)
	}
	_, werr := fmt.Fprintln(f, rand.Text())
	return errors.Join(err, werr, f.Sync(), f.Close())
}

// maxFile bounds what is read of a file in the directory.
const maxFile = 64 << 10

// readFile reads a small regular file. The account that PostgreSQL runs as may put
// something else in its place, such as a pipe that nobody writes to: it is refused
// without waiting.
func (d *directory) readFile(name string) ([]byte, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s in %s is not a regular file: find out who made it, then remove it: %w", name, d.path, errNoFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

var errNoFile = errors.New("it cannot be read")

// readPassword returns the password of the cluster.
func (d *directory) readPassword() (string, error) {
	b, err := d.readFile(passwordFile)
	if err != nil {
		return "", fmt.Errorf("read the password of the cluster in %s: %w", d.path, err)
	}
	return strings.TrimSpace(string(b)), nil
}
