package pgtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"tasker.example/tasker/internal/schema"
)

const (
	// preparedName is what the names of prepared clusters begin with. Its number goes up when
	// clusters are made in another way.
	preparedName = "test-cluster-1-"

	// preparedAge is how long a cluster stays that nobody uses.
	preparedAge = 7 * 24 * time.Hour
)

// preparedFiles are what a data directory of devpg has beside locks and logs.
var preparedFiles = []string{"data", "password"}

// A prepared is a directory with a stopped cluster that has the template. The test binaries of
// many packages start from copies of it: initdb and the migrations take seconds of a processor.
// It is an optimization only: what goes wrong with it is answered by making a cluster.
type prepared struct{ path string }

// preparedIn returns the prepared cluster for this schema in a folder. Nobody waits until it is on
// the disk, so one that was made before the machine was started, and may be damaged, is another one.
func preparedIn(folder string) prepared {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // Linux has it
	return prepared{filepath.Join(folder, fmt.Sprintf("%s%s-%.8s", preparedName, schema.Checksum()[:16], boot))}
}

// preparedHere returns that in the cache folder of the user. Without such a folder there is
// none, and none is kept.
func preparedHere() prepared {
	folder, err := os.UserCacheDir()
	if err != nil {
		return prepared{}
	}
	return preparedIn(filepath.Join(folder, "tasker"))
}

// use marks the cluster as used, or says that there is none.
func (p prepared) use(now time.Time) error {
	if p.path == "" {
		return fs.ErrNotExist
	}
	return os.Chtimes(p.path, now, now)
}

// copyTo copies the cluster into an empty directory.
func (p prepared) copyTo(dir string) error {
	if err := copyFiles(p.path, dir); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	// As devpg leaves an empty folder of root's: the user of PostgreSQL may enter it. devpg closes it to others.
	return os.Chmod(dir, 0o711)
}

// keep copies the stopped cluster of a directory to where it is found, and removes those that
// nobody has used for long.
func (p prepared) keep(dir string) error {
	if p.path == "" {
		return nil
	}
	folder := filepath.Dir(p.path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(folder, preparedName)
	if err != nil {
		return err
	}
	if err = copyFiles(dir, fresh); err == nil {
		err = os.Rename(fresh, p.path)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(fresh))
	}
	if errors.Is(err, fs.ErrExist) { // another test binary was first
		err = nil
	}
	return errors.Join(err, removeUnused(folder, time.Now().Add(-preparedAge)))
}

// removeUnused removes the clusters of a folder that were last used before an instant.
func removeUnused(folder string, before time.Time) error {
	list, err := filepath.Glob(filepath.Join(folder, preparedName+"*"))
	for _, path := range list {
		info, err := os.Stat(path)
		if err == nil && info.ModTime().Before(before) {
			err = os.RemoveAll(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// copyFiles copies a cluster with the owners of its files.
func copyFiles(from, to string) error {
	args := []string{"-Rp"}
	for _, name := range preparedFiles {
		args = append(args, filepath.Join(from, name))
	}
	if out, err := exec.Command("cp", append(args, to)...).CombinedOutput(); err != nil { //nolint:noctx // it ends by itself
		return fmt.Errorf("copy a cluster: %w\n%s", err, out)
	}
	return nil
}
