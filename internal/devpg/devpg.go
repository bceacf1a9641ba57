// Package devpg runs a private PostgreSQL for development and tests, on the loopback interface with a
// random password. It is not meant for production.
//
// [Start] finds PostgreSQL's programs, creates a cluster if there is none, and runs it with a
// password that only its owner can read. There is no socket, and other users of the machine can
// neither connect nor read files. [Server.Stop] stops it. The data survives crashes: a directory
// starts again from any state. On Linux the server never outlives its parent.
//
// Nothing that may contain data is ever deleted. Only one process can use a directory; others get
// an error that names it. PostgreSQL refuses to run as root, so for root the cluster belongs to an
// unprivileged user.
package devpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// oldest is the minimum major version of PostgreSQL.
const oldest = 15

// owner is the superuser that owns the cluster; database is the name of its database.
const (
	owner    = "tasker"
	database = "tasker"
)

// stopGrace is the timeout of a fast shutdown, which writes a checkpoint. An immediate shutdown
// follows.
const stopGrace = 30 * time.Second

// Options configures a private PostgreSQL. All fields are optional.
type Options struct {
	DataDir  string // for the cluster, its password and its log; default [DefaultDataDir]
	BinDir   string // with postgres and initdb; by default they are searched
	Port     int    // default a free port, which may differ at each start
	Fast     bool   // for tests: a crash of the machine may destroy the data
	Log      *slog.Logger
	FetchDir string // for downloaded programs; default the cache folder of the user
	FetchURL string // Maven repository for downloads; default Maven Central
}

// Server is a running private PostgreSQL.
type Server struct {
	dir      *directory
	process  *process
	port     int
	password string
	log      *slog.Logger
}

// Start runs PostgreSQL and returns when it accepts connections and the database exists. Crash
// recovery can take long and is limited only by ctx. The server runs until [Server.Stop], even
// after ctx has ended.
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
	s, err := startServer(ctx, o, dir)
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return s, nil
}

// startServer implements [Start] for a locked directory.
func startServer(ctx context.Context, o Options, dir *directory) (*Server, error) {
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
	if err := createDatabase(ctx, s.buildURL("postgres")+requireScram); err != nil {
		return nil, errors.Join(err, s.process.stop(context.WithoutCancel(ctx), stopGrace))
	}
	o.Log.InfoContext(ctx, "private PostgreSQL is ready",
		"dir", dir.path, "port", s.port, "version", bin.version, "pid", s.process.PID())
	return s, nil
}

// RunningURL returns the URL, with password, of the database that runs on a data directory; ""
// means [DefaultDataDir].
func RunningURL(dataDir string) (string, error) {
	if dataDir == "" {
		var err error
		if dataDir, err = DefaultDataDir(); err != nil {
			return "", err
		}
	}
	root, err := os.OpenRoot(dataDir)
	if err != nil {
		return "", fmt.Errorf("no private PostgreSQL found in %s: %w", dataDir, err)
	}
	defer func() { _ = root.Close() }()
	d := &directory{path: dataDir, root: root}
	m, err := d.readPostmaster()
	if err != nil || !m.ready || m.port == 0 || !isAlive(m.pid) {
		return "", fmt.Errorf("no private PostgreSQL is running on %s: start it with tasker dev", dataDir)
	}
	s := &Server{port: m.port}
	if s.password, err = d.readPassword(); err != nil {
		return "", err
	}
	return s.URL(), nil
}

// URL returns the URL of the database, which contains the password.
func (s *Server) URL() string { return s.buildURL(database) }

// StrictURL is like [Server.URL], for connections of this program: they refuse a server that asks
// for the password in plain text.
func (s *Server) StrictURL() string { return s.URL() + requireScram }

func (s *Server) buildURL(database string) string {
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", owner, s.password, s.port, database)
}

// Done returns a channel that is closed when PostgreSQL has ended.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Stop shuts the server down: open transactions are rolled back. If ctx ends or the shutdown takes
// too long, it forces an immediate shutdown, after which the next start needs recovery. It returns
// after the server has ended and the directory is unlocked. It can be called again. An error means
// that the server was forced or had already ended.
func (s *Server) Stop(ctx context.Context) error {
	err := s.process.stop(ctx, stopGrace)
	return errors.Join(err, s.dir.close())
}
