package devpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"tasker.example/tasker/internal/childproc"
)

// installAdvice is part of the error on a machine without a suitable PostgreSQL.
const installAdvice = "no PostgreSQL 15 or newer on this machine. Install it:\n" +
	"  Debian, Ubuntu:  apt install postgresql\n" +
	"  Fedora, RHEL:    dnf install postgresql-server\n" +
	"  macOS:           brew install postgresql@17\n" +
	"or say where it is with " + binEnv + ", or use a server of your own: tasker serve --database-url"

// fetched is the version of PostgreSQL that is downloaded.
const fetched = embeddedpostgres.V17

// fetchEnv is the environment variable with the Maven repository for downloads.
const fetchEnv = "TASKER_POSTGRES_FETCH_URL"

// fetchPrograms downloads the programs unless they were downloaded before. It renames a download
// when it is complete, so that an interrupted one is never used.
func fetchPrograms(ctx context.Context, o Options) (programs, error) {
	base, err := createFetchDir(o.FetchDir)
	if err != nil {
		return programs{}, err
	}
	dir := filepath.Join(base, fmt.Sprintf("postgresql-%s-%s-%s", fetched, runtime.GOOS, runtime.GOARCH))
	bin := filepath.Join(dir, "bin")
	if p, err := inspectPrograms(ctx, bin); err == nil {
		return p, nil
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return programs{}, fmt.Errorf("directory for a downloaded PostgreSQL: %w", err)
	}
	unlock, err := acquireFileLock(ctx, filepath.Join(base, "download.lock"))
	if err != nil {
		return programs{}, fmt.Errorf("wait for another download: %w", err)
	}
	defer unlock()
	if p, err := inspectPrograms(ctx, bin); err == nil {
		return p, nil // another process has downloaded it
	}
	// In the same folder, so that the rename is atomic.
	work, err := os.MkdirTemp(base, "download-")
	if err != nil {
		return programs{}, fmt.Errorf("directory for a downloaded PostgreSQL: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(work); err != nil {
			o.Log.WarnContext(ctx, "cannot remove a download directory", "dir", work, "err", err)
		}
	}()
	o.Log.InfoContext(ctx, "no PostgreSQL on this machine: downloading it, once (about 15 MB)", "version", string(fetched), "to", dir)
	start := time.Now()
	if err := download(ctx, o, work); err != nil {
		return programs{}, fmt.Errorf("download PostgreSQL %s: %w", fetched, err)
	}
	if err := install(filepath.Join(work, unpackedFolder), dir); err != nil {
		return programs{}, fmt.Errorf("install the downloaded PostgreSQL: %w", err)
	}
	o.Log.InfoContext(ctx, "PostgreSQL downloaded", "took", time.Since(start).Round(time.Millisecond))
	return inspectPrograms(ctx, bin)
}

// createFetchDir returns the folder for downloaded programs. For root it must be readable by
// unprivileged users.
func createFetchDir(asked string) (string, error) {
	switch {
	case asked != "":
		return filepath.Abs(asked)
	case os.Geteuid() == 0:
		return "/var/cache/tasker", nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a directory for a downloaded PostgreSQL: %w", err)
	}
	return filepath.Join(base, "tasker"), nil
}

// unpackedFolder is the folder of the unpacked programs.
const unpackedFolder = "unpacked"

// download downloads and unpacks the programs below work. The library would also start the server,
// which does not work as root and deletes data of other versions. An invalid data folder makes it
// fail after unpacking.
func download(ctx context.Context, o Options, work string) error {
	unpacked := filepath.Join(work, unpackedFolder)
	ports, err := childproc.FreePorts(1)
	if err != nil {
		return err
	}
	config := embeddedpostgres.DefaultConfig().
		Version(fetched).
		Port(uint32(ports[0])).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(unpacked).
		DataPath(filepath.Join(unpacked, "bin", "postgres", "no-data")).
		Logger(io.Discard)
	if url := o.FetchURL; url != "" {
		config = config.BinaryRepositoryURL(url)
	} else if url := os.Getenv(fetchEnv); url != "" {
		config = config.BinaryRepositoryURL(url)
	}
	done := make(chan error, 1)
	go func() { done <- embeddedpostgres.NewDatabase(config).Start() }()
	select {
	case <-ctx.Done():
		return ctx.Err() // the library cannot be cancelled
	case err := <-done:
		if _, missing := os.Stat(filepath.Join(unpacked, "bin", "postgres")); missing != nil {
			return errors.Join(err, missing)
		}
		return nil
	}
}

// install renames the programs to their final folder. An existing folder is unusable and is
// replaced.
func install(unpacked, dir string) error {
	// Archives contain modes, but not for the folder around them.
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(unpacked, dir)
}

// acquireFileLock waits for an exclusive lock on a file, so that programs that start at the same
// time do not download twice.
func acquireFileLock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = childproc.Unlock(f) }
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		locked, err := childproc.TryLock(f)
		if err != nil {
			unlock()
			return nil, err
		}
		if locked {
			return unlock, nil
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
