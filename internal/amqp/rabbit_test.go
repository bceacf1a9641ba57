package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/mqtest"
)

func TestMain(m *testing.M) { mqtest.Main(m) }

// noLeaks fails the test if a goroutine outlives it.
func noLeaks(t *testing.T) {
	t.Helper()
	mqtest.URL(t) // it has goroutines of its own
	already := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, already) })
}

// options are those of a broker that shares nothing with other tests.
func options(t *testing.T, url string) Options {
	name := mqtest.Name(t)
	return Options{
		URL: url, Name: name,
		Exchange:   name + ".executions",
		DeadLetter: DeadLetter{Enabled: true, Exchange: name + ".dlx"},
		Heartbeat:  10 * time.Second, // a loaded machine is silent for a while
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// start runs a broker for the life of the test.
func start(t *testing.T, o Options) *Broker {
	t.Helper()
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	background(t, b.Run)
	wait(t, b)
	return b
}

// background runs f until stop is called or the test ends.
func background(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func wait(t *testing.T, b *Broker) {
	t.Helper()
	if err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// consume collects deliveries until stop is called or the test ends.
func consume(t *testing.T, b *Broker, o ConsumeOptions) (deliveries <-chan Delivery, stop func()) {
	t.Helper()
	all := make(chan Delivery, 100_000)
	stop = background(t, func(ctx context.Context) error {
		return b.Consume(ctx, o, func(_ context.Context, d Delivery) { all <- d })
	})
	return all, stop
}

// deliveryPatience is how long a test waits for a message that must come.
const deliveryPatience = time.Minute

// receive returns the next delivery.
func receive(t *testing.T, deliveries <-chan Delivery) Delivery {
	t.Helper()
	select {
	case d := <-deliveries:
		return d
	case <-time.After(deliveryPatience):
		t.Fatalf("no message came in %s", deliveryPatience)
		return Delivery{}
	}
}

func messages(namespace string, count int) []Message {
	list := make([]Message, count)
	for i := range list {
		list[i] = Message{ID: fmt.Sprintf("%s-%d", namespace, i), Namespace: namespace, Type: "dispatch", Body: []byte(`{"n":1}`)}
	}
	return list
}

// publish publishes and fails unless all are confirmed. It returns how many were sent again, and may be there twice.
func publish(t *testing.T, b *Broker, list []Message) (again int) {
	t.Helper()
	again = len(publishAll(t, b, list))
	if t.Failed() {
		t.FailNow()
	}
	return again
}

func ack(t *testing.T, d Delivery) {
	t.Helper()
	if err := d.Ack(); err != nil {
		t.Fatalf("ack: %v", err)
	}
}

// eventually waits until the queue has as many messages ready, or some of those that were sent again as well.
func eventually(t *testing.T, b *Broker, queue string, want, again int) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, _, err := b.Depth(t.Context(), queue)
		if err == nil && want <= got && got <= want+again {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("queue %s has %d messages, want %d: %v", queue, got, want, err)
		}
	}
}

// channel opens a channel on a connection of its own.
func channel(t *testing.T, url string) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(url)
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

func TestNewHidesThePassword(t *testing.T) {
	for _, url := range []string{
		"", "http://user:geheim@host", "amqp://user:geheim@host:port", "amqp://user:ge/heim@host", "amqp://user:geheim @host",
	} {
		_, err := New(Options{URL: url})
		if tasker.CodeOf(err) != tasker.Invalid || strings.Contains(err.Error(), "heim") {
			t.Errorf("New(%q) = %v", url, err)
		}
	}
	if _, err := New(Options{URL: "amqp://localhost", QueueTTL: -1}); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("a negative TTL: %v", err)
	}
}

// The commands of RabbitMQ are about the virtual host / unless they name another.
func TestRemediesNameTheVirtualHost(t *testing.T) {
	for vhost, flag := range map[string]string{"": "", "my%20shop": " --vhost 'my shop'"} {
		b, err := New(Options{URL: "amqp://localhost/" + vhost})
		if err != nil {
			t.Fatal(err)
		}
		s := &session{b: b, declared: map[string]*declaration{}}
		refused := b.explainRejection(b.newWorkQueue("n"), &amqp091.Error{Code: amqp091.AccessRefused})
		silent := s.recordFailure(t.Context(), "n")
		routed := (&routedBatch{s, []Routed{{}}}).timeoutError(t.Context(), 0)
		for err, command := range map[error]string{
			refused: "rabbitmqctl set_permissions USER '.*' '.*' '.*'" + flag,
			silent:  "rabbitmq-queues quorum_status 'worker.n.executions'" + flag + " shows",
			routed:  "rabbitmq-queues quorum_status QUEUE" + flag,
		} {
			if !strings.Contains(err.Error(), command) || strings.Contains(err.Error(), "vhost") != (flag != "") {
				t.Errorf("on %q: %v", vhost, err)
			}
		}
	}
}

func TestWithoutABroker(t *testing.T) {
	noLeaks(t)
	b, err := New(Options{URL: "amqp://user:geheim@127.0.0.1:1/"})
	if err != nil {
		t.Fatal(err)
	}
	background(t, b.Run)
	confirmed, err := b.Publish(t.Context(), messages("n", 2))
	if tasker.CodeOf(err) != tasker.Unavailable || !slices.Equal(confirmed, []bool{false, false}) {
		t.Errorf("publish = %v, %v", confirmed, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = b.Wait(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || b.Ready() || strings.Contains(err.Error(), "geheim") {
		t.Errorf("wait = %v", err)
	}
	if err := b.LastError(); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("last error = %v", err)
	}
	if err := b.Consume(ctx, ConsumeOptions{Queue: "q"}, nil); err != nil {
		t.Errorf("consume = %v", err)
	}
}

func TestAWrongPassword(t *testing.T) {
	noLeaks(t)
	o := options(t, strings.Replace(mqtest.URL(t), "guest:guest@", "guest:geheim@", 1))
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	background(t, b.Run)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := b.Wait(ctx); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("wait = %v", err)
	}
}

func TestMessagesArriveWhole(t *testing.T) {
	noLeaks(t)
	b := start(t, options(t, mqtest.URL(t)))
	one, two := mqtest.Name(t), mqtest.Name(t)
	publish(t, b, []Message{
		{ID: "a", Namespace: one, Type: "step", Body: []byte(`{"x":1}`)},
		{ID: "b", Namespace: two, Type: "step", Body: []byte(`{"x":2}`)},
	})
	deliveries, _ := consume(t, b, ConsumeOptions{Namespaces: []string{one, two}, Prefetch: 5})
	got := map[string]Delivery{}
	for len(got) < 2 {
		d := <-deliveries
		got[d.ID] = d
		ack(t, d)
		if err := d.Nack(true); !errors.Is(err, ErrSettled) {
			t.Errorf("settled twice: %v", err)
		}
	}
	d := got["b"]
	if d.Queue != QueueName(two) || d.Type != "step" || string(d.Body) != `{"x":2}` || d.Redelivered || len(d.Deaths) > 0 {
		t.Errorf("delivery = %+v", d)
	}
	if _, consumers, err := b.Depth(t.Context(), QueueName(one)); err != nil || consumers != 1 {
		t.Errorf("depth: %d consumers, %v", consumers, err)
	}
	if err := b.LastError(); err != nil {
		t.Error(err)
	}
}

// What a broker with much else to do does not confirm in time is published again, and may
// then come twice. Everything else comes once.
func TestManyPublishersAtOnce(t *testing.T) {
	noLeaks(t)
	b := start(t, options(t, mqtest.URL(t)))
	const publishers, each = 12, 1500 // more than idle channels, more than the window
	var all sync.WaitGroup
	var again sync.Map // ids that were published more than once
	ns := []string{mqtest.Name(t), mqtest.Name(t)}
	for p := range publishers {
		all.Go(func() {
			list := messages(ns[p%2], each)
			for i := range list {
				list[i].ID = fmt.Sprintf("%d-%d", p, i)
			}
			for _, id := range publishAll(t, b, list) {
				again.Store(id, true)
			}
		})
	}
	deliveries, _ := consume(t, b, ConsumeOptions{Namespaces: ns, Prefetch: 200})
	seen := map[string]int{}
	patience := time.NewTimer(5 * time.Minute)
	defer patience.Stop()
	for len(seen) < publishers*each {
		select {
		case d := <-deliveries:
			seen[d.ID]++
			ack(t, d)
		case <-patience.C:
			t.Fatalf("%d of %d messages have come", len(seen), publishers*each)
		}
	}
	all.Wait()
	for id, n := range seen {
		if _, twice := again.Load(id); n != 1 && !twice {
			t.Errorf("message %s was published once and came %d times", id, n)
		}
	}
}

// publishAll publishes until everything is confirmed, and returns the ids of what it
// published more than once.
func publishAll(t *testing.T, b *Broker, list []Message) (again []string) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		confirmed, err := b.Publish(t.Context(), list)
		var left []Message
		for i, m := range list {
			if !confirmed[i] {
				left = append(left, m)
			}
		}
		if len(left) == 0 && err == nil {
			return again
		}
		if code := tasker.CodeOf(err); code != tasker.Unavailable || len(left) == 0 {
			t.Errorf("%d of %d messages are not confirmed: %v (%s)", len(left), len(list), err, code)
			return again
		}
		t.Logf("%d of %d messages are published again: %v", len(left), len(list), err)
		for _, m := range left {
			again = append(again, m.ID)
		}
		list = left
		select {
		case <-tick.C:
		case <-t.Context().Done():
			return again
		}
	}
}

