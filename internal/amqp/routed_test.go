package amqp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/mqtest"
)

// subscribe binds a queue of its own to the exchange of the options.
func subscribe(t *testing.T, o Options, key string, args amqp091.Table) (name string, arrived <-chan amqp091.Delivery) {
	t.Helper()
	ch := channel(t, o.URL)
	name = o.Exchange + "." + key
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(name, key, o.Exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	if args != nil {
		return name, nil // what it has, it keeps
	}
	arrived, err := ch.Consume(name, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return name, arrived
}

func routedTo(keys ...string) []Routed {
	list := make([]Routed, len(keys))
	for i, key := range keys {
		list[i] = Routed{ID: fmt.Sprint(i), Key: key, Type: "event", ContentType: "text/plain", Body: []byte(key)}
	}
	return list
}

// codes returns the codes of the answers, with blanks between them; - is none.
func codes(answers []error) string {
	list := make([]string, len(answers))
	for i, err := range answers {
		list[i] = "-"
		if err != nil {
			list[i] = string(tasker.CodeOf(err))
		}
	}
	return strings.Join(list, " ")
}

func TestRoutedMessagesAreAnsweredOneByOne(t *testing.T) {
	noLeaks(t)
	o := options(t, mqtest.URL(t))
	b := start(t, o)
	_, arrived := subscribe(t, o, "a.*", nil)
	full, _ := subscribe(t, o, "full", amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	for range 2 { // on a new channel, and on the next one
		answers := b.PublishRouted(t.Context(), routedTo("a.1", "b", "full", "a.2", strings.Repeat("k", 256), "#", "a.3"))
		want := "- UNAVAILABLE UNAVAILABLE - INVALID UNAVAILABLE -"
		if codes(answers) == strings.Replace(want, "UNAVAILABLE UNAVAILABLE", "UNAVAILABLE -", 1) {
			answers[2] = b.PublishRouted(t.Context(), routedTo("full"))[0] // there was room for one
		}
		if codes(answers) != want {
			t.Fatalf("answers = %v", answers)
		}
		for place, says := range map[int]string{1: `no queue is bound to exchange "` + o.Exchange + `" for key "b"`, 2: "full or not writable"} {
			if !strings.Contains(answers[place].Error(), says) {
				t.Errorf("answer %d: %v", place, answers[place])
			}
		}
		for _, key := range []string{"a.1", "a.2", "a.3"} {
			if d := <-arrived; d.RoutingKey != key || string(d.Body) != key || d.Type != "event" || d.ContentType != "text/plain" || d.MessageId == "" {
				t.Errorf("%s arrived, want %s", d.RoutingKey, key)
			}
		}
	}
	eventually(t, b, full, 1, 0)
	if err := b.LastError(); err != nil {
		t.Errorf("what receivers do is no fault of the broker: %v", err)
	}
}

func TestRoutedAndOtherMessagesShareChannels(t *testing.T) {
	noLeaks(t)
	o := options(t, mqtest.URL(t))
	b := start(t, o)
	_, arrived := subscribe(t, o, "a", nil)
	ns := mqtest.Name(t)
	again := 0
	for range 3 {
		again += publish(t, b, messages(ns, 2))
		if answers := b.PublishRouted(t.Context(), routedTo("a", "b")); codes(answers) != "- UNAVAILABLE" {
			t.Errorf("answers = %v", answers)
		}
		<-arrived
	}
	eventually(t, b, QueueName(ns), 6, again)
}

func TestRoutedMessagesWithoutABroker(t *testing.T) {
	noLeaks(t)
	proxy := mqtest.Proxy(t, mqtest.URL(t))
	proxy.Cut()
	b, err := New(options(t, proxy.URL))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.WaitForAttempt(ctx) // nobody tries yet
	if answers := b.PublishRouted(t.Context(), routedTo("a", "b")); codes(answers) != "UNAVAILABLE UNAVAILABLE" ||
		!strings.Contains(answers[1].Error(), "not connected yet") {
		t.Errorf("answers = %v", answers)
	}
	background(t, b.Run)
	b.WaitForAttempt(t.Context())
	if answers := b.PublishRouted(t.Context(), routedTo("a")); codes(answers) != "UNAVAILABLE" || strings.Contains(answers[0].Error(), "not connected yet") {
		t.Errorf("answers = %v", answers)
	}
	if answers := b.PublishRouted(t.Context(), nil); len(answers) != 0 {
		t.Errorf("answers = %v", answers)
	}
}

func TestALossInTheMiddleOfRoutedMessages(t *testing.T) {
	noLeaks(t)
	proxy := mqtest.Proxy(t, mqtest.URL(t))
	o := options(t, proxy.URL)
	b := start(t, o)
	direct := o
	direct.URL = mqtest.URL(t)
	_, arrived := subscribe(t, direct, "#", nil)
	list := make([]Routed, 3000)
	for i := range list {
		list[i] = Routed{ID: fmt.Sprint(i), Key: "a", Body: make([]byte, 4<<10)}
	}
	done := make(chan []error)
	go func() { done <- b.PublishRouted(t.Context(), list) }()
	seen := map[string]bool{(<-arrived).MessageId: true} // some are there, others on their way
	proxy.Cut()
	answers := <-done
	patience := time.NewTimer(20 * time.Second)
	defer patience.Stop()
	lost := 0
	for i, err := range answers {
		for err == nil && !seen[list[i].ID] {
			select {
			case d := <-arrived:
				seen[d.MessageId] = true
			case <-patience.C:
				t.Fatalf("message %d is confirmed and has not arrived", i)
			}
		}
		switch {
		case err != nil && tasker.CodeOf(err) != tasker.Unavailable:
			t.Fatalf("message %d: %v", i, err)
		case err != nil:
			lost++
		}
	}
	if lost == 0 {
		t.Error("all are confirmed: the cut came too late")
	}
	proxy.Restore(t)
	wait(t, b)
}

func TestAMessageThatTheBrokerNeverTakes(t *testing.T) {
	noLeaks(t)
	own := mqtest.Start(t)
	own.Shell(t, `rabbitmqctl eval 'application:set_env(rabbit, max_message_size, 1000).'`)
	o := options(t, own.URL)
	b := start(t, o)
	_, arrived := subscribe(t, o, "a", nil)
	list := routedTo("a", "a", "a")
	list[1].Body = make([]byte, 1001)
	if answers := b.PublishRouted(t.Context(), list); tasker.CodeOf(answers[1]) != tasker.TooLarge ||
		!strings.Contains(answers[1].Error(), "1001 bytes") || tasker.CodeOf(answers[0]) == tasker.TooLarge {
		t.Errorf("answers = %v", answers)
	}
	if answers := b.PublishRouted(t.Context(), list); codes(answers) != "- TOO_LARGE -" {
		t.Errorf("answers = %v, now that it is known", answers)
	}
	<-arrived
}
