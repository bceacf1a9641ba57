package app_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/childproc"
	"tasker.example/tasker/internal/httpclient"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/testtool"
)

// startPgBouncer starts a PgBouncer in front of the database and returns the URL that
// leads through it.
func startPgBouncer(t *testing.T, database, settings string) string {
	t.Helper()
	program := testtool.Find(t, "pgbouncer", "install the package pgbouncer")
	account, err := childproc.UnprivilegedAccount("PgBouncer", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	target, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	_ = free.Close()
	dir, err := os.MkdirTemp("", "pgbouncer") //nolint:usetesting // the account of PgBouncer may not read t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
%s = host=%s port=%d user=%s password='%s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
auth_type = any
unix_socket_dir =
default_pool_size = 40
%s
`, target.Database, target.Host, target.Port, target.User, target.Password, address.Port, settings)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file} {
		if err := os.Chown(path, account.UID, account.GID); account.IsOtherUser() && err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, file)
	log := newWords()
	cmd.Stderr = log
	p, err := childproc.Start(cmd, account, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		if t.Failed() {
			t.Logf("PgBouncer wrote:\n%s", log)
		}
	})
	log.wait(t, "process up", p.Done())
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = address.String()
	u.RawQuery = "sslmode=disable"
	return u.String()
}

const ignoredParameters = "ignore_startup_parameters = search_path,statement_timeout,lock_timeout,jit,extra_float_digits\n"

func TestServersWorkThroughAPoolerInSessionMode(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{"as it comes": "", "parameters ignored": ignoredParameters} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, options(startPgBouncer(t, pgtest.New(t).AdminURL, settings+"pool_mode = session")))
			c, err := client.New(s.url)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.RegisterTemplate(t.Context(), []byte("namespace_name: n\nname: one\nversion: 1.0.0\nsteps: [{name: only, handler: {callable: run}}]\n"), "application/yaml"); err != nil {
				t.Fatal(err)
			}
			for range 30 {
				if _, err := c.CreateTask(t.Context(), apiv1.CreateTask{Namespace: "n", Name: "one"}); err != nil {
					t.Fatal(err)
				}
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/health/ready", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := httpclient.New(nil).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("ready answers %s", answer.Status)
			}
		})
	}
}

func TestServersRefuseAPoolerThatSharesSessions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, settings, query, want string }{
		{"transaction mode", "pool_mode = transaction", "", "set pool_mode = session"},
		{"transaction mode, parameters ignored", ignoredParameters + "pool_mode = transaction", "", "set pool_mode = session"},
		{"statement mode", "pool_mode = statement", "", "set pool_mode = session"},
		{"unknown parameter in the URL", "pool_mode = session", "&jit=off", "remove jit from the database URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			err := launch(t, options(startPgBouncer(t, pgtest.New(t).AdminURL, tt.settings)+tt.query)).wait()
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "PgBouncer") {
				t.Errorf("error %v, want %q and PgBouncer", err, tt.want)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("the server ended after %s, want at once", took)
			}
		})
	}
}

// The pool of a program that embeds the engine can lead through a pooler, too.
func TestSharedPoolsNeedAPoolerInSessionMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"session": "", "transaction": "set pool_mode = session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			address := startPgBouncer(t, pgtest.New(t).AdminURL, ignoredParameters+"pool_mode = "+mode)
			pool, err := pgxpool.New(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			db, err := postgres.Share(t.Context(), pool, postgres.Options{})
			if err == nil {
				err = db.CheckWritable(t.Context())
			}
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}