func TestWhatNobodyTakesIsDeadLettered(t *testing.T) {
	noLeaks(t)
	o := options(t, mqtest.URL(t))
	o.QueueTTL = 300 * time.Millisecond
	b := start(t, o)
	ns := mqtest.Name(t)
	deliveries, _ := consume(t, b, ConsumeOptions{Queue: b.DeadLetterQueue(), Prefetch: 10})
	publish(t, b, messages(ns, 3))
	for range 3 {
		d := receive(t, deliveries)
		ack(t, d)
		if len(d.Deaths) != 1 {
			t.Fatalf("deaths = %+v", d.Deaths)
		}
		death := d.Deaths[0]
		if death.Queue != QueueName(ns) || death.Reason != "expired" || death.Exchange != o.Exchange ||
			!slices.Equal(death.RoutingKeys, []string{RoutingKey(ns)}) || death.Count != 1 || time.Since(death.Time).Abs() > time.Hour {
			t.Errorf("death = %+v", death)
		}
	}
	eventually(t, b, QueueName(ns), 0, 0)
}

// All that is dead is kept, for as long as is configured, and dies nowhere else.
func TestTheQueueOfDeadLetters(t *testing.T) {
	noLeaks(t)
	o := options(t, mqtest.URL(t))
	o.DeadLetter.TTL = time.Hour
	b := start(t, o)
	ch := channel(t, mqtest.URL(t))
	// What has other settings, or is not there as it should be, refuses these.
	if err := ch.ExchangeDeclare(o.DeadLetter.Exchange, amqp091.ExchangeTopic, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(b.DeadLetterQueue(), true, false, false, false, amqp091.Table{
		amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.QueueMessageTTLArg: time.Hour.Milliseconds(), "x-delivery-limit": int64(1_000_000),
	}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"any", "key.that.is.used"} {
		if err := ch.PublishWithContext(t.Context(), o.DeadLetter.Exchange, key, false, false, amqp091.Publishing{Body: []byte("dead")}); err != nil {
			t.Fatal(err)
		}
	}
	deliveries, _ := consume(t, b, ConsumeOptions{Queue: b.DeadLetterQueue()})
	for range 2 {
		ack(t, receive(t, deliveries))
	}
}

func TestWhatComesBackTooOftenIsDeadLettered(t *testing.T) {
	noLeaks(t)
	o := options(t, mqtest.URL(t))
	o.DeliverLimit = 2
	b := start(t, o)
	ns := mqtest.Name(t)
	publish(t, b, messages(ns, 1))
	var mu sync.Mutex
	times := 0
	background(t, func(ctx context.Context) error {
		return b.Consume(ctx, ConsumeOptions{Namespaces: []string{ns}}, func(_ context.Context, d Delivery) {
			mu.Lock()
			times++
			mu.Unlock()
			_ = d.Nack(true)
		})
	})
	dead, _ := consume(t, b, ConsumeOptions{Queue: b.DeadLetterQueue()})
	d := receive(t, dead)
	ack(t, d)
	mu.Lock()
	defer mu.Unlock()
	if times != 3 || len(d.Deaths) != 1 || d.Deaths[0].Reason != "delivery_limit" {
		t.Errorf("delivered %d times, deaths = %+v", times, d.Deaths)
	}
}

func TestWithoutDeadLettersTheBrokerDropsThem(t *testing.T) {
	noLeaks(t)
	o := options(t, mqtest.URL(t))
	o.DeadLetter.Enabled = false
	o.QueueTTL = 200 * time.Millisecond
	b := start(t, o)
	ns := mqtest.Name(t)
	publish(t, b, messages(ns, 3))
	eventually(t, b, QueueName(ns), 0, 0)
	if _, _, err := b.Depth(t.Context(), b.DeadLetterQueue()); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("the dead-letter queue: %v", err)
	}
}

