package tasker

// A CancelBatchRequest asks to cancel the open tasks that fit a filter, a part of them at a time.
type CancelBatchRequest struct {
	Filter     TaskFilter // without Limit, Offset and Phase; it must name more than a state and a time
	Compensate bool       // undo what their completed steps have done
	Limit      int        // tasks of one part; 0 means [MaxCancelBatch]
	DryRun     bool
	Actor      string
	Reason     string
}

// A CancelBatch is what became of a part of the tasks of a filter.
type CancelBatch struct {
	Cancelled int    // tasks that are cancelled, or are being undone; or would be
	Failed    int    // tasks for which the server failed; its log says why
	Sample    []Task // the first of the part
	HasMore   bool   // there are others: ask again
}

// Bounds of one part of the tasks of a filter.
const (
	MaxCancelBatch  = 100 // tasks
	MaxCancelSample = 10  // tasks that are told of
)
