package rabbitmq

import "tasker.example/tasker"

// MessageType is the type property of messages that announce a step.
const MessageType = "tasker.step.enqueued"

// Body is the body of a message that announces a step. It only identifies the step; the claim
// returns its data, which never passes through the broker.
type Body struct {
	TaskUUID tasker.ID `json:"task_uuid"`
	StepUUID tasker.ID `json:"step_uuid"`
}
