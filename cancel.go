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
	Cancelled int    `json:"cancelled" doc:"Cancelled or compensating tasks. In a dry run, tasks that would be."`
	Failed    int    `json:"failed" doc:"Tasks that could not be cancelled. The server log has the errors."`
	HasMore   bool   `json:"more" doc:"More tasks match: repeat the request."`
	Sample    []Task `json:"sample" doc:"First tasks of the batch, in their previous state."`
}

// Limits of one batch.
const (
	MaxCancelBatch  = 100
	MaxCancelSample = 10
)
