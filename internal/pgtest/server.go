package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/childproc"
	"tasker.example/tasker/internal/devpg"
)

// urlEnv names the variable with the URL of a server to use.
const urlEnv = "TASKER_TEST_DATABASE_URL"

// testServer is the server of this test binary.
type testServer struct {
	url      string // of the database that others are made from
	external bool   // it is not ours, and outlives us
	template string // name of the migrated database
	stop     func(context.Context) error

	stopKeeping func(context.Context) error // what it has stored stays
}

// state is the one thing that tests share: starting a server for each would
// take half a second.
var state struct {
	sync.Mutex
	main   bool // Main will clean up
	server *testServer
	err    error
}

// Main runs the tests of a package, then stops the server and exits.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is [Main] for a package that has something to do itself before it exits.
func Run(m *testing.M) int {
	state.Lock()
	state.main = true
	state.Unlock()
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	return code
}

// HasMain reports whether [Main] will stop the server, or none of ours is needed.
func HasMain() bool {
	state.Lock()
	defer state.Unlock()
	return state.main || os.Getenv(urlEnv) != ""
}

func stop() error {
	state.Lock()
	defer state.Unlock()
	s := state.server
	if s == nil || s.stop == nil {
		return nil
	}
	state.server = nil
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.stop(ctx)
}

// server starts the server with the first test that asks. When that fails, it
// fails for all: waiting for the same failure again would help nobody.
func server(t testing.TB) *testServer {
	t.Helper()
	state.Lock()
	defer state.Unlock()
	if state.server == nil && state.err == nil {
		// Not the test's context: the server outlives the test.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startPatience)
		defer cancel()
		state.server, state.err = connect(ctx)
	}
	if state.err != nil {
		t.Fatalf("no PostgreSQL for the tests: %v", state.err)
	}
	return state.server
}

// connect returns a server with a template.
func connect(ctx context.Context) (*testServer, error) {
	s := &testServer{url: os.Getenv(urlEnv), external: true}
	if s.url == "" {
		if !state.main {
			return nil, errors.New("nobody would stop it: add to this package: func TestMain(m *testing.M) { pgtest.Main(m) }")
		}
		var err error
		if s, err = startPrivate(ctx, preparedHere()); err != nil {
			return nil, err
		}
	} else if !strings.Contains(s.url, "://") {
		return nil, fmt.Errorf("%s must be a URL: postgres://user:password@host:port/database", urlEnv)
	}
	if err := s.makeTemplate(ctx); err != nil {
		if s.stop != nil {
			err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
		}
		return nil, err
	}
	return s, nil
}

// startPrivate starts a server that ends with this test binary, also when that
// is killed. It has the template already where there is a prepared cluster; otherwise a
// cluster is made, and kept for other test binaries.
func startPrivate(ctx context.Context, kept prepared) (*testServer, error) {
	if s, err := startCopy(ctx, kept); err == nil {
		return s, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		// It may be damaged, be of another version of PostgreSQL or have been removed just now.
		fmt.Fprintln(os.Stderr, "pgtest: the prepared cluster is made anew:", errors.Join(err, os.RemoveAll(kept.path)))
	}
	dir, err := privateDir()
	if err != nil {
		return nil, err
	}
	s, err := startAt(ctx, dir)
	if err != nil {
		return nil, err
	}
	err = s.makeTemplate(ctx)
	if err := errors.Join(err, s.stopKeeping(context.WithoutCancel(ctx))); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := kept.keep(dir); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: each package makes a cluster of its own:", err)
	}
	return startAt(ctx, dir)
}

// startCopy starts a server on a copy of the prepared cluster.
func startCopy(ctx context.Context, kept prepared) (*testServer, error) {
	if err := kept.use(time.Now()); err != nil {
		return nil, err
	}
	dir, err := privateDir()
	if err != nil {
		return nil, err
	}
	if err := kept.copyTo(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return startAt(ctx, dir)
}

func privateDir() (string, error) {
	return os.MkdirTemp(childproc.TempDir(1<<30), "tasker-test-")
}

// startAt starts a server on a directory, which is removed with it.
func startAt(ctx context.Context, dir string) (*testServer, error) {
	pg, err := devpg.Start(ctx, devpg.Options{DataDir: dir, Fast: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &testServer{
		url:         pg.URL(),
		stopKeeping: pg.Stop,
		stop: func(ctx context.Context) error {
			return errors.Join(pg.Stop(ctx), os.RemoveAll(dir))
		},
	}, nil
}

// exec runs one statement. Each has a connection of its own: there are two for
// a test, and none may leave a goroutine behind.
func (s *testServer) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}
