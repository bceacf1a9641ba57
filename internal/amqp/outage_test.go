package amqp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/mqtest"
)

// ripening is the age from which a quorum queue survives a crash. RabbitMQ keeps
// a list of them, which it writes to disk some seconds late, and later on a loaded machine.
const ripening = 20 * time.Second

func TestACrashLosesNoConfirmedMessage(t *testing.T) {
	noLeaks(t)
	own := mqtest.Start(t)
	b := start(t, options(t, own.URL))
	ns := mqtest.Name(t)
	var mu sync.Mutex
	var confirmed []string
	progress := make(chan struct{}, 1)
	stop := background(t, func(ctx context.Context) error {
		for round := 0; ctx.Err() == nil; round++ {
			list := messages(ns, 200)
			for i := range list {
				list[i].ID = fmt.Sprintf("%d-%d", round, i)
			}
			ok, err := b.Publish(ctx, list)
			mu.Lock()
			for i := range list {
				if ok[i] {
					confirmed = append(confirmed, list[i].ID)
				}
			}
			mu.Unlock()
			if err != nil {
				sleep(ctx, 20*time.Millisecond)
				continue
			}
			select {
			case progress <- struct{}{}:
			default:
			}
		}
		return nil
	})
	for ripe := time.Now().Add(ripening); time.Now().Before(ripe); {
		<-progress
	}
	own.Kill(t)
	own.Restart(t)
	wait(t, b)
	select { // from before
	case <-progress:
	default:
	}
	<-progress
	<-progress
	stop()

	seen := map[string]bool{}
	deliveries, _ := consume(t, b, ConsumeOptions{Namespaces: []string{ns}, Prefetch: 500})
	missing := slices.Clone(confirmed)
	for len(missing) > 0 {
		select {
		case d := <-deliveries:
			seen[d.ID] = true
			ack(t, d)
		case <-time.After(20 * time.Second):
			t.Fatalf("%d of %d confirmed messages are lost", len(missing), len(confirmed))
		}
		if len(deliveries) == 0 {
			missing = slices.DeleteFunc(missing, func(id string) bool { return seen[id] })
		}
	}
	t.Logf("%d confirmed, %d arrived", len(confirmed), len(seen))
}

func TestAQueueThatACrashHasBroken(t *testing.T) {
	noLeaks(t)
	own := mqtest.Start(t)
	b := start(t, options(t, own.URL))
	broken, fine := mqtest.Name(t), mqtest.Name(t)
	publish(t, b, messages(broken, 1))
	own.Kill(t)
	own.Restart(t)
	wait(t, b)
	publish(t, b, messages(fine, 1))
	confirmed, err := b.Publish(t.Context(), append(messages(broken, 1), messages(fine, 3)...))
	if err == nil {
		t.Skip("this RabbitMQ has recovered it")
	}
	// The broken queue holds up the channel inside the broker.
	if !strings.Contains(err.Error(), "confirms no messages") || confirmed[0] {
		t.Errorf("publish = %v, %v", confirmed, err)
	}
	confirmed, err = b.Publish(t.Context(), append(messages(broken, 1), messages(fine, 1)...)) // which waits no longer
	if err == nil || !strings.Contains(err.Error(), "confirms no messages") || !slices.Equal(confirmed, []bool{false, true}) {
		t.Errorf("publish = %v, %v", confirmed, err)
	}
	own.Shell(t, remedyFor(t, b, describeUnresponsive(QueueName(broken)), QueueName(broken)))
}

