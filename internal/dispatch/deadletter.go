package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/rabbitmq"
)

const (
	deadLetterBatch    = 100
	deadLetterGather   = 20 * time.Millisecond // how long a batch waits for more messages
	deadLetterDeadline = 10 * time.Second
	firstPause         = 250 * time.Millisecond // after a database failure
	longestPause       = 10 * time.Second
	shownBody          = 200 // characters of an unreadable body that are logged
)

// Outcomes of dead letters.
const (
	LetterExpired = "expired"   // its step failed
	LetterAgain   = "announced" // its step still has time and is announced again
	LetterMoved   = "moved_on"  // its step is no longer enqueued or never existed
	LetterInvalid = "invalid"   // unreadable; dropped
	LetterForeign = "foreign"   // not about a step; dropped
	LetterRetried = "retried"   // the database was unavailable; the broker delivers it again
)

// handleDeadLetters consumes the dead-letter queue in batches. If a channel is lost, the broker
// redelivers its messages.
func (s *Service) handleDeadLetters(ctx context.Context) error {
	incoming := make(chan amqp.Delivery)
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		s.handleBatches(ctx, incoming)
	}()
	err := s.Broker.Consume(ctx, amqp.ConsumeOptions{Queue: s.Broker.DeadLetterQueue(), Prefetch: 2 * deadLetterBatch, Tag: "tasker.dead_letters"},
		func(ctx context.Context, d amqp.Delivery) {
			select {
			case incoming <- d:
			case <-ctx.Done():
				_ = d.Nack(true)
			case <-handled:
				_ = d.Nack(true)
			}
		})
	<-handled
	return err
}

func (s *Service) handleBatches(ctx context.Context, incoming <-chan amqp.Delivery) {
	pause := firstPause
	for {
		batch := gatherLetters(ctx, incoming)
		if len(batch) == 0 {
			return
		}
		retried, err := s.handle(ctx, s.dropUnreadable(ctx, batch))
		if err == nil {
			pause = firstPause
			continue
		}
		if ctx.Err() == nil {
			s.Log.WarnContext(ctx, "could not handle dead letters; the broker will "+
				"redeliver them", "messages", len(retried), "pause", pause, "err", err)
		}
		// Pause first: the broker delivers a returned message again at once.
		loop.Sleep(ctx, pause)
		pause = min(2*pause, longestPause)
		for _, d := range retried {
			_ = d.Nack(true)
		}
	}
}

// deadLetter is a dead letter about a step.
type deadLetter struct {
	amqp.Delivery
	step tasker.StepRef
}

func (d deadLetter) latency() time.Duration {
	if len(d.Deaths) == 0 || d.Deaths[0].Time.IsZero() {
		return 0
	}
	return max(0, time.Since(d.Deaths[0].Time))
}

// gatherLetters waits for a delivery, and then for deadLetterGather for more.
func gatherLetters(ctx context.Context, incoming <-chan amqp.Delivery) []deadLetter {
	var batch []deadLetter
	more := time.NewTimer(0)
	more.Stop()
	defer more.Stop()
	for len(batch) < deadLetterBatch {
		select {
		case d := <-incoming:
			if batch = append(batch, deadLetter{Delivery: d}); len(batch) == 1 {
				more.Reset(deadLetterGather)
			}
		case <-more.C:
			return batch
		case <-ctx.Done():
			for _, d := range batch {
				_ = d.Nack(true)
			}
			return nil
		}
	}
	return batch
}

// dropUnreadable acknowledges and drops letters that are not about a step, and returns the others.
func (s *Service) dropUnreadable(ctx context.Context, batch []deadLetter) []deadLetter {
	var readable []deadLetter
	for _, d := range batch {
		if d.Type == canaryType {
			s.handleCanary(ctx, d)
			continue
		}
		outcome, err := d.read()
		if err == nil {
			readable = append(readable, d)
			continue
		}
		s.Log.WarnContext(ctx, "dead letter dropped", "why", err, "message_id", payload.CleanText(d.ID, shownBody),
			"body", payload.CleanText(string(d.Body), shownBody))
		s.Counts.DeadLetter(ctx, outcome, d.latency())
		_ = d.Ack()
	}
	return readable
}

