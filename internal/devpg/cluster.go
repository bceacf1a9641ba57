package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/childproc"
)

// portAttempts limits how many free ports are tried. Another program may use a port before
// PostgreSQL does.
const portAttempts = 5

// cluster is a PostgreSQL data directory with matching programs.
type cluster struct {
	dir     *directory
	bin     programs
	account childproc.Account
	fast    bool
	log     *slog.Logger
}

// prepare creates the cluster if necessary, checks its version and restricts access to it.
func (c *cluster) prepare(ctx context.Context) (err error) {
	if c.account, err = chooseAccount(c.dir.dataPath()); err != nil {
		return err
	}
	if err := checkAccess(c.account, c.dir.path); err != nil {
		return err
	}
	if err := checkAccess(c.account, c.bin.dir); err != nil {
		return err
	}
	version, err := c.dir.root.ReadFile(dataFolder + "/PG_VERSION")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := c.create(ctx); err != nil {
			return err
		}
		return c.secureAccess(ctx)
	case err != nil:
		return fmt.Errorf("read the version of the cluster: %w", err)
	}
	if v := strings.TrimSpace(string(version)); v != strconv.Itoa(c.bin.major) {
		return fmt.Errorf("the data in %s was created by PostgreSQL %s, but the programs in %s are version %d: "+
			"set the directory of version %s with %s, upgrade the data with pg_upgrade, or choose another data "+
			"directory; "+
			"nothing was changed", c.dir.dataPath(), v, c.bin.dir, c.bin.major, v, binEnv)
	}
	return c.secureAccess(ctx)
}

// create creates a cluster. It renames the folder when it is complete, so that an interrupted
// creation is repeated.
func (c *cluster) create(ctx context.Context) error {
	if _, err := c.dir.root.Lstat(dataFolder); err == nil {
		return fmt.Errorf("%s is not a PostgreSQL cluster (PG_VERSION is missing): move it, or choose another "+
			"data directory; "+
			"nothing was changed", c.dir.dataPath())
	}
	if err := c.dir.root.RemoveAll(newFolder); err != nil {
		return fmt.Errorf("remove the remains of an interrupted start: %w", err)
	}
	if err := c.dir.root.Mkdir(newFolder, 0o700); err != nil {
		return err
	}
	if c.account.IsOtherUser() {
		if err := c.dir.root.Lchown(newFolder, c.account.UID, c.account.GID); err != nil {
			return err
		}
	}
	if err := c.dir.newPassword(c.account); err != nil {
		return fmt.Errorf("write a password: %w", err)
	}
	if err := c.runInitdb(ctx); err != nil {
		return err
	}
	return c.dir.root.Rename(newFolder, dataFolder)
}

func (c *cluster) runInitdb(ctx context.Context) error {
	args := []string{
		"--pgdata", filepath.Join(c.dir.path, newFolder),
		"--username", owner, "--pwfile", filepath.Join(c.dir.path, passwordFile), "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C", "--no-instructions",
	}
	if c.fast {
		args = append(args, "--no-sync")
	}
	out, err := c.dir.createLog()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(c.bin.dir, "initdb"), args...) //nolint:noctx // process.wait ends it with ctx
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir.path, out, out
	p, err := startProcess(cmd, c.account, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("start initdb: %w", err)
	}
	if err := p.wait(ctx); err != nil {
		return fmt.Errorf("create a cluster in %s: initdb: %w\n%s", c.dir.path, err, c.dir.readLogTail())
	}
	return nil
}

// run starts the server on port, or on a free one if it is 0.
func (c *cluster) run(ctx context.Context, port int) (*process, int, error) {
	for attempt := 1; ; attempt++ {
		at := port
		if at == 0 {
			ports, err := childproc.FreePorts(1)
			if err != nil {
				return nil, 0, fmt.Errorf("find a free port: %w", err)
			}
			at = ports[0]
		}
		p, err := c.runOnPort(ctx, at)
		if err == nil {
			return p, at, nil
		}
		var ended *startError
		if !errors.As(err, &ended) {
			return nil, 0, err
		}
		switch {
		case !ended.contains("Address already in use"):
		case port != 0:
			return nil, 0, fmt.Errorf("port %d is in use by another program: choose another port, or 0 for a free "+
				"one: %w", port, err)
		case attempt < portAttempts:
			c.log.InfoContext(ctx, "port was taken before PostgreSQL could listen", "port", at)
			continue
		}
		return nil, 0, err
	}
}

// runOnPort starts the server on port and waits until it accepts connections.
func (c *cluster) runOnPort(ctx context.Context, port int) (*process, error) {
	out, err := c.dir.createLog()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(c.bin.dir, "postgres"), c.buildArguments(port)...) //nolint:noctx // it outlives ctx; process.stop ends it
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir.path, out, out
	p, err := startProcess(cmd, c.account, fastShutdown)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		// Do not connect: another server may use the port.
		if m, err := c.dir.readPostmaster(); err == nil && m.pid == p.PID() && m.ready {
			return p, nil
		}
		select {
		case <-p.Done():
			return nil, &startError{dir: c.dir, err: p.Err(), log: c.dir.readLogTail()}
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("PostgreSQL in %s was not ready in time: %w", c.dir.path, ctx.Err()),
				p.stop(context.WithoutCancel(ctx), stopGrace))
		case <-tick.C:
		}
	}
}

// buildArguments returns the settings of the server. It listens on loopback only, because a socket
// needs a folder that both PostgreSQL and the current user can access.
func (c *cluster) buildArguments(port int) []string {
	settings := []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "unix_socket_directories=",
		"hba_file=" + filepath.Join(c.dir.path, rulesFile), "password_encryption=scram-sha-256",
		"timezone=UTC", "log_timezone=UTC", "logging_collector=off", "log_destination=stderr",
	}
	if c.fast {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off",
			"max_connections=300", "jit=off", "wal_level=minimal", "max_wal_senders=0")
	}
	args := []string{"-D", c.dir.dataPath()}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

// startError is returned if the server ended before it was ready.
type startError struct {
	dir *directory
	err error
	log string
}

func (e *startError) Error() string {
	return fmt.Sprintf("PostgreSQL exited during startup in %s: %v; the end of its "+
		"log:\n%s", e.dir.path, exitReason(e.err), e.log)
}

func (e *startError) Unwrap() error { return e.err }

func (e *startError) contains(words string) bool { return strings.Contains(e.log, words) }

// createDatabase creates the database if it is missing.
func createDatabase(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the new server: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", database).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+database)
	}
	if err != nil {
		return fmt.Errorf("create database %s: %w", database, err)
	}
	return nil
}
