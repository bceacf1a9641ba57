//go:build unix

package devpg

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"tasker.example/tasker/internal/childproc"
	"tasker.example/tasker/internal/testtool"
)

// otherUser has the URL of a server, and makes this test binary another user of the machine
// who tries to get at it. It prints a line for each thing that worked.
const otherUser = "TASKER_DEVPG_TEST_OTHER_USER"

// otherUID is nobody's.
const otherUID = 64123

func TestMain(m *testing.M) {
	if url := os.Getenv(otherUser); url != "" {
		attack(os.Stdout, url, os.Args[1])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// attack tries everything that another user could, and prints what worked. The last line
// says that the server was there all the time.
func attack(w io.Writer, url, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	right, err := pgx.ParseConfig(url)
	if err != nil {
		_, _ = fmt.Fprintln(w, "error:", err)
		return
	}
	try := func(what string, change func(*pgx.ConnConfig)) {
		c := right.Copy()
		change(c)
		conn, err := pgx.ConnectConfig(ctx, c)
		if err != nil {
			return
		}
		_ = conn.Close(ctx)
		_, _ = fmt.Fprintln(w, "connected", what)
	}
	for _, user := range []string{owner, "postgres", "nobody"} {
		for _, password := range []string{"", user, "postgres", strings.ToLower(right.Password)} {
			try("by TCP as "+user+" with "+password, func(c *pgx.ConnConfig) { c.User, c.Password = user, password })
		}
		for _, at := range []string{"/tmp", "/var/run/postgresql", dir, filepath.Join(dir, dataFolder)} {
			try("by a socket in "+at, func(c *pgx.ConnConfig) { c.Host, c.User, c.Password = at, user, "" })
		}
	}
	try("for replication", func(c *pgx.ConnConfig) { c.Password, c.RuntimeParams["replication"] = "", "database" })
	for _, name := range []string{".", dataFolder} {
		if _, err := os.ReadDir(filepath.Join(dir, name)); err == nil {
			_, _ = fmt.Fprintln(w, "listed", name)
		}
	}
	for _, name := range []string{passwordFile, logFile, lockFile, postmasterFile, rulesFile, dataFolder + "/PG_VERSION"} {
		if _, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			_, _ = fmt.Fprintln(w, "read", name)
		}
	}
	try("with the password", func(*pgx.ConnConfig) {})
}

// asOtherUser runs attack as another user, and returns what worked. Only root can become
// one; an ordinary user tries what needs no rights to files.
func asOtherUser(t *testing.T, s *Server, dir string) []string {
	t.Helper()
	program := filepath.Join(folder(t), "other-user")
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	testtool.WriteProgram(t, program, self)
	cmd := exec.CommandContext(t.Context(), program, dir)
	cmd.Dir, cmd.Env = "/", []string{otherUser + "=" + s.URL()}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = childproc.Attributes(childproc.Account{Name: "other", UID: otherUID, GID: otherUID}, syscall.SIGKILL)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var worked []string
	for line := range strings.Lines(string(out)) {
		file := strings.HasPrefix(line, "read ") || strings.HasPrefix(line, "listed ")
		if line = strings.TrimSpace(line); os.Geteuid() == 0 || !file {
			worked = append(worked, line)
		}
	}
	return worked
}

// onlyWithThePassword fails if another user gets at the server in any way but with its password.
func onlyWithThePassword(t *testing.T, s *Server, dir string) {
	t.Helper()
	worked := asOtherUser(t, s, dir)
	if len(worked) == 0 || worked[len(worked)-1] != "connected with the password" {
		t.Fatalf("with the password nobody connects, so this test says nothing: %q", worked)
	}
	for _, what := range worked[:len(worked)-1] {
		t.Errorf("another user of this machine %s", what)
	}
}

// Another user of the machine can reach the port, and nothing else.
func TestAnotherUserOfTheMachineIsRefused(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := launched(t, Options{DataDir: dir})
	onlyWithThePassword(t, s, dir)
	modes := map[string]os.FileMode{".": 0o700, dataFolder: 0o700, passwordFile: 0o600, logFile: 0o600, lockFile: 0o600, rulesFile: 0o600}
	if os.Geteuid() == 0 {
		modes["."] = openToGroup // of the account that PostgreSQL runs as
	}
	hasModes(t, dir, modes)
	notShown(t, s, dir)
}

func hasModes(t *testing.T, dir string, modes map[string]os.FileMode) {
	t.Helper()
	for name, want := range modes {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", name, got, want)
		}
	}
}

