package core

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"tasker.example/tasker"
)

// Queued describes how an enqueued step waits for a worker.
type Queued struct {
	tasker.StepRef
	Namespace string
	Handler   string
	QueuedAt  time.Time
	ExpiresAt time.Time  // end of its queue timeout
	Deadline  *time.Time // when it expires, which is later if its queue was saturated; nil if unknown
	Kept      bool       // the timeout passed while the queue was saturated
	Deserted  bool       // no worker was live for the time after which a step is unserved
	Workers   int64      // number of live workers that could claim the step
	BusyAt    *time.Time // last known claim from the step's queue
}

// InTime reports whether the step does not have to be claimed before the time.
func (q Queued) InTime(now time.Time) bool { return q.Deadline == nil || q.Deadline.After(now) }

// Expire fails an enqueued step that no worker has claimed in time or for which no worker was live
// for the duration unserved. The attempt does not count. The step is enqueued again when a worker is
// live, except after most consecutive expiries with a live worker. Expire reports false if the step
// still has time.
func (c *Change) Expire(q Queued, most int, unserved time.Duration) bool {
	s := c.Task.Find(q.StepUUID)
	if s == nil || s.State != tasker.StepEnqueued || q.InTime(c.Now) && !q.Deserted {
		return false
	}
	message := q.describeExpiry(c.Now)
	if q.InTime(c.Now) {
		message = fmt.Sprintf("no worker is alive: for %s s there was none for handler %s of namespace %s",
			formatSeconds(unserved), q.Handler, q.Namespace)
	}
	failure, err := json.Marshal(tasker.StepFailure{Type: tasker.QueueExpiry, Retryable: true, Message: message})
	if err != nil {
		c.fail("step %s: %w", s.ID, err)
		return false
	}
	c.move(s, Move{Event: Expire, Detail: failure})
	s.Attempts--
	s.Unclaimed, s.Stored.Error = true, failure
	if q.Workers > 0 {
		s.QueueExpiries++
	}
	if q.Workers == 0 || s.QueueExpiries < most {
		s.AwaitsWorker = &c.Now
	}
	return true
}

func (q Queued) describeExpiry(now time.Time) string {
	message := fmt.Sprintf("worker queue TTL expired: no worker took the step within %s s; ", formatSeconds(q.ExpiresAt.Sub(q.QueuedAt)))
	where := fmt.Sprintf("for handler %s of namespace %s", q.Handler, q.Namespace)
	switch q.Workers {
	case 0:
		return message + "none " + where + " is alive"
	case 1:
		message += "one " + where + " is alive"
	default:
		message += fmt.Sprintf("%d %s are alive", q.Workers, where)
	}
	if q.Kept && q.BusyAt != nil {
		message += fmt.Sprintf(", and no step of the queue was claimed for %.0f s", now.Sub(*q.BusyAt).Seconds())
	}
	return message
}

// formatSeconds returns a duration in seconds with up to three decimals.
func formatSeconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(time.Millisecond).Seconds(), 'f', -1, 64)
}