// handleCanary records that a canary has returned.
func (s *Service) handleCanary(ctx context.Context, d deadLetter) {
	limited, cancel := context.WithTimeout(ctx, deadLetterDeadline)
	defer cancel()
	if err := s.DB.RecordCanaryReturn(limited); err != nil && ctx.Err() == nil {
		s.Log.WarnContext(ctx, "could not record the return of a canary", "err", err)
	}
	_ = d.Ack()
}

// handle processes dead letters about steps and returns those that the broker must redeliver.
func (s *Service) handle(ctx context.Context, batch []deadLetter) (retried []deadLetter, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	var letters []engine.DeadLetter
	seen := map[tasker.StepRef]bool{}
	for _, d := range batch {
		if !seen[d.step] {
			seen[d.step] = true
			letters = append(letters, engine.DeadLetter{StepRef: d.step, Evidence: encodeEvidence(d.Deaths)})
		}
	}
	done, err := s.Engine.DeadLetters(ctx, letters)
	if len(done.Again) > 0 {
		s.Wake()
	}
	outcome := map[tasker.StepRef]string{}
	for _, step := range done.Expired {
		outcome[step] = LetterExpired
	}
	for _, step := range done.Again {
		outcome[step] = LetterAgain
	}
	for _, step := range done.Left {
		outcome[step] = LetterRetried
	}
	for _, d := range batch {
		result := cmp.Or(outcome[d.step], LetterMoved)
		s.Counts.DeadLetter(ctx, result, d.latency())
		if result == LetterRetried {
			retried = append(retried, d)
			continue
		}
		_ = d.Ack()
	}
	return retried, err
}

// read decodes the step of a dead letter.
func (d *deadLetter) read() (outcome string, err error) {
	if d.Type != rabbitmq.MessageType {
		return LetterForeign, fmt.Errorf("type is %q, not %s", payload.CleanText(d.Type, shownBody), rabbitmq.MessageType)
	}
	var body rabbitmq.Body
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return LetterInvalid, fmt.Errorf("cannot decode the body: %w", err)
	}
	if body.TaskUUID == (tasker.ID{}) || body.StepUUID == (tasker.ID{}) {
		return LetterInvalid, errors.New("task_uuid or step_uuid is missing")
	}
	d.step = tasker.StepRef{TaskUUID: body.TaskUUID, StepUUID: body.StepUUID}
	return "", nil
}

// encodeEvidence returns the broker's record of why it dead-lettered a message, as evidence for an
// investigation.
func encodeEvidence(deaths []amqp.Death) json.RawMessage {
	type death struct {
		Reason      string    `json:"reason"`
		Queue       string    `json:"queue"`
		Exchange    string    `json:"exchange"`
		RoutingKeys []string  `json:"routing_keys"`
		Count       int64     `json:"count"`
		Time        time.Time `json:"time"`
	}
	list := make([]death, 0, len(deaths))
	for _, x := range deaths[:min(len(deaths), 10)] {
		keys := make([]string, 0, len(x.RoutingKeys))
		for _, k := range x.RoutingKeys[:min(len(x.RoutingKeys), 10)] {
			keys = append(keys, payload.CleanText(k, 255))
		}
		list = append(list, death{
			Reason: payload.CleanText(x.Reason, 64), Queue: payload.CleanText(x.Queue, 255), Exchange: payload.CleanText(x.Exchange, 255),
			RoutingKeys: keys, Count: x.Count, Time: x.Time.UTC(),
		})
	}
	doc, err := json.Marshal(map[string]any{"deaths": list})
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return doc
}
