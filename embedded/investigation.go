package embedded

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/evidencefile"
	"tasker.example/tasker/internal/incidentreport"
)

// InvestigationQueue returns open investigations that match a filter, most urgent first, and
// reports whether more follow. The default limit is 100, the maximum 1,000.
func (e *Engine) InvestigationQueue(ctx context.Context, f tasker.InvestigationFilter) (list []tasker.InvestigationQueueEntry, more bool, err error) {
	f.Limit = clampLimit(f.Limit)
	return e.db.InvestigationQueue(ctx, f)
}

// Cases returns cases that match a filter, highest impact first, and reports whether more follow.
// Limit has the same default and maximum as in InvestigationQueue.
func (e *Engine) Cases(ctx context.Context, f tasker.CaseFilter) (list []tasker.Case, more bool, err error) {
	f.Limit = clampLimit(f.Limit)
	return e.db.Cases(ctx, f)
}

// Case returns a case with details of its investigations. It returns NotFound if the case does
// not exist.
func (e *Engine) Case(ctx context.Context, id tasker.ID) (tasker.CaseDetail, error) {
	return e.cases.FindDetail(ctx, id)
}

// WhyCase explains why investigations share a case.
func (e *Engine) WhyCase(ctx context.Context, id tasker.ID) (tasker.CaseGrouping, error) {
	return e.cases.Why(ctx, id)
}

// CaseChanges compares the failures of a case with the successes of the same step, and returns
// the impact.
func (e *Engine) CaseChanges(ctx context.Context, id tasker.ID) (tasker.CaseComparison, error) {
	return e.cases.Changes(ctx, id)
}

// UpdateCase assigns, snoozes or annotates a case and returns it. Investigations and tasks do not
// change.
func (e *Engine) UpdateCase(ctx context.Context, id tasker.ID, u tasker.CaseUpdate) (tasker.Case, error) {
	return e.cases.Update(ctx, id, u)
}

// MergeCases merges a case into another one.
func (e *Engine) MergeCases(ctx context.Context, from, into tasker.ID, actor, reason string) error {
	return e.cases.Merge(ctx, from, into, actor, reason)
}

// UnmergeCase reverts a merge.
func (e *Engine) UnmergeCase(ctx context.Context, id tasker.ID, actor, reason string) error {
	return e.cases.Unmerge(ctx, id, actor, reason)
}

// SplitCase moves present and future failures out of a case and returns the number of affected
// open investigations. The new case exists within seconds, if some process executes Run.
func (e *Engine) SplitCase(ctx context.Context, id tasker.ID, s tasker.CaseSplit) (int64, error) {
	return e.cases.Split(ctx, id, s)
}

// Incidents returns incidents that match a filter, newest first, and reports whether more follow.
// Limit has the same default and maximum as in InvestigationQueue.
func (e *Engine) Incidents(ctx context.Context, f tasker.IncidentFilter) (list []tasker.Incident, more bool, err error) {
	f.Limit = clampLimit(f.Limit)
	return e.db.Incidents(ctx, f)
}

// Incident returns an incident with its cases and notifications. It returns NotFound if the
// incident does not exist.
func (e *Engine) Incident(ctx context.Context, id tasker.ID) (tasker.IncidentDetail, error) {
	return e.db.Incident(ctx, id)
}

// Investigations returns open and ended investigations, newest first, without their history.
// Limit has the same default and maximum as in InvestigationQueue.
func (e *Engine) Investigations(ctx context.Context, f tasker.EntryFilter) ([]tasker.Entry, error) {
	f.Limit = clampLimit(f.Limit)
	return e.db.Entries(ctx, f)
}

// Investigation returns an investigation with its evidence and history. It returns NotFound if
// the investigation does not exist.
func (e *Engine) Investigation(ctx context.Context, id tasker.ID) (tasker.Entry, error) {
	return e.db.Entry(ctx, id)
}

// EvidenceFile exports an investigation: the failed step, its inputs, its failures and the
// history. It returns NotFound if the investigation does not exist.
func (e *Engine) EvidenceFile(ctx context.Context, id tasker.ID) (tasker.EvidenceFile, error) {
	return evidencefile.New(e.db, e.engine).Export(ctx, id)
}

// IncidentReport returns the post-incident report of a case, an incident or a time range. It
// returns NotFound if the case or incident does not exist.
func (e *Engine) IncidentReport(ctx context.Context, q tasker.IncidentReportQuery) (tasker.IncidentReport, error) {
	return incidentreport.Build(ctx, e.db, q)
}

// IncidentReportMarkdown returns the post-incident report as Markdown.
func (e *Engine) IncidentReportMarkdown(ctx context.Context, q tasker.IncidentReportQuery) (string, error) {
	r, err := incidentreport.Build(ctx, e.db, q)
	if err != nil {
		return "", err
	}
	return incidentreport.Markdown(r), nil
}

// InvestigationOf returns the latest investigation of a task. It returns NotFound if the task has
// none.
func (e *Engine) InvestigationOf(ctx context.Context, task tasker.ID) (tasker.Entry, error) {
	return e.db.EntryOfTask(ctx, task)
}

// OpenInvestigation opens an investigation on request of an operator; the task is not changed. It
// returns a Conflict with the id of the open investigation if there is one.
func (e *Engine) OpenInvestigation(ctx context.Context, task tasker.ID, o tasker.NewEntry) (tasker.Entry, error) {
	return e.dlq.Open(ctx, task, o)
}

// UpdateInvestigation changes the notes, the metadata or the status of an investigation. To end
// one, repair the steps with OperateStep, then set the status with notes and ResolvedBy. Warnings
// list possible oversights.
func (e *Engine) UpdateInvestigation(ctx context.Context, id tasker.ID, u tasker.EntryUpdate) (entry tasker.Entry, warnings []string, err error) {
	return e.dlq.Update(ctx, id, u)
}

// Explain returns why a task, step, investigation, case, operation or hold is in its state. It
// returns NotFound for an unknown id.
func (e *Engine) Explain(ctx context.Context, id tasker.ID) (tasker.Explanation, error) {
	return e.why.Explain(ctx, id)
}

// ExplainQueue returns why the steps of a namespace and a handler are waiting.
func (e *Engine) ExplainQueue(ctx context.Context, namespace, handler string) (tasker.Explanation, error) {
	return e.why.ExplainQueue(ctx, namespace, handler)
}
