package tasker

// CancelBatchRequest selects open tasks to cancel, one batch at a time.
type CancelBatchRequest struct {
	Filter     TaskFilter // without Limit, Offset and Phase; must restrict more than state and time
	Compensate bool       // run the compensation of completed steps
	Limit      int        // tasks per batch; 0 means [MaxCancelBatch]
	DryRun     bool
	Actor      string
	Reason     string
}

// CancelBatch is the result of one batch.
type CancelBatch struct {
	Cancelled int    // cancelled or compensating tasks; in a dry run, tasks that would be
	Failed    int    // tasks that could not be cancelled; the server log has the errors
	Sample    []Task // the first tasks of the batch
	HasMore   bool   // more tasks match: repeat the request
}

// Limits of one batch.
const (
	MaxCancelBatch  = 100
	MaxCancelSample = 10
)
