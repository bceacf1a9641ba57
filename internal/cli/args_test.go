package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tasker.example/tasker/internal/cli"
)

// A process that is started by the test below.
func TestMain(m *testing.M) {
	if os.Getenv("LIST_THIS_PROCESS") == "" {
		os.Exit(m.Run())
	}
	args := cli.TakeArgs()
	list, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(os.Getpid()), "cmdline"))
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stdout, "%s\n%s", strings.Join(args[1:], " "), strings.ReplaceAll(string(list), "\x00", " "))
}

func TestPasswordsAreNotInTheListOfProcesses(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("this system does not show the arguments of a process in /proc")
	}
	t.Parallel()
	const secret = "hunter2"
	args := []string{
		"serve", "--database-url", "postgres://tasker:" + secret + "@db:5432/tasker?application_name=a", "--amqp-url=amqp://a:" + secret + "%40@mq/",
		"host=db password=" + secret + " user=tasker", "host=db password='" + secret + " 2' user=tasker", "postgres://db/tasker?user=a&password=" + secret + "&sslmode=disable",
		"http://plain.example/a:b", "postgres://tasker@db/tasker",
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "LIST_THIS_PROCESS=yes")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	given, listed, _ := strings.Cut(string(out), "\n")
	if want := strings.Join(args, " "); given != want {
		t.Errorf("the program is given %q, want %q", given, want)
	}
	if strings.Contains(listed, secret) || strings.Count(listed, "xxxxxxx") != 5 {
		t.Errorf("the list of processes shows %q", listed)
	}
	for _, shown := range []string{"serve --database-url postgres://tasker:xxxxxxx@db:5432/tasker?application_name=a", "user=tasker", "&sslmode=disable", args[7], args[8]} {
		if !strings.Contains(listed, shown) {
			t.Errorf("the list of processes lacks %q: %q", shown, listed)
		}
	}
}
