package mqtest

import (
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

func TestMain(m *testing.M) { Main(m) }

func dial(address string) (*amqp091.Connection, error) {
	return amqp091.DialConfig(address, amqp091.Config{Dial: amqp091.DefaultDial(time.Minute)})
}

func connect(t *testing.T, address string) *amqp091.Connection {
	t.Helper()
	conn, err := dial(address)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestTheSharedBrokerAnswers(t *testing.T) {
	connect(t, URL(t))
	if first, second := URL(t), URL(t); first != second {
		t.Errorf("there are two: %s and %s", first, second)
	}
}

func TestABrokerKeepsItsDataOverItsEnd(t *testing.T) {
	b := Start(t)
	ch, err := connect(t, b.URL).Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("kept", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	// In order first: what is declared only just before a crash may be lost by it.
	for _, end := range []func(testing.TB){b.Stop, b.Kill} {
		end(t)
		if conn, err := dial(b.URL); err == nil {
			_ = conn.Close()
			t.Fatal("it still answers")
		}
		b.Restart(t)
		ch, err := connect(t, b.URL).Channel()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ch.QueueDeclarePassive("kept", true, false, false, false, nil); err != nil {
			t.Errorf("after the restart: %v", err)
		}
	}
}

func TestAProxyFailsOnDemand(t *testing.T) {
	p := Proxy(t, URL(t))
	address, err := url.Parse(p.URL)
	if err != nil || address.Host == "" {
		t.Fatalf("URL %q: %v", p.URL, err)
	}
	closed := connect(t, p.URL).NotifyClose(make(chan *amqp091.Error, 1))
	p.Cut()
	if err := <-closed; err == nil {
		t.Error("a cut connection was closed in order")
	}
	if _, err := dial(p.URL); err == nil {
		t.Error("a cut proxy accepts a connection")
	}
	p.Restore(t)
	connect(t, p.URL)
	p.Freeze()
	conn, err := net.Dial("tcp", address.Host)
	if err != nil {
		t.Fatalf("a frozen proxy accepts no connection: %v", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a frozen proxy lets bytes pass: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	p.Thaw()
	if err := <-answered; err != nil {
		t.Errorf("what was held back does not pass: %v", err)
	}
	connect(t, p.URL)
}
