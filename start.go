package tasker

import "time"

// MaxStartDelay bounds how long after its creation a task may be asked to start, and how long after
// its start it may be asked to wait for a worker.
const MaxStartDelay = 366 * 24 * time.Hour

// StartRules say how the tasks of a template start, where their requests say nothing else.
type StartRules struct {
	WithinSeconds int `json:"within_seconds,omitempty"` // a task ends as expired unless a step of it is claimed so long after its start
}

// TaskOptions are what a task was created with that bounds its start and its end.
type TaskOptions struct {
	StartBy *time.Time `json:"start_by,omitempty"` // it ends as expired unless a step of it is claimed by then
}
