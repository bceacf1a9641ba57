// Package mqtest runs a real RabbitMQ for tests.
//
// [URL] is the broker that all tests of a package share; it starts with the
// first test that asks and ends with the test binary. A package that uses it has
// a TestMain that calls [Main]:
//
//	func TestMain(m *testing.M) { mqtest.Main(m) }
//
// or, when it needs PostgreSQL as well:
//
//	func TestMain(m *testing.M) { os.Exit(mqtest.Run(func() int { return pgtest.Run(m) })) }
//
// If TASKER_TEST_AMQP_URL names a broker, that one is shared instead. Tests tell
// what is theirs by names from [Name].
//
// A test of an outage has a broker of its own, from [Start], to be killed and
// started again, or a [Proxy] in front of one, to be cut and frozen.
//
// Brokers listen on the loopback interface only, keep everything in a private
// folder, and do not outlive the test binary, even when it is killed. Where
// RabbitMQ is not installed, tests are skipped and counted, see package testtool.
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

// urlEnv names the variable with the URL of a broker to share.
const urlEnv = "TASKER_TEST_AMQP_URL"

// patience is how long a broker may take to start or to stop on a machine that
// has much else to do.
const patience = 15 * time.Minute

// shared is the broker that the tests of this binary share: starting one takes
// some seconds.
var shared struct {
	sync.Mutex
	main bool // Run will stop it
	url  string
	node *node // nil: it is not ours
	err  error
}

// Main runs the tests of a package, then stops the shared broker and exits.
func Main(m *testing.M) { os.Exit(Run(m.Run)) }

// Run is [Main] for a package that has something else around its tests.
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

// URL returns the address of the shared broker, and starts it if this is the
// first test that asks. When that fails, it fails for all.
func URL(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.url == "" && shared.err == nil {
		shared.url, shared.err = share(t.Context())
	}
	if shared.err != nil {
		unavailable(t, shared.err)
	}
	return shared.url
}

// unavailable skips a test where RabbitMQ is not installed, and fails it where
// RabbitMQ does not start.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errNotInstalled) {
		testtool.Missing(t, "RabbitMQ", fmt.Sprintf("install the package rabbitmq-server, or set %s to the URL of a broker: amqp://user:password@host:port/", urlEnv))
	}
	t.Fatalf("RabbitMQ does not start: %v", err)
}

func share(ctx context.Context) (string, error) {
	if url := os.Getenv(urlEnv); url != "" {
		return url, nil
	}
	if !shared.main {
		return "", errors.New("nobody would stop it: add to this package: func TestMain(m *testing.M) { mqtest.Main(m) }")
	}
	// Not bounded by the test: the broker outlives it.
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

// Name returns a name for things on the broker that no other test uses, made
// from the name of the test.
func Name(t testing.TB) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "_"), "_")
	return fmt.Sprintf("t_%.60s_%s", name, strings.ToLower(rand.Text()[:10]))
}

// Broker is a RabbitMQ that belongs to one test.
type Broker struct {
	URL string // the same over all restarts
	n   *node
}

// Start starts a broker, always a private one, and stops it when the test has
// ended. It takes some seconds.
func Start(t testing.TB) *Broker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := newNode(ctx)
	if err != nil {
		unavailable(t, err)
	}
	t.Cleanup(func() {
		// The context of the test has ended by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := n.close(ctx); err != nil {
			t.Errorf("end the test's RabbitMQ: %v", err)
		}
	})
	return &Broker{URL: n.url(), n: n}
}

// Kill ends the broker at once, as a crash does, and returns when it is gone.
func (b *Broker) Kill(t testing.TB) {
	t.Helper()
	if err := b.n.kill(); err != nil {
		t.Fatalf("kill the test's RabbitMQ: %v", err)
	}
}

// Stop ends the broker in order.
func (b *Broker) Stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.n.stop(ctx); err != nil {
		t.Fatalf("stop the test's RabbitMQ: %v", err)
	}
}

// Restart starts the broker again after Kill or Stop, on the same port with the
// same data.
func (b *Broker) Restart(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.n.start(ctx); err != nil {
		t.Fatalf("start the test's RabbitMQ again: %v", err)
	}
}

// Shell runs a command line as an operator of the broker would, with
// rabbitmqctl on the PATH, and returns what it printed. It takes some seconds.
func (b *Broker) Shell(t testing.TB, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := b.n.shell(ctx, line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}
