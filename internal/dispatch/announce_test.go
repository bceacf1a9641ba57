package dispatch

import (
	"errors"
	"testing"
	"time"

	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/postgres"
)

// A queue that confirms nothing is found out by the broker's timer, which has to end first; and the
// transaction that has the announcements has to outlive both.
func TestAnnouncingWaitsForTheBrokersOwnTimer(t *testing.T) {
	if announceDeadline < 2*amqp.Silence || announceDeadline > postgres.IdleTransactionTimeout-2*time.Second {
		t.Errorf("announcing ends after %s, while a queue is given up after %s, and the transaction after %s", announceDeadline, amqp.Silence, postgres.IdleTransactionTimeout)
	}
}

func TestTheSameComplaintIsNewsAgainAfterASuccess(t *testing.T) {
	var c errorThrottle
	began := time.Now()
	full, gone := errors.New("full"), errors.New("gone")
	for i, tt := range []struct {
		after time.Duration
		n     int
		err   error
		news  bool
	}{
		{0, 0, nil, false},
		{0, 500, full, true},
		{2 * time.Hour, 0, full, false}, // the same outage
		{2 * time.Hour, 0, nil, false},  // nothing was due
		{2 * time.Hour, 3, full, false},
		{2 * time.Hour, 3, nil, false},
		{2 * time.Hour, 3, full, true}, // another outage
		{2*time.Hour + time.Second, 3, nil, false},
		{2*time.Hour + 2*time.Second, 3, full, false}, // one queue among others
		{2*time.Hour + logInterval, 3, full, true},
		{2*time.Hour + logInterval, 3, gone, true},
	} {
		if news := c.isNews(tt.n, tt.err, began.Add(tt.after)); news != tt.news {
			t.Errorf("%d: a batch of %d with %v is news: %t", i, tt.n, tt.err, news)
		}
	}
}