func TestAMissingQueueIsFoundAndMadeAnew(t *testing.T) {
	noLeaks(t)
	b := start(t, options(t, mqtest.URL(t)))
	gone, fine := mqtest.Name(t), mqtest.Name(t)
	publish(t, b, append(messages(gone, 1), messages(fine, 1)...))
	if _, err := channel(t, mqtest.URL(t)).QueueDelete(QueueName(gone), false, false, false); err != nil {
		t.Fatal(err)
	}
	list := append(messages(gone, 2), messages(fine, 2)...)
	confirmed, err := b.Publish(t.Context(), list)
	if tasker.CodeOf(err) != tasker.Unavailable || !strings.Contains(err.Error(), QueueName(gone)) ||
		!slices.Equal(confirmed, []bool{false, false, true, true}) {
		t.Errorf("publish = %v, %v", confirmed, err)
	}
	for err != nil && t.Context().Err() == nil {
		sleep(t.Context(), 20*time.Millisecond)
		_, err = b.Publish(t.Context(), list)
	}
}

func TestAnExchangeThatIsDeletedComesBack(t *testing.T) {
	noLeaks(t)
	o := options(t, mqtest.URL(t))
	b := start(t, o)
	ns := mqtest.Name(t)
	publish(t, b, messages(ns, 1))
	if err := channel(t, mqtest.URL(t)).ExchangeDelete(o.Exchange, false, false); err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil {
		if _, err := b.Publish(t.Context(), messages(ns, 1)); err == nil {
			return
		}
		sleep(t.Context(), 20*time.Millisecond)
	}
	t.Error(b.LastError())
}

