package sink

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/mqtest"
)

// rabbitAt returns a sink with an exchange of its own.
func rabbitAt(t *testing.T, url string) (s Sink, exchange string) {
	t.Helper()
	exchange = mqtest.Name(t)
	s, err := NewRabbit(RabbitOptions{URL: url, Exchange: exchange, Source: "here", Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, exchange
}

// channel opens a channel on a connection of its own.
func channel(t *testing.T, url string) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.DialConfig(url, amqp091.Config{Dial: amqp091.DefaultDial(5 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// listen binds a queue to the exchange, which the test may have to make, and
// returns what arrives there.
func listen(t *testing.T, url, exchange, key string) <-chan amqp091.Delivery {
	t.Helper()
	ch := channel(t, url)
	queue, err := ch.QueueDeclare(exchange+"."+key, true, false, false, false, nil)
	err = errors.Join(err,
		ch.ExchangeDeclare(exchange, amqp091.ExchangeTopic, true, false, false, false, nil),
		ch.QueueBind(queue.Name, key, exchange, false, nil))
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue.Name, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return deliveries
}

// bounded is a context that ends with the test, or after half a minute.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// eventually emits until that succeeds.
func eventually(t *testing.T, s Sink, e tasker.Event) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx := bounded(t); ; {
		err := s.Emit(ctx, e)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

func TestABrokerGetsTheWholeEvent(t *testing.T) {
	url := mqtest.URL(t)
	noLeaks(t)
	s, exchange := rabbitAt(t, url)
	all, some := listen(t, url, exchange, "#"), listen(t, url, exchange, "dlq.entry.*")
	e := event(5, "dlq.entry.created")
	if err := s.Emit(t.Context(), e); err != nil || s.Name() != "rabbitmq" { // the first attempt, at once
		t.Fatal(err)
	}
	want, err := CloudEvent(e, "here")
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range []<-chan amqp091.Delivery{all, some} {
		d := <-queue
		if string(d.Body) != string(want) || d.RoutingKey != "dlq.entry.created" || d.MessageId != e.UUID.String() ||
			d.Type != "tasker.dlq.entry.created" || d.ContentType != "application/cloudevents+json" || d.DeliveryMode != amqp091.Persistent {
			t.Errorf("delivery = %+v", d)
		}
	}
}

func TestNothingButTheExchangeIsMade(t *testing.T) {
	noLeaks(t)
	own := mqtest.Start(t)
	s, exchange := rabbitAt(t, own.URL)
	if err := s.Emit(t.Context(), event(1, "dlq.entry.created")); err == nil {
		t.Error("nobody has received it")
	}
	if queues := own.Shell(t, "rabbitmqctl -q list_queues name --no-table-headers"); strings.TrimSpace(queues) != "" {
		t.Errorf("queues: %s", queues)
	}
	for line := range strings.Lines(own.Shell(t, "rabbitmqctl -q list_exchanges name durable type --no-table-headers")) {
		if strings.Contains(line, "amq.") || strings.HasPrefix(line, "\t") {
			continue
		}
		if line = strings.Join(strings.Fields(line), " "); line != exchange+" true topic" {
			t.Errorf("exchange: %s", line)
		}
	}
}

func TestAnEventThatNobodyWantsIsExplained(t *testing.T) {
	url := mqtest.URL(t)
	noLeaks(t)
	s, exchange := rabbitAt(t, url)
	arrived := listen(t, url, exchange, "dlq.entry.resolved")
	events := []tasker.Event{
		event(1, "dlq.entry.resolved"), event(2, "dlq.entry.created"), event(3, "dlq.entry.resolved"),
		event(4, strings.Repeat("x", 256)), event(5, "dlq.entry.resolved"), event(6, "dlq.entry.resolved"),
	}
	events[4].Data = json.RawMessage("{")
	errs := s.(Batch).EmitAll(t.Context(), events)
	for i, refused := range []bool{false, false, false, true, true, false} {
		good := i == 0 || i == 2 || i == 5
		if (errs[i] == nil) != good || IsRefused(errs[i]) != refused {
			t.Errorf("event %d: %v, refused %v", i+1, errs[i], IsRefused(errs[i]))
		}
	}
	if text := errs[1].Error(); tasker.CodeOf(errs[1]) != tasker.Unavailable ||
		!strings.Contains(text, `no queue is bound to exchange "`+exchange+`" for key "dlq.entry.created"`) {
		t.Error(text)
	}
	for _, want := range []tasker.Event{events[0], events[2], events[5]} {
		if d := <-arrived; d.MessageId != want.UUID.String() {
			t.Errorf("%s arrived, want %s", d.MessageId, want.UUID)
		}
	}
}

func TestOrderIsKept(t *testing.T) {
	url := mqtest.URL(t)
	noLeaks(t)
	s, exchange := rabbitAt(t, url)
	arrived := listen(t, url, exchange, "#")
	events := make([]tasker.Event, 1200)
	for i := range events {
		events[i] = event(int64(i), "dlq.entry.updated")
	}
	if err := errors.Join(s.(Batch).EmitAll(t.Context(), events)...); err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if d := <-arrived; d.MessageId != e.UUID.String() {
			t.Fatalf("%s arrived in place %d", d.MessageId, i)
		}
	}
	if errs := s.(Batch).EmitAll(t.Context(), nil); len(errs) != 0 {
		t.Error(errs)
	}
}

func TestABrokerThatIsAway(t *testing.T) {
	url := mqtest.URL(t)
	noLeaks(t)
	proxy := mqtest.Proxy(t, url)
	proxy.Cut()
	s, exchange := rabbitAt(t, proxy.URL)
	arrived := listen(t, url, exchange, "#")
	for range 2 { // from the beginning, and in the middle
		err := s.Emit(t.Context(), event(1, "dlq.entry.created"))
		if tasker.CodeOf(err) != tasker.Unavailable || IsRefused(err) || strings.Contains(err.Error(), "guest") {
			t.Errorf("away: %v", err)
		}
		proxy.Restore(t)
		eventually(t, s, event(1, "dlq.entry.created"))
		<-arrived
		proxy.Cut()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Emit(t.Context(), event(1, "dlq.entry.created")); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("after its end: %v", err)
	}
}

func TestABrokerThatStandsStill(t *testing.T) {
	url := mqtest.URL(t)
	noLeaks(t)
	proxy := mqtest.Proxy(t, url)
	s, exchange := rabbitAt(t, proxy.URL)
	listen(t, url, exchange, "#")
	eventually(t, s, event(1, "dlq.entry.created"))
	proxy.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for i, err := range s.(Batch).EmitAll(ctx, []tasker.Event{event(2, "dlq.entry.created"), event(3, "dlq.entry.created")}) {
		if tasker.CodeOf(err) != tasker.Unavailable || IsRefused(err) {
			t.Errorf("event %d: %v", i, err)
		}
	}
	proxy.Thaw()
	eventually(t, s, event(2, "dlq.entry.created"))
}

func TestABrokerThatIsKilled(t *testing.T) {
	noLeaks(t)
	broker := mqtest.Start(t)
	s, exchange := rabbitAt(t, broker.URL)
	queue := listen(t, broker.URL, exchange, "#")
	eventually(t, s, event(1, "dlq.entry.created"))
	<-queue
	broker.Kill(t)
	if err := s.Emit(bounded(t), event(2, "dlq.entry.created")); err == nil || IsRefused(err) {
		t.Error(err)
	}
	broker.Restart(t)
	queue = listen(t, broker.URL, exchange, "#") // the binding was too new to be on the broker's disk for certain
	eventually(t, s, event(2, "dlq.entry.created"))
	<-queue
}

func TestAnExchangeOfAnotherKind(t *testing.T) {
	url := mqtest.URL(t)
	noLeaks(t)
	name := mqtest.Name(t)
	if err := channel(t, url).ExchangeDeclare(name, amqp091.ExchangeFanout, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	s, err := NewRabbit(RabbitOptions{URL: url, Exchange: name})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Emit(t.Context(), event(1, "dlq.entry.created")); IsRefused(err) ||
		tasker.CodeOf(err) != tasker.Conflict ||
		!strings.Contains(err.Error(), "exists with different settings") {
		t.Error(err)
	}
}

func TestAnEventThatIsTooLarge(t *testing.T) {
	noLeaks(t)
	broker := mqtest.Start(t)
	broker.Shell(t, `rabbitmqctl eval 'application:set_env(rabbit, max_message_size, 10000).'`)
	s, exchange := rabbitAt(t, broker.URL)
	arrived := listen(t, broker.URL, exchange, "#")
	large, small := event(1, "dlq.entry.created"), event(2, "dlq.entry.created")
	large.Data = json.RawMessage(`"` + strings.Repeat("x", 20_000) + `"`)
	for range 2 { // by the broker, and by what it said
		errs := s.(Batch).EmitAll(t.Context(), []tasker.Event{large, small})
		if tasker.CodeOf(errs[0]) != tasker.TooLarge || !IsRefused(errs[0]) || IsRefused(errs[1]) {
			t.Error(errs)
		}
	}
	if err := s.Emit(t.Context(), small); err != nil {
		t.Error(err)
	}
	<-arrived
}

func TestOptionsOfABroker(t *testing.T) {
	noLeaks(t)
	for _, o := range []RabbitOptions{
		{}, {URL: "http://user:geheim@host"}, {URL: "amqp://localhost", Exchange: strings.Repeat("x", 256)},
	} {
		if _, err := NewRabbit(o); tasker.CodeOf(err) != tasker.Invalid || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
