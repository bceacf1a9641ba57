package rabbitmq

import (
	"testing"

	"tasker.example/tasker/internal/amqp"
)

// The end of a consumer waits for what is in hand, and who settles that may be in the middle of a gather.
func TestHangingUpWaitsForAGatherThatHasAMessage(t *testing.T) {
	b, err := amqp.New(amqp.Options{URL: "amqp://nobody.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	c := newConsumer(b, []string{"n"}, 1)
	c.listen() // a gather
	stopped := make(chan struct{})
	stop := c.stop
	c.stop = func() {
		stop()
		close(stopped)
	}
	c.consuming.Go(func() { // a message that the gather has
		<-stopped
		c.pauseAfterIdle()
	})
	c.close()
}
