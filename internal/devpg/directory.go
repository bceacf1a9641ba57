package devpg

import (
	"cmp"
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

// Files of a directory.
const (
	lockFile     = "lock"         // locked while in use; contains the process id
	passwordFile = "password"     // of the cluster's owner
	logFile      = "postgres.log" // output of PostgreSQL since its last start
	dataFolder   = "data"         // the cluster
	newFolder    = "data.new"     // an incomplete cluster
)

// directory is a locked data directory.
//
// For root, only the cluster belongs to the unprivileged user, not the folder. All files are
// accessed through an [os.Root], so that links cannot lead outside of it.
type directory struct {
	path string
	root *os.Root
	lock *os.File
}

// DefaultDataDir returns the default data directory: in the user's folder for application data or,
// for root, in a folder that unprivileged users may enter.
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
			return "", fmt.Errorf("find a data directory: %w", err)
		}
		return filepath.Join(base, "tasker"), nil
	}
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "tasker"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a data directory: %w", err)
	}
	return filepath.Join(home, ".local", "share", "tasker"), nil
}

// openDirectory creates the directory if necessary and locks it. The error names the process that
// uses it.
func openDirectory(path string) (*directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := createFolder(path); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	d := &directory{path: path, root: root}
	err = d.checkPermissions()
	if err == nil {
		err = d.acquire()
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// Modes of root's folder, before and after the account of PostgreSQL is known.
const (
	openToEnter os.FileMode = 0o711
	openToGroup os.FileMode = 0o710
)

// createFolder creates path. It restricts a new or empty folder to the current user; if that is
// root, the account of PostgreSQL may enter the folder too. Other folders keep their mode.
func createFolder(path string) error {
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

// checkPermissions returns an error if other users may replace the cluster or its password. They
// may not if the sticky bit is set.
func (d *directory) checkPermissions() error {
	info, err := d.root.Stat(".")
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("data directory: other users can write to %s (mode %04o): "+
			"run chmod go-w %s, or choose another directory",
			d.path, mode.Perm(), d.path)
	}
	return nil
}

// acquire locks the directory. The kernel releases the lock when the process ends, so locks are
// never stale.
func (d *directory) acquire() error {
	f, err := d.root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s is owned by another user: run this program as that user, or choose another data "+
			"directory: %w",
			d.path, err)
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", d.path, err)
	}
	locked, err := childproc.TryLock(f)
	if err != nil {
		return errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	if !locked {
		holder := make([]byte, 20)
		n, _ := f.ReadAt(holder, 0) // the file is shorter, and empty while the lock is being taken
		pid := cmp.Or(strings.TrimSpace(string(holder[:n])), "unknown")
		return errors.Join(fmt.Errorf("%s is in use by process %s: stop that process, or choose another data directory", d.path, pid),
			f.Close())
	}
	d.lock = f
	// Other users who can open the file could lock it.
	if err := errors.Join(f.Chmod(0o600), f.Truncate(0)); err != nil {
		return errors.Join(err, f.Close())
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// close unlocks the directory. It can be called again.
func (d *directory) close() error {
	return errors.Join(childproc.Unlock(d.lock), d.root.Close())
}

func (d *directory) dataPath() string { return filepath.Join(d.path, dataFolder) }

// newPassword writes a new password to a file that the account can read, because initdb reads it.
func (d *directory) newPassword(a childproc.Account) error {
	if err := d.root.Remove(passwordFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.root.OpenFile(passwordFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if a.IsOtherUser() {
		err = f.Chown(a.UID, a.GID)
	}
	_, werr := fmt.Fprintln(f, rand.Text())
	return errors.Join(err, werr, f.Sync(), f.Close())
}

// maxFile limits how many bytes of a file are read.
const maxFile = 64 << 10

// readFile reads a small regular file. The account may replace it by another type, such as a pipe,
// which is rejected without blocking.
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
		return nil, fmt.Errorf("%s in %s is not a regular file: check who created it, then "+
			"remove it: %w", name, d.path, errNoFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

var errNoFile = errors.New("it cannot be read")

func (d *directory) readPassword() (string, error) {
	b, err := d.readFile(passwordFile)
	if err != nil {
		return "", fmt.Errorf("read the password of the cluster in %s: %w", d.path, err)
	}
	return strings.TrimSpace(string(b)), nil
}