// notShown fails if the password is in the log or in the list of processes.
func notShown(t *testing.T, s *Server, dir string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, logFile))
	if err != nil || bytes.Contains(log, []byte(s.password)) {
		t.Errorf("the log shows the password, or cannot be read: %v\n%s", err, log)
	}
	out, err := exec.CommandContext(t.Context(), "ps", "-e", "-ww", "-o", "command=").Output()
	if err != nil || !bytes.Contains(out, []byte(dir)) {
		t.Fatalf("the list of processes does not have the server: %v", err)
	}
	if bytes.Contains(out, []byte(s.password)) {
		t.Error("the list of processes shows the password")
	}
}

// A cluster that lets everybody on the machine in, and files that everybody can read, are
// repaired when the server starts. What was stored is still there.
func TestAClusterThatWasOpenIsClosed(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, dir string){
		"trust": func(t *testing.T, dir string) {
			replaceRules(t, dir, "local all all trust\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n")
		},
		"an included file": func(t *testing.T, dir string) {
			replaceRules(t, dir, "host all nobody 127.0.0.1/32 scram-sha-256\ninclude open.conf\n")
			inside(t, dir, dataFolder+"/open.conf", "host all all 127.0.0.1/32 trust\n")
		},
		"another file": func(t *testing.T, dir string) {
			inside(t, dir, dataFolder+"/open.conf", "host all all 127.0.0.1/32 trust\n")
			appendTo(t, filepath.Join(dir, dataFolder, "postgresql.conf"),
				"\nhba_file = 'open.conf'\nlisten_addresses = '*'\nunix_socket_directories = '/tmp'\n")
		},
		"a password that is lost": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, passwordFile)); err != nil {
				t.Fatal(err)
			}
		},
		"modes": func(t *testing.T, dir string) {
			for _, name := range []string{passwordFile, logFile, lockFile} {
				if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{".", dataFolder} {
				if err := os.Chmod(filepath.Join(dir, name), 0o711); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			s := launched(t, Options{DataDir: dir})
			execute(t, s, "CREATE TABLE kept AS SELECT 1 AS n")
			before := s.password
			stopped(t, s)
			open(t, dir)
			s = launched(t, Options{DataDir: dir})
			execute(t, s, "SELECT n FROM kept")
			onlyWithThePassword(t, s, dir)
			notShown(t, s, dir)
			hasModes(t, dir, map[string]os.FileMode{dataFolder: 0o700, passwordFile: 0o600, logFile: 0o600, lockFile: 0o600})
			if text, err := os.ReadFile(filepath.Join(dir, rulesFile)); err != nil || string(text) != rules {
				t.Errorf("pg_hba.conf has %q, %v", text, err)
			}
			// Whoever was let in as the superuser could read the password.
			if changed := s.password != before; changed != (name != "modes" && name != "another file") {
				t.Errorf("the password was changed: %v", changed)
			}
		})
	}
}

func replaceRules(t *testing.T, dir, text string) {
	t.Helper()
	name := filepath.Join(dir, rulesFile)
	if _, err := os.Stat(name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil { // it keeps its owner
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, name, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, s *Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.StrictURL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Error(err)
	}
}

// The rules that ask everybody for a password, and those that may not.
func TestRulesThatAskForPasswords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		rules: true,
		"local all all scram-sha-256\nhost all all ::1/128 md5 # trust\n": true,
		"host all all 127.0.0.1 255.255.255.255 reject\n":                 true,
		"": false, "# scram-sha-256\n": false,
		"local all all peer\n": false,
		"local all all trust":  false,
		"host all all 127.0.0.1/32 scram-sha-256\nhost all all ::1/128 trust\n": false,
		"host all all 127.0.0.1/32 ident map=scram\n":                           false,
		"include_dir other\n": false,
	} {
		if got := requiresPasswords(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// A program that has taken the port of a server that ended learns no password.
func TestAnotherProgramOnThePortLearnsNoPassword(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	learned := make(chan string, 1)
	go func() {
		defer close(learned)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		b := pgproto3.NewBackend(bufio.NewReader(conn), conn)
		if _, err := b.ReceiveStartupMessage(); err != nil {
			return
		}
		b.Send(&pgproto3.AuthenticationCleartextPassword{})
		if err := b.Flush(); err != nil || b.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
			return
		}
		if m, err := b.Receive(); err == nil {
			if p, ok := m.(*pgproto3.PasswordMessage); ok {
				learned <- p.Password
			}
		}
	}()
	s := &Server{port: l.Addr().(*net.TCPAddr).Port, password: "secret"}
	if conn, err := pgx.Connect(t.Context(), s.StrictURL()); err == nil {
		_ = conn.Close(t.Context())
		t.Error("it connected")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if password, ok := <-learned; ok {
		t.Errorf("the program on port %s learned %q", strconv.Itoa(s.port), password)
	}
}
