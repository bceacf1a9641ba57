package mqtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker/internal/childproc"
)

// longestLife limits how long a broker runs if its test was killed.
const longestLife = time.Hour

// portAttempts limits how many sets of free ports are tried. Another program may use a port before
// the broker does.
const portAttempts = 3

// node is a private RabbitMQ with its folder, ports and processes.
type node struct {
	server, epmd string // programs
	account      childproc.Account
	dir          *folder
	amqpPort     int
	distPort     int
	epmdPort     int
	names        *process // epmd, which the broker would otherwise start and leave running
	broker       *process // nil while it is stopped
}

// newNode starts a broker in a new folder.
func newNode(ctx context.Context) (*node, error) {
	server, epmd, err := findPrograms()
	if err != nil {
		return nil, err
	}
	who, err := childproc.UnprivilegedAccount("RabbitMQ", "rabbitmq")
	if err != nil {
		return nil, err
	}
	var failed error
	for range portAttempts {
		n := &node{server: server, epmd: epmd, account: who}
		err := n.prepare()
		if err == nil {
			if err = n.start(ctx); err == nil {
				return n, nil
			}
		}
		failed = errors.Join(err, n.close(context.WithoutCancel(ctx)))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// installed lists possible paths of the broker's own script. The script on Debian's PATH is a
// wrapper that changes the user and uses fixed paths.
var installed = []string{
	"/usr/lib/rabbitmq/bin/rabbitmq-server",
	"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
	"/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server",
	"/usr/local/opt/rabbitmq/sbin/rabbitmq-server",
	"/opt/rabbitmq/sbin/rabbitmq-server",
}

var errNotInstalled = errors.New("RabbitMQ is not installed")

// findPrograms returns the broker's script and Erlang's name server.
func findPrograms() (server, epmd string, err error) {
	for _, pattern := range installed {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			server = found[len(found)-1]
			break
		}
	}
	if server == "" {
		server, err = exec.LookPath("rabbitmq-server")
	}
	if err != nil {
		return "", "", errNotInstalled
	}
	if epmd, err = exec.LookPath("epmd"); err != nil {
		return "", "", fmt.Errorf("RabbitMQ at %s needs epmd, which is part of Erlang, on the PATH: %w", server, err)
	}
	return server, epmd, nil
}

// prepare creates the folder with the configuration.
func (n *node) prepare() (err error) {
	if n.dir, err = newFolder(n.account); err != nil {
		return err
	}
	ports, err := childproc.FreePorts(3)
	if err != nil {
		return err
	}
	n.amqpPort, n.distPort, n.epmdPort = ports[0], ports[1], ports[2]
	for name, text := range map[string]string{
		"enabled_plugins": "[].\n",
		"rabbitmq.conf": fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%d\n", n.amqpPort) +
			"log.console = false\n" +
			"vm_memory_high_watermark.absolute = 512MB\n" +
			"disk_free_limit.absolute = 50MB\n" +
			"raft.wal_max_size_bytes = 33554432\n",
	} {
		if err := n.dir.write(name, text); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) url() string {
	return fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", n.amqpPort)
}

// buildEnvironment returns the complete environment of the broker.
func (n *node) buildEnvironment() []string {
	in := func(name string) string { return filepath.Join(n.dir.path, name) }
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"LC_ALL=C.UTF-8",
		"HOME=" + n.dir.path,
		"detached=1", // makes the script exec the broker
		"RABBITMQ_MNESIA_BASE=" + in("data"),
		"RABBITMQ_LOG_BASE=" + in("log"),
		"RABBITMQ_CONFIG_FILE=" + in("rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		"RABBITMQ_CONF_ENV_FILE=" + os.DevNull,
		fmt.Sprintf("RABBITMQ_NODENAME=tasker%d@localhost", n.amqpPort),
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", n.distPort),
		fmt.Sprintf("ERL_EPMD_PORT=%d", n.epmdPort),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_SERVER_START_ARGS=-kernel inet_dist_use_interface {127,0,0,1}", // default: all interfaces
	}
}

// start starts the broker and returns when it accepts connections.
func (n *node) start(ctx context.Context) (err error) {
	if n.broker != nil {
		return errors.New("it runs already")
	}
	if n.names == nil {
		if n.names, err = n.run(n.epmd, "-port", strconv.Itoa(n.epmdPort), "-address", "127.0.0.1"); err != nil {
			return err
		}
	}
	command := []string{n.server}
	if timeout, err := exec.LookPath("timeout"); err == nil {
		command = []string{timeout, "--kill-after=10", strconv.Itoa(int(longestLife.Seconds())), n.server}
	}
	if n.broker, err = n.run(command[0], command[1:]...); err != nil {
		return err
	}
	if err := n.wait(ctx); err != nil {
		return errors.Join(fmt.Errorf("RabbitMQ does not start: %w; its log ends with:\n%s", err, n.lastLines()), n.kill())
	}
	return nil
}

// run starts a program of the node with output to the folder.
func (n *node) run(program string, args ...string) (*process, error) {
	out, err := n.dir.append("out.log")
	if err != nil {
		return nil, err
	}
	defer out.Close()                     // the process has its own descriptor
	cmd := exec.Command(program, args...) //nolint:noctx // outlives all contexts
	cmd.Dir, cmd.Env = n.dir.path, n.buildEnvironment()
	cmd.Stdout, cmd.Stderr = out, out
	return startProcess(cmd, n.account)
}

// runShell runs a command line with the tools of the broker.
func (n *node) runShell(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-ec", line)
	cmd.Dir = n.dir.path
	cmd.Env = append(n.buildEnvironment(), "PATH="+filepath.Dir(n.server)+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.SysProcAttr = childproc.Attributes(n.account, syscall.SIGTERM)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// wait waits until the broker accepts connections.
func (n *node) wait(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := amqp091.DialConfig(n.url(), amqp091.Config{Dial: amqp091.DefaultDial(5 * time.Second)})
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-n.broker.Done():
			return errors.New("it has ended")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// lastLines returns the last lines of all logs.
func (n *node) lastLines() string {
	var all strings.Builder
	logs, _ := filepath.Glob(filepath.Join(n.dir.path, "log", "*.log"))
	for _, name := range append(logs, filepath.Join(n.dir.path, "out.log")) {
		text, _ := os.ReadFile(name)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		all.WriteString(strings.Join(lines[max(0, len(lines)-15):], "\n") + "\n")
	}
	return all.String()
}

// stop shuts the broker down. It kills the broker if ctx ends first.
func (n *node) stop(ctx context.Context) error {
	if n.broker == nil {
		return nil
	}
	p := n.broker
	n.broker = nil
	return p.stop(ctx)
}

// kill kills the broker.
func (n *node) kill() error {
	if n.broker == nil {
		return nil
	}
	p := n.broker
	n.broker = nil
	return p.Kill()
}

// close stops everything and removes the folder.
func (n *node) close(ctx context.Context) error {
	err := n.stop(ctx)
	if n.names != nil {
		err = errors.Join(err, n.names.Kill())
		n.names = nil
	}
	if n.dir != nil {
		err = errors.Join(err, n.dir.remove())
	}
	return err
}
