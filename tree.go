package tasker

// A TaskTree is a task with those above it, which wait for it, and those below it, which its
// steps started.
type TaskTree struct {
	TaskUUID ID         // the task that was asked for
	Tasks    []TreeTask // the topmost that is still there first, and each before its children
}

// A TreeTask is a task of a tree.
type TreeTask struct {
	Task         Task   // without its context
	Depth        int    // tasks above it: 0 of one that no step started
	StepName     string // the step that started it; empty when there is none, or when it is gone
	Current      bool   // that step names this task: it waits for it, or had its result; not one that it started before a reset
	WaitedFor    bool   // that step waits for this task
	MoreChildren bool   // it has children that are not among the tasks
}
