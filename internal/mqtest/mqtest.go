// Package mqtest runs a real RabbitMQ for tests. [URL] returns the broker that all tests of a
// package share. The first test starts it, and the test binary stops it. A package that uses it
// needs a TestMain that calls [Main]:
//
//	func TestMain(m *testing.M) { mqtest.Main(m) }
//
// or, with PostgreSQL:
//
//	func TestMain(m *testing.M) { os.Exit(mqtest.Run(func() int { return pgtest.Run(m) })) }
//
// If TASKER_TEST_AMQP_URL names a broker, that one is used. Tests use names from [Name] for their
// objects.
//
// A test of an outage uses its own broker from [Start], which it can kill and restart, or a
// [Proxy], which it can cut and freeze.
//
// Brokers listen on the loopback interface only, store everything in a private folder, and end with
// the test binary, even if that is killed. Without RabbitMQ, tests are skipped and counted, see
// package testtool. RabbitMQ is not installed, tests are skipped and counted, see package testtool.
package mqtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing" //nolint:depguard // this package is a test's tool
	"time"

	"tasker.example/tasker/internal/testtool"
)

// urlEnv is the environment variable with the URL of an external broker.
const urlEnv = "TASKER_TEST_AMQP_URL"

// patience is the timeout for starting or stopping a broker. It suffices for a busy machine.
const patience = 15 * time.Minute

// shared is the broker that all tests share, because starting one takes seconds.
var shared struct {
	sync.Mutex
	main bool // Run will stop it
	url  string
	node *node // nil for an external broker
	err  error
}

// Main runs the tests of a package, then stops the shared broker and exits.
func Main(m *testing.M) { os.Exit(Run(m.Run)) }

// Run is like [Main] for a package with further setup: it returns the exit code.
func Run(tests func() int) int {
	shared.Lock()
	shared.main = true
	shared.Unlock()
	code := tests()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "mqtest:", err)
		code = max(code, 1)
	}
	return code
}

func stopShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := shared.node.close(ctx)
	shared.node, shared.url = nil, ""
	return err
}

// URL returns the URL of the shared broker and starts it if necessary. After a failed start, all
// tests fail.
func URL(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.url == "" && shared.err == nil {
		shared.url, shared.err = startShared(t.Context())
	}
	if shared.err != nil {
		skipUnavailable(t, shared.err)
	}
	return shared.url
}

// skipUnavailable skips the test if err means that RabbitMQ is not installed. Otherwise it fails
// the test.
func skipUnavailable(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errNotInstalled) {
		testtool.Missing(t, "RabbitMQ", fmt.Sprintf(
			"install the package rabbitmq-server, or set %s to the URL of a broker: amqp://user:password@host:port/", urlEnv))
	}
	t.Fatalf("RabbitMQ does not start: %v", err)
}

func startShared(ctx context.Context) (string, error) {
	if url := os.Getenv(urlEnv); url != "" {
		return url, nil
	}
	if !shared.main {
		return "", errors.New("nobody would stop it: add to this package: func TestMain(m *testing.M) { mqtest.Main(m) }")
	}
	// The broker outlives the test.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	n, err := newNode(ctx)
	if err != nil {
		return "", err
	}
	shared.node = n
	return n.url(), nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Name returns a unique name for objects on the broker that contains the name of the test.
func Name(t testing.TB) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "_"), "_")
	return fmt.Sprintf("t_%.60s_%s", name, strings.ToLower(rand.Text()[:10]))
}

// Broker is a private RabbitMQ of one test.
type Broker struct {
	URL string // does not change on restarts
	n   *node
}

// Start starts a private broker and stops it after the test. It takes some seconds.
func Start(t testing.TB) *Broker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := newNode(ctx)
	if err != nil {
		skipUnavailable(t, err)
	}
	t.Cleanup(func() {
		// The context of the test has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := n.close(ctx); err != nil {
			t.Errorf("end the test's RabbitMQ: %v", err)
		}
	})
	return &Broker{URL: n.url(), n: n}
}

// Kill kills the broker and returns when it has ended.
func (b *Broker) Kill(t testing.TB) {
	t.Helper()
	if err := b.n.kill(); err != nil {
		t.Fatalf("kill the test's RabbitMQ: %v", err)
	}
}

// Stop shuts the broker down.
func (b *Broker) Stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.n.stop(ctx); err != nil {
		t.Fatalf("stop the test's RabbitMQ: %v", err)
	}
}

// Restart starts the broker after Kill or Stop, with the same port and data.
func (b *Broker) Restart(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.n.start(ctx); err != nil {
		t.Fatalf("start the test's RabbitMQ again: %v", err)
	}
}

// Shell runs a command line as an operator, with rabbitmqctl on the PATH, and returns the output.
// It takes some seconds.
func (b *Broker) Shell(t testing.TB, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := b.n.runShell(ctx, line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}
