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

// installAdvice is what to do on a machine without PostgreSQL.
const installAdvice = "no PostgreSQL 15 or newer on this machine. Install it:\n" +
	"  Debian, Ubuntu:  apt install postgresql\n" +
	"  Fedora, RHEL:    dnf install postgresql-server\n" +
	"  macOS:           brew install postgresql@17\n" +
	"or say where it is with " + binEnv + ", or use a server of your own: tasker serve --database-url"

// fetched is the version that is downloaded where there is none.
const fetched = embeddedpostgres.V17

// fetchEnv names the variable with the Maven repository to download from.
const fetchEnv = "TASKER_POSTGRES_FETCH_URL"

// fetch returns downloaded programs. What was downloaded once is used again; what
// was interrupted never is, because it gets its name only when it is complete.
func fetch(ctx context.Context, o Options) (programs, error) {
	base, err := fetchDir(o.FetchDir)
	if err != nil {
		return programs{}, err
	}
	dir := filepath.Join(base, fmt.Sprintf("postgresql-%s-%s-%s", fetched, runtime.GOOS, runtime.GOARCH))
	bin := filepath.Join(dir, "bin")
	if p, err := inspect(ctx, bin); err == nil {
		return p, nil
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return programs{}, fmt.Errorf("folder for a downloaded PostgreSQL: %w", err)
	}
	unlock, err := alone(ctx, filepath.Join(base, "download.lock"))
	if err != nil {
		return programs{}, fmt.Errorf("wait for another download: %w", err)
	}
	defer unlock()
	if p, err := inspect(ctx, bin); err == nil {
		return p, nil // it was the same one
	}
	// Beside its final place, so that moving it there is one step.
	work, err := os.MkdirTemp(base, "download-")
	if err != nil {
		return programs{}, fmt.Errorf("folder for a downloaded PostgreSQL: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(work); err != nil {
			o.Log.WarnContext(ctx, "cannot remove what a download left", "dir", work, "err", err)
		}
	}()
	o.Log.InfoContext(ctx, "no PostgreSQL on this machine: downloading it, once (about 15 MB)", "version", string(fetched), "to", dir)
	start := time.Now()
	if err := download(ctx, o, work); err != nil {
		return programs{}, fmt.Errorf("download PostgreSQL %s: %w", fetched, err)
	}
	if err := settle(filepath.Join(work, unpackedFolder), dir); err != nil {
		return programs{}, fmt.Errorf("keep the downloaded PostgreSQL: %w", err)
	}
	o.Log.InfoContext(ctx, "PostgreSQL is downloaded", "took", time.Since(start).Round(time.Millisecond))
	return inspect(ctx, bin)
}

// fetchDir is where downloaded programs are kept. Those of root must lie where an
// unprivileged user may read them.
func fetchDir(asked string) (string, error) {
	switch {
	case asked != "":
		return filepath.Abs(asked)
	case os.Geteuid() == 0:
		return "/var/cache/tasker", nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for a downloaded PostgreSQL: %w", err)
	}
	return filepath.Join(base, "tasker"), nil
}

// unpackedFolder is where download leaves the programs.
const unpackedFolder = "unpacked"

// download gets the programs and unpacks them below work. The library knows the
// archives; it would run the server as well, which we do ourselves (it cannot do
// it as root, and deletes data of another version), so it is given a data folder
// that cannot be: it fails after it has unpacked.
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
		return ctx.Err() // the library cannot be told; it ends with the program
	case err := <-done:
		if _, missing := os.Stat(filepath.Join(unpacked, "bin", "postgres")); missing != nil {
			return errors.Join(err, missing)
		}
		return nil
	}
}

// settle gives the programs their final name. What has that name now is of no
// use, or we would not be here.
func settle(unpacked, dir string) error {
	// Archives carry their own modes; the folder around them is ours.
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(unpacked, dir)
}

// alone waits until this process is the only one to hold the file: the tests of
// several packages, say, start together on a machine without PostgreSQL.
func alone(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = childproc.Unlock(f) }
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := childproc.TryLock(f)
		if err != nil {
			unlock()
			return nil, err
		}
		if got {
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