func TestABrokerThatStandsStill(t *testing.T) {
	noLeaks(t)
	proxy := mqtest.Proxy(t, mqtest.URL(t))
	o := options(t, proxy.URL)
	o.Heartbeat = 3 * time.Second
	b := start(t, o)
	ns := mqtest.Name(t)
	publish(t, b, messages(ns, 1))
	deliveries, stopConsumer := consume(t, b, ConsumeOptions{Namespaces: []string{ns}, Prefetch: 2})
	ack(t, <-deliveries)

	proxy.Freeze()
	large := messages(ns, 50)
	for i := range large {
		large[i].Body = make([]byte, 1<<20) // more than all buffers on the way hold
	}
	for _, list := range [][]Message{messages(ns, 10), large, messages(mqtest.Name(t), 1)} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		confirmed, err := b.Publish(ctx, list)
		cancel()
		if tasker.CodeOf(err) == "" || slices.Contains(confirmed, true) {
			t.Errorf("publish = %v, %v", confirmed, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := b.Depth(ctx, QueueName(ns)); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("depth: %v", err)
	}
	for b.Ready() { // the heartbeat tells
		sleep(t.Context(), 20*time.Millisecond)
	}
	stopConsumer() // in the middle of the outage
	proxy.Thaw()
	wait(t, b)
	publish(t, b, messages(ns, 1))
}

func TestTheEndInFrontOfABrokerThatStandsStill(t *testing.T) {
	noLeaks(t)
	proxy := mqtest.Proxy(t, mqtest.URL(t))
	b, err := New(options(t, proxy.URL))
	if err != nil {
		t.Fatal(err)
	}
	stopRun := background(t, b.Run)
	wait(t, b)
	ns := mqtest.Name(t)
	publish(t, b, messages(ns, 5))
	deliveries, stopConsumer := consume(t, b, ConsumeOptions{Namespaces: []string{ns}, Prefetch: 2})
	<-deliveries
	proxy.Freeze()
	stopRun()
	stopConsumer()
	if b.Ready() {
		t.Error("ready after its end")
	}
}

func TestAConsumerSurvivesACut(t *testing.T) {
	noLeaks(t)
	proxy := mqtest.Proxy(t, mqtest.URL(t))
	b := start(t, options(t, proxy.URL))
	ns := mqtest.Name(t)
	deliveries, _ := consume(t, b, ConsumeOptions{Namespaces: []string{ns}, Prefetch: 10})
	for round := range 3 {
		publish(t, b, messages(ns, 1))
		d := <-deliveries
		proxy.Cut()
		for b.Ready() {
			sleep(t.Context(), 10*time.Millisecond)
		}
		if err := d.Ack(); !errors.Is(err, ErrLost) {
			t.Errorf("round %d: ack on a lost channel: %v", round, err)
		}
		proxy.Restore(t)
		wait(t, b)
		again := receive(t, deliveries)
		if again.ID != d.ID || !again.Redelivered {
			t.Errorf("round %d: %s came after %s, redelivered %v", round, again.ID, d.ID, again.Redelivered)
		}
		ack(t, again)
	}
}

func TestAConsumerSurvivesTheDeletionOfItsQueue(t *testing.T) {
	noLeaks(t)
	b := start(t, options(t, mqtest.URL(t)))
	ns := mqtest.Name(t)
	deliveries, _ := consume(t, b, ConsumeOptions{Namespaces: []string{ns}})
	publish(t, b, messages(ns, 1))
	ack(t, <-deliveries)
	if _, err := channel(t, mqtest.URL(t)).QueueDelete(QueueName(ns), false, false, false); err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil { // it may still take a while until the queue is back
		if _, err := b.Publish(t.Context(), messages(ns, 1)); err == nil {
			break
		}
		sleep(t.Context(), 20*time.Millisecond)
	}
	ack(t, <-deliveries)
	for b.LastError() != nil {
		sleep(t.Context(), 20*time.Millisecond)
	}
}

func TestAConsumerThatEndsGivesBack(t *testing.T) {
	noLeaks(t)
	b := start(t, options(t, mqtest.URL(t)))
	ns := mqtest.Name(t)
	publish(t, b, messages(ns, 10))
	ctx, cancel := context.WithCancel(t.Context())
	inHand := make(chan Delivery, 1)
	err := b.Consume(ctx, ConsumeOptions{Namespaces: []string{ns}, Prefetch: 5}, func(_ context.Context, d Delivery) {
		inHand <- d
		cancel()
		go func() { // settled after the end was announced
			d := <-inHand
			for {
				messages, _, err := b.Depth(context.WithoutCancel(ctx), QueueName(ns))
				if err != nil || messages == 9 { // the others are back
					break
				}
			}
			if err := d.Ack(); err != nil {
				t.Errorf("ack: %v", err)
			}
		}()
	})
	if err != nil {
		t.Fatal(err)
	}
	// A quorum queue forgets its consumer a little later than it says so.
	for {
		messages, consumers, err := b.Depth(t.Context(), QueueName(ns))
		if err != nil || messages != 9 {
			t.Fatalf("depth = %d messages, %d consumers, %v", messages, consumers, err)
		}
		if consumers == 0 {
			return
		}
	}
}

func TestOtherSettingsAreExplainedAndMended(t *testing.T) {
	noLeaks(t)
	own := mqtest.Start(t)
	o := options(t, own.URL)
	ch := channel(t, own.URL)
	ns, fine := mqtest.Name(t), mqtest.Name(t)
	if _, err := ch.QueueDeclare(QueueName(ns), true, false, false, false, amqp091.Table{
		"x-queue-type": "quorum", "x-message-ttl": 1000,
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{o.Exchange, o.DeadLetter.Exchange} {
		if err := ch.ExchangeDeclare(name, "direct", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	background(t, b.Run)

	for _, name := range []string{o.Exchange, o.DeadLetter.Exchange} {
		remedy := remedyFor(t, b, describeExchange(name), "inequivalent arg 'type'")
		if b.Ready() && name == o.Exchange {
			t.Error("ready without its exchange")
		}
		own.Shell(t, remedy)
	}
	wait(t, b)

	confirmed, err := b.Publish(t.Context(), append(messages(ns, 1), messages(fine, 1)...))
	if tasker.CodeOf(err) != tasker.Conflict || !slices.Equal(confirmed, []bool{false, true}) {
		t.Errorf("publish = %v, %v", confirmed, err)
	}
	own.Shell(t, remedyFor(t, b, describeQueue(QueueName(ns)), "inequivalent arg"))
	for err != nil && t.Context().Err() == nil {
		_, err = b.Publish(t.Context(), messages(ns, 1))
		sleep(t.Context(), 20*time.Millisecond)
	}
	if err := b.LastError(); err != nil {
		t.Error(err)
	}
}

// remedyFor waits until LastError tells of the thing, and returns the command.
func remedyFor(t *testing.T, b *Broker, thing, cause string) string {
	t.Helper()
	for t.Context().Err() == nil {
		err := b.lastErrorOf(thing)
		if err == nil {
			sleep(t.Context(), 20*time.Millisecond)
			continue
		}
		_, remedy, ok := strings.Cut(err.Error(), ": rabbitmqctl ")
		if !ok || !strings.Contains(err.Error(), cause) || !strings.Contains(b.LastError().Error(), err.Error()) {
			t.Fatalf("%s: %v", thing, err)
		}
		return "rabbitmqctl " + remedy
	}
	t.Fatalf("nothing is said about %s", thing)
	return ""
}

func TestABrokerThatTakesNoMessages(t *testing.T) {
	noLeaks(t)
	own := mqtest.Start(t)
	b := start(t, options(t, own.URL))
	ns := mqtest.Name(t)
	publish(t, b, messages(ns, 1))
	own.Shell(t, "rabbitmqctl set_vm_memory_high_watermark absolute 1MB")
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := b.Publish(ctx, messages(ns, 1))
		cancel()
		if err != nil && strings.Contains(err.Error(), "has blocked publishing") {
			break
		}
	}
	if err := b.LastError(); err == nil || !strings.Contains(err.Error(), "low on memory") {
		t.Errorf("last error = %v", err)
	}
	own.Shell(t, "rabbitmqctl set_vm_memory_high_watermark absolute 512MB")
	for t.Context().Err() == nil {
		if _, err := b.Publish(t.Context(), messages(ns, 1)); err == nil {
			return
		}
		sleep(t.Context(), 20*time.Millisecond)
	}
}
