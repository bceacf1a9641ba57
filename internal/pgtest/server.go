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

// urlEnv is the environment variable with the URL of an external server.
const urlEnv = "TASKER_TEST_DATABASE_URL"

// testServer is the server of this test binary.
type testServer struct {
	url      string // of the maintenance database
	external bool
	template string // name of the migrated database

	stop         func(context.Context) error // stops a private server and removes its data
	stopAndStore func(context.Context) error // stops a private server without removing its data
}

// state is shared by all tests, because starting a server takes half a second.
var state struct {
	sync.Mutex
	main   bool // Main will stop the server
	server *testServer
	err    error
}

// Main runs the tests of a package, then stops the server and exits.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is like [Main] for a package with further cleanup: it returns the exit code.
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

// HasMain reports whether [Main] will stop the server, or the server is external.
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

// sharedServer returns the shared server and starts it if necessary. After a failed start, all
// tests fail.
func sharedServer(t testing.TB) *testServer {
	t.Helper()
	state.Lock()
	defer state.Unlock()
	if state.server == nil && state.err == nil {
		// The server outlives the test.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startPatience)
		defer cancel()
		state.server, state.err = connect(ctx)
	}
	if state.err != nil {
		t.Fatalf("no PostgreSQL for the tests: %v", state.err)
	}
	return state.server
}

// connect returns a server that contains the template.
func connect(ctx context.Context) (*testServer, error) {
	s := &testServer{url: os.Getenv(urlEnv), external: true}
	if s.url == "" {
		if !state.main {
			return nil, errors.New("nobody would stop it: add to this package: func TestMain(m *testing.M) { pgtest.Main(m) }")
		}
		var err error
		if s, err = startPrivate(ctx, findPreparedCluster()); err != nil {
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

// startPrivate starts a server that ends with this test binary, even if that is killed. It uses the
// prepared cluster or creates it.
func startPrivate(ctx context.Context, cluster preparedCluster) (*testServer, error) {
	if s, err := startCopy(ctx, cluster); err == nil {
		return s, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		// It may be damaged, of another PostgreSQL version, or just removed.
		fmt.Fprintln(os.Stderr, "pgtest: recreating the prepared cluster:", errors.Join(err, os.RemoveAll(cluster.path)))
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
	if err := errors.Join(err, s.stopAndStore(context.WithoutCancel(ctx))); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := cluster.store(dir); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: could not store the prepared cluster; each package creates its own:", err)
	}
	return startAt(ctx, dir)
}

// startCopy starts a server on a copy of the prepared cluster.
func startCopy(ctx context.Context, cluster preparedCluster) (*testServer, error) {
	if err := cluster.use(time.Now()); err != nil {
		return nil, err
	}
	dir, err := privateDir()
	if err != nil {
		return nil, err
	}
	if err := cluster.copyTo(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return startAt(ctx, dir)
}

func privateDir() (string, error) {
	return os.MkdirTemp(childproc.TempDir(1<<30), "tasker-test-")
}

// startAt starts a server on a directory, which its function stop removes.
func startAt(ctx context.Context, dir string) (*testServer, error) {
	pg, err := devpg.Start(ctx, devpg.Options{DataDir: dir, Fast: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &testServer{
		url:          pg.URL(),
		stopAndStore: pg.Stop,
		stop: func(ctx context.Context) error {
			return errors.Join(pg.Stop(ctx), os.RemoveAll(dir))
		},
	}, nil
}

// exec runs one statement on a new connection, so that no goroutine remains.
func (s *testServer) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}
