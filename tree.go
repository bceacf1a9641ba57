package tasker

// TaskTree contains a task, its ancestors and its descendants. The steps of a task start its
// children.
type TaskTree struct {
	TaskUUID ID         // requested task
	Tasks    []TreeTask // from the topmost existing ancestor; parents precede their children
}

// TreeTask is one task of a [TaskTree].
type TreeTask struct {
	Task         Task   // without its context
	Depth        int    // number of ancestors
	StepName     string // step that started it; empty for a root or a deleted step
	Current      bool   // latest child of that step, not one from before a reset
	WaitedFor    bool   // that step waits for this task
	MoreChildren bool   // the tree does not contain all of its children
}
