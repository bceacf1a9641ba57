package pgtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	// preparedName is the prefix of prepared clusters. Increase the number when their format
	// changes.
	preparedName = "test-cluster-1-"

	// preparedAge is the age at which unused clusters are removed.
	preparedAge = 7 * 24 * time.Hour
)

// preparedFiles lists the files of a devpg data directory that are copied.
var preparedFiles = []string{"data", "password"}

// preparedCluster is a directory with a stopped cluster that contains the template. Test binaries
// start from copies of it, because initdb and the migrations take seconds of CPU time. If it cannot
// be used, they create a cluster themselves.
type preparedCluster struct{ path string }

// newPreparedCluster returns the prepared cluster for this schema in a folder. Clusters are not
// synced to disk, so one from before the last boot may be damaged and has another name.
func newPreparedCluster(folder string) preparedCluster {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // on Linux
	return preparedCluster{filepath.Join(folder, fmt.Sprintf("%s%s-%.8s", preparedName, templateChecksum(), boot))}
}

// findPreparedCluster returns the prepared cluster in the user's cache folder. If there is no such
// folder, it returns the zero value.
func findPreparedCluster() preparedCluster {
	folder, err := os.UserCacheDir()
	if err != nil {
		return preparedCluster{}
	}
	return newPreparedCluster(filepath.Join(folder, "tasker"))
}

// use marks the cluster as used now. It returns an error if there is no cluster.
func (p preparedCluster) use(now time.Time) error {
	if p.path == "" {
		return fs.ErrNotExist
	}
	return os.Chtimes(p.path, now, now)
}

// copyTo copies the cluster into an empty directory.
func (p preparedCluster) copyTo(dir string) error {
	if err := copyFiles(p.path, dir); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	// As devpg does for root: the user of PostgreSQL may enter the folder. devpg then closes it to
	// others.
	return os.Chmod(dir, 0o711)
}

// store copies the stopped cluster in dir to its final path, and removes clusters that have not
// been used for a long time.
func (p preparedCluster) store(dir string) error {
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

// removeUnused removes the clusters of a folder that were last used before a time.
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

// copyFiles copies a cluster and preserves the owners of its files.
func copyFiles(from, to string) error {
	args := []string{"-Rp"}
	for _, name := range preparedFiles {
		args = append(args, filepath.Join(from, name))
	}
	if out, err := exec.Command("cp", append(args, to)...).CombinedOutput(); err != nil { //nolint:noctx // ends on its own
		return fmt.Errorf("copy a cluster: %w\n%s", err, out)
	}
	return nil
}
