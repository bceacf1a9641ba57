package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tutorial runs the commands of docs/tutorials/go.md in a directory that stands for the checkout.
type tutorial struct {
	t      *testing.T
	dir    string
	url    string
	worker *process
}

var (
	tutorialFile    = regexp.MustCompile("(?s)Create the file `([^`]+)`.*?```\\w+\n(.*?)```")
	tutorialCode    = regexp.MustCompile("(?s)```.*?```")
	tutorialCommand = regexp.MustCompile(`(?m)^    (\S.*)$`)
)

func TestGoTutorial(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/tutorials/go.md")
	must(t, err)
	r := &tutorial{t: t, dir: filepath.Dir(dataDir(t))}
	files := tutorialFile.FindAllStringSubmatch(string(text), -1)
	commands := tutorialCommand.FindAllStringSubmatch(tutorialCode.ReplaceAllString(string(text), ""), -1)
	if len(files) != 3 || len(commands) != 9 {
		t.Fatalf("the tutorial has %d files and %d commands", len(files), len(commands))
	}
	for _, f := range files {
		name := filepath.Join(r.dir, f[1])
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(f[2]), 0o600))
	}
	for _, c := range commands {
		r.command(c[1])
	}
	for _, task := range tasks(t, newClient(t, r.url), "complete") {
		if task.Name == "fulfil_order" {
			return
		}
	}
	t.Error("the task is not complete")
}

// command starts a server or a worker, or runs another command to its end.
func (r *tutorial) command(line string) {
	r.t.Helper()
	env, isWorker := strings.CutSuffix(line, "go run ./first")
	switch dev, isServer := strings.CutPrefix(line, "go run ./cmd/tasker dev "); {
	case isServer:
		args := strings.Fields(strings.ReplaceAll(dev, "first/", r.dir+"/first/"))
		server := start(r.t, nil, program("tasker"), append([]string{"dev", "--listen", "127.0.0.1:0"}, args...)...)
		r.url = server.url()
		r.buildWorker()
	case isWorker:
		if r.worker != nil {
			r.worker.stop()
		}
		r.worker = start(r.t, strings.Fields(env), filepath.Join(r.dir, "worker"))
	default:
		r.shell(line)
	}
}

// buildWorker builds the worker of the tutorial for the address of this server.
func (r *tutorial) buildWorker() {
	r.t.Helper()
	name := filepath.Join(r.dir, "first/main.go")
	code, err := os.ReadFile(name)
	must(r.t, err)
	const address = "http://127.0.0.1:8080"
	if strings.Count(string(code), address) != 1 {
		r.t.Fatalf("the worker does not have the address %s", address)
	}
	must(r.t, os.WriteFile(name, []byte(strings.Replace(string(code), address, r.url, 1)), 0o600))
	r.shell("command go build -o $DIR/worker $DIR/first/main.go")
}

// shell runs a command with the programs under test. Its variables are kept for the next one.
func (r *tutorial) shell(line string) {
	r.t.Helper()
	const programs = `
go() {
	case "$1 $2" in
	"run ./cmd/tasker-ctl") "$BIN/tasker-ctl" "${@:3}" ;;
	"test ./first") command go test "$DIR"/first/*.go ;;
	*) echo "unknown command: go $*"; return 2 ;;
	esac
}
touch "$DIR/variables"; . "$DIR/variables"
`
	cmd := exec.CommandContext(r.t.Context(), "bash", "-c", programs+line+"\ncode=$?\ndeclare -p TASK >$DIR/variables 2>/dev/null\nexit $code")
	cmd.Env = append(os.Environ(), "DIR="+r.dir, "BIN="+bin, "TASKER_URL="+r.url, "TASKER_ACTOR=ann")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}
