package tasker

// TaskTree contains a task, its ancestors and its descendants. The steps of a task start its
// children.
type TaskTree struct {
	TaskUUID ID         `json:"task_uuid" doc:"Requested task."`
	Tasks    []TreeTask `json:"tasks" doc:"From the topmost existing ancestor; parents precede their children. At most 20 children per task and 200 descendants of the requested task: open ones first, then the newest."`
}

// TreeTask is one task of a [TaskTree].
type TreeTask struct {
	Task         Task           `json:"task" doc:"Without steps and context."`
	Depth        int            `json:"depth" doc:"Number of ancestors."`
	StepName     OptionalString `json:"step_name" doc:"Step that started it. Null for a root or a deleted step."`
	Current      bool           `json:"current" doc:"Latest child of the step. False for a child from before a reset."`
	WaitedFor    bool           `json:"waited_for" doc:"The step is waiting for this task."`
	MoreChildren bool           `json:"more_children" doc:"The response omits some of its children. GET /v1/tasks?parent= lists them."`
}
