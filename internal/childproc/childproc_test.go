package childproc

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell starts a shell command and returns it with the first line that it printed.
func shell(t *testing.T, script string) (*Process, string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", script)
	cmd.Stdout = w
	p, err := Start(cmd, Account{}, syscall.SIGKILL)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return p, strings.TrimSpace(line)
}

// A child of the child ignores what only asks for an end: its end is seen by the end of
// the pipe, which it has open.
func TestKillEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", `(trap '' TERM INT; echo ready; sleep 600) & wait`)
	cmd.Stdout = w
	p, err := Start(cmd, Account{}, syscall.SIGKILL)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := r.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err == nil {
		if _, err := out.ReadByte(); !os.IsTimeout(err) {
			t.Fatalf("the grandchild ended by the signal to its parent: %v", err)
		}
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := out.ReadByte(); err == nil || os.IsTimeout(err) {
		t.Errorf("the grandchild survives Kill: %v", err)
	}
}

func TestAnEndedProcess(t *testing.T) {
	t.Parallel()
	p, _ := shell(t, "echo started; exit 3")
	<-p.Done()
	if err := p.Err(); err == nil || err.Error() != "exit status 3" {
		t.Errorf("ended with %v", err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal to a process that has ended: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("kill a process that has ended: %v", err)
	}
}

func TestAMissingProgram(t *testing.T) {
	t.Parallel()
	if p, err := Start(exec.CommandContext(t.Context(), "./no-such-program"), Account{}, syscall.SIGKILL); err == nil {
		t.Errorf("it runs as %d", p.PID())
	}
}

func TestAChildIsNotRoot(t *testing.T) {
	t.Parallel()
	a, err := UnprivilegedAccount("The program", "no-such-user")
	if err != nil {
		t.Fatal(err)
	}
	if a.IsOtherUser() != (os.Geteuid() == 0) {
		t.Fatalf("account %+v for user %d", a, os.Geteuid())
	}
	cmd := exec.CommandContext(t.Context(), "id", "-u")
	cmd.Dir = "/"
	cmd.SysProcAttr = Attributes(a, syscall.SIGKILL)
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) == "0" {
		t.Errorf("runs as user %s, %v", out, err)
	}
}

func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	ports, err := FreePorts(3)
	if err != nil || len(ports) != 3 || ports[0] == ports[1] || ports[1] == ports[2] || ports[0] == ports[2] {
		t.Errorf("%v, %v", ports, err)
	}
	for _, port := range ports {
		if port < firstPort || port >= endOfPorts {
			t.Errorf("port %d may be given to a connection of any program", port)
		}
	}
}

func TestALockIsTakenOnce(t *testing.T) {
	t.Parallel()
	name := t.TempDir() + "/lock"
	var files []*os.File
	for range 2 {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:gocritic // both stay open
		files = append(files, f)
	}
	for i, want := range []bool{true, false} {
		if got, err := TryLock(files[i]); got != want || err != nil {
			t.Errorf("lock %d: %v, %v", i, got, err)
		}
	}
	// A process that is being started has all files of this one until it runs its own program.
	child, err := syscall.Dup(int(files[0].Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(child) }()
	for range 2 {
		if err := Unlock(files[0]); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := TryLock(files[1]); !got || err != nil {
		t.Errorf("after the first was given back: %v, %v", got, err)
	}
}

func TestTheTemporaryDirectoryHasRoom(t *testing.T) {
	t.Parallel()
	if got := TempDir(1 << 62); got != os.TempDir() {
		t.Errorf("with more bytes than any memory has: %s", got)
	}
}
