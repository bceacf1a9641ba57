package mqtest

import (
	"errors"
	"os"
	"path/filepath"

	"tasker.example/tasker/internal/childproc"
)

const (
	folderPrefix = "tasker-mq-"
	lockFile     = "lock"
)

// folder contains all files of one broker. It is locked while in use.
type folder struct {
	path string
	lock *os.File
	who  childproc.Account
}

// newFolder creates a folder that belongs to the account, in memory if possible. It removes folders
// that killed tests have left behind.
func newFolder(who childproc.Account) (*folder, error) {
	base := childproc.TempDir(1 << 30)
	removeStale(base)
	path, err := os.MkdirTemp(base, folderPrefix)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, who: who}
	if f.lock, err = f.append(lockFile); err == nil {
		_, err = childproc.TryLock(f.lock) // succeeds, because the file is new
	}
	if err == nil && who.IsOtherUser() {
		err = os.Chown(path, who.UID, who.GID)
	}
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

// removeStale removes folders that no process uses any more.
func removeStale(base string) {
	paths, _ := filepath.Glob(filepath.Join(base, folderPrefix+"*"))
	for _, path := range paths {
		lock, err := os.Open(filepath.Join(path, lockFile))
		if err != nil {
			continue // incomplete, or of another user
		}
		if unused, err := childproc.TryLock(lock); unused && err == nil {
			_ = os.RemoveAll(path) // retried by the next sweep
		}
		_ = childproc.Unlock(lock)
	}
}

// write writes a file that the broker can read.
func (f *folder) write(name, text string) error {
	out, err := f.append(name)
	if err != nil {
		return err
	}
	_, err = out.WriteString(text)
	return errors.Join(err, out.Close())
}

// append opens a file for appending and makes the account its owner.
func (f *folder) append(name string) (*os.File, error) {
	out, err := os.OpenFile(filepath.Join(f.path, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil && f.who.IsOtherUser() {
		err = out.Chown(f.who.UID, f.who.GID)
	}
	return out, err
}

// remove removes and unlocks the folder.
func (f *folder) remove() error {
	err := os.RemoveAll(f.path)
	if f.lock != nil {
		_ = childproc.Unlock(f.lock)
	}
	return err
}
