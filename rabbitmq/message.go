package rabbitmq

import "tasker.example/tasker"

// MessageType is the type property of the messages that announce a step.
const MessageType = "tasker.step.enqueued"

// A Body is what such a message says: which step to claim. All that the step is
// about comes with the claim, and never travels through the broker.
type Body struct {
	TaskUUID tasker.ID `json:"task_uuid"`
	StepUUID tasker.ID `json:"step_uuid"`
}