func TestMessagesThatAMQPCannotCarry(t *testing.T) {
	noLeaks(t)
	b := start(t, options(t, mqtest.URL(t)))
	ns := mqtest.Name(t)
	confirmed, err := b.Publish(t.Context(), []Message{
		{ID: strings.Repeat("x", 256), Namespace: ns},
		{ID: "a", Namespace: ns},
		{ID: "b"},
	})
	if tasker.CodeOf(err) != tasker.Invalid || !slices.Equal(confirmed, []bool{false, true, false}) {
		t.Errorf("publish = %v, %v", confirmed, err)
	}
}

func TestNamesFit(t *testing.T) {
	long := strings.Repeat("ä", 200)
	for _, ns := range []string{"a", "a.b", "#", "a.*", strings.Repeat("x", 300), long, long + "1", long + "2"} {
		if n := len(QueueName(ns)); n > 255 {
			t.Errorf("QueueOf(%.20q) has %d bytes", ns, n)
		}
		if k := RoutingKey(ns); len(k) > 255 || strings.ContainsAny(k, "#*") {
			t.Errorf("RoutingKey(%.20q) = %q", ns, k)
		}
	}
	if QueueName("fulfillment") != "worker.fulfillment.executions" || RoutingKey("fulfillment") != "execution.dispatch.worker.fulfillment" {
		t.Errorf("%q, %q", QueueName("fulfillment"), RoutingKey("fulfillment"))
	}
	if QueueName(long+"1") == QueueName(long+"2") || RoutingKey(long+"1") == RoutingKey(long+"2") {
		t.Error("two long namespaces share a name")
	}
}

func TestUnusualNamespaces(t *testing.T) {
	noLeaks(t)
	b := start(t, options(t, mqtest.URL(t)))
	id := mqtest.Name(t)
	long, hash := strings.Repeat("n", 300)+id, id+".#"
	again := publish(t, b, []Message{{ID: "l", Namespace: long}, {ID: "h", Namespace: hash}, {ID: "other", Namespace: id + ".x"}})
	for _, ns := range []string{long, hash} {
		eventually(t, b, QueueName(ns), 1, again)
	}
}

// BenchmarkPublishAndConsume moves messages of 300 bytes in batches of 500.
func BenchmarkPublishAndConsume(bench *testing.B) {
	name := mqtest.Name(bench)
	b, err := New(Options{URL: mqtest.URL(bench), Exchange: name})
	if err != nil {
		bench.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bench.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = b.Run(ctx) })
	defer all.Wait()
	defer cancel()
	if err := b.Wait(ctx); err != nil {
		bench.Fatal(err)
	}
	list := messages(name, 500)
	for i := range list {
		list[i].Body = make([]byte, 300)
	}
	sentAll := 0
	began := time.Now()
	for bench.Loop() {
		if _, err := b.Publish(ctx, list); err != nil {
			bench.Fatal(err)
		}
		sentAll += len(list)
	}
	bench.ReportMetric(float64(sentAll)/time.Since(began).Seconds(), "published/s")
	began = time.Now()
	done := make(chan struct{})
	got := 0
	consumer, stop := context.WithCancel(ctx)
	defer stop()
	all.Go(func() {
		_ = b.Consume(consumer, ConsumeOptions{Namespaces: []string{name}, Prefetch: 500}, func(_ context.Context, d Delivery) {
			_ = d.Ack()
			if got++; got == sentAll {
				close(done)
			}
		})
	})
	<-done
	bench.ReportMetric(float64(sentAll)/time.Since(began).Seconds(), "consumed/s")
}
