// Package devpg runs a private PostgreSQL for development and tests, on the loopback interface with a
// random password. It is not meant for production.
//
// [Start] finds the programs of PostgreSQL, makes a cluster in a directory when
// there is none, and runs it on the loopback interface with a random password
// that only its owner can read; there is no socket, and other users of the machine
// can neither connect nor read its files. [Server.Stop] ends it. The data stay, and survive
// whatever ends this process: a directory left behind by a crash, in any state,
// starts again, and on Linux the server never outlives its parent.
//
// Nothing is ever deleted that could hold data. A directory has one user at a
// time; the second is told who the first is. PostgreSQL refuses to run as root,
// so root lends the cluster to an unprivileged user.
//
// It knows nothing of Tasker's tables, and is not meant for production: there,
// PostgreSQL has its own operators, backups and replicas.
package devpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// oldest is the first major version of PostgreSQL that Tasker's SQL runs on.
const oldest = 15

// owner owns the cluster, database is the one that callers use.
const (
	owner    = "tasker"
	database = "tasker"
)

// stopGrace is how long [Server.Stop] waits for a fast shutdown, which writes a
// checkpoint, before it forces an immediate one.
const stopGrace = 30 * time.Second

// Options say where the private PostgreSQL lives. The zero value is a server
// for daily use in [DefaultDataDir].
type Options struct {
	DataDir  string       // holds the cluster, its password and its log; made when missing
	BinDir   string       // holds postgres and initdb; searched for when empty
	Port     int          // 0: a free one, chosen anew at each start
	Fast     bool         // for tests: a crash of the machine may destroy the data
	Log      *slog.Logger // nil: silent
	FetchDir string       // keeps downloaded programs; a cache folder of the user when empty
	FetchURL string       // Maven repository to download from; Maven Central when empty
}

// Server is a running private PostgreSQL.
type Server struct {
	dir      *directory
	process  *process
	port     int
	password string
	log      *slog.Logger
}

// Start runs PostgreSQL on the directory and returns when it accepts
// connections and its database exists. Recovery after a crash takes as long as
// it takes: the wait is bounded by ctx alone. The server runs until
// [Server.Stop], whatever becomes of ctx.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.DataDir == "" {
		var err error
		if o.DataDir, err = DefaultDataDir(); err != nil {
			return nil, err
		}
	}
	dir, err := openDirectory(o.DataDir)
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, o, dir)
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return s, nil
}

// start does what [Start] promises on a directory that is already ours.
func start(ctx context.Context, o Options, dir *directory) (*Server, error) {
	bin, err := findPrograms(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := dir.stopLeftover(ctx, o.Log); err != nil {
		return nil, err
	}
	c := cluster{dir: dir, bin: bin, fast: o.Fast, log: o.Log}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	s := &Server{dir: dir, log: o.Log}
	if s.password, err = dir.readPassword(); err != nil {
		return nil, err
	}
	if s.process, s.port, err = c.run(ctx, o.Port); err != nil {
		return nil, err
	}
	if err := createDatabase(ctx, s.url("postgres")+requireScram); err != nil {
		return nil, errors.Join(err, s.process.stop(context.WithoutCancel(ctx), stopGrace))
	}
	o.Log.InfoContext(ctx, "private PostgreSQL is ready",
		"dir", dir.path, "port", s.port, "version", bin.version, "pid", s.process.PID())
	return s, nil
}

// RunningURL is the address of the database that runs on a data directory, with
// its password; "" means [DefaultDataDir].
func RunningURL(dataDir string) (string, error) {
	if dataDir == "" {
		var err error
		if dataDir, err = DefaultDataDir(); err != nil {
			return "", err
		}
	}
	root, err := os.OpenRoot(dataDir)
	if err != nil {
		return "", fmt.Errorf("no private PostgreSQL has its data in %s: %w", dataDir, err)
	}
	defer func() { _ = root.Close() }()
	d := &directory{path: dataDir, root: root}
	m, err := d.postmaster()
	if err != nil || !m.ready || m.port == 0 || !alive(m.pid) {
		return "", fmt.Errorf("no private PostgreSQL runs on %s: start it with tasker dev", dataDir)
	}
	s := &Server{port: m.port}
	if s.password, err = d.readPassword(); err != nil {
		return "", err
	}
	return s.URL(), nil
}

// URL is the address of the database, with its password.
func (s *Server) URL() string { return s.url(database) }

// StrictURL is [Server.URL] for our own connections: they prove that they know the
// password, and refuse a server that asks for the password itself.
func (s *Server) StrictURL() string { return s.URL() + requireScram }

func (s *Server) url(database string) string {
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", owner, s.password, s.port, database)
}

// Done is closed when PostgreSQL has ended, be it by [Server.Stop] or by itself.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Stop ends the server: open transactions are rolled back, what is committed is
// on disk. When ctx ends first, or the server does not obey, it is made to stop
// at once, which costs the next start a recovery but no data. Stop returns
// after the server has ended and has let go of its directory; it is safe to
// repeat. An error says that the server had to be forced, or that it had ended
// by itself.
func (s *Server) Stop(ctx context.Context) error {
	err := s.process.stop(ctx, stopGrace)
	return errors.Join(err, s.dir.close())
}
