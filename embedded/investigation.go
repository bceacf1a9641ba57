package embedded

import (
	"context"

	"tasker.example/tasker"
)

// InvestigationQueue returns the open investigations of a filter, the most urgent first,
// and reports whether there are more. A limit of 0 means 100; the most is 1,000.
func (e *Engine) InvestigationQueue(ctx context.Context, f tasker.InvestigationFilter) (list []tasker.InvestigationQueueEntry, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.db.InvestigationQueue(ctx, f)
}

// Cases returns the open investigations of a filter grouped by failure, the most urgent
// first, and reports whether there are more. Limits are those of InvestigationQueue.
func (e *Engine) Cases(ctx context.Context, f tasker.InvestigationFilter) (list []tasker.Case, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.db.Cases(ctx, f)
}

// Investigations returns open and ended investigations, newest first, without their
// history. Limits are those of InvestigationQueue.
func (e *Engine) Investigations(ctx context.Context, f tasker.EntryFilter) ([]tasker.Entry, error) {
	f.Limit = pageLimit(f.Limit)
	return e.db.Entries(ctx, f)
}

// Investigation returns one investigation with its evidence and history. The error is
// NotFound when it does not exist.
func (e *Engine) Investigation(ctx context.Context, id tasker.ID) (tasker.Entry, error) {
	return e.db.Entry(ctx, id)
}

// InvestigationOf returns the newest investigation of a task. The error is NotFound when
// the task has none.
func (e *Engine) InvestigationOf(ctx context.Context, task tasker.ID) (tasker.Entry, error) {
	return e.db.EntryOfTask(ctx, task)
}

// OpenInvestigation opens an investigation because a person asks for one; the task goes
// on as before. When one is open already, the error is a Conflict with its id.
func (e *Engine) OpenInvestigation(ctx context.Context, task tasker.ID, o tasker.EntryOpening) (tasker.Entry, error) {
	return e.dlq.Open(ctx, task, o)
}

// UpdateInvestigation changes the notes, the metadata or the status of an investigation.
// To end one, set the status, with notes and ResolvedBy; repair the steps first, with
// OperateStep. The warnings say what may have been overlooked.
func (e *Engine) UpdateInvestigation(ctx context.Context, id tasker.ID, u tasker.EntryUpdate) (entry tasker.Entry, warnings []string, err error) {
	return e.dlq.Update(ctx, id, u)
}
