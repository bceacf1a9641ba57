package postgres

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
)

// holdTopics maps the events of manual holds and of breakers to notification topics.
var holdTopics = map[tasker.HoldKind]map[string]string{
	tasker.ManualHold: {
		tasker.HoldBegan: tasker.HoldBeganTopic, tasker.HoldWarned: tasker.HoldEndingTopic, tasker.HoldWaveFailed: tasker.HoldFailedTopic,
		tasker.HoldHasEnded: tasker.HoldEndedTopic,
	},
	tasker.BreakerHold: {
		tasker.HoldBegan: tasker.BreakerOpenedTopic, tasker.HoldWarned: tasker.BreakerEndingTopic, tasker.HoldHasEnded: tasker.BreakerClosedTopic,
	},
}

// notifyHold stores a message about a locked hold if its event has a topic.
func (tx *Tx) notifyHold(ctx context.Context, h tasker.Hold, event, by string) error {
	topic := holdTopics[h.Kind][event]
	if topic == "" {
		return nil
	}
	_, err := tx.CreateNotification(ctx, NewMessage{
		Topic: topic, SubjectKind: tasker.HoldSubject, SubjectID: h.UUID, Namespaces: []string{h.Namespace}, Data: notice.NewHoldData(topic, h, by),
	})
	return err
}
