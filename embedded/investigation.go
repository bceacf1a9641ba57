package embedded

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/evidencefile"
	"tasker.example/tasker/internal/incidentreport"
)

// InvestigationQueue returns the open investigations of a filter, the most urgent first,
// and reports whether there are more. A limit of 0 means 100; the most is 1,000.
func (e *Engine) InvestigationQueue(ctx context.Context, f tasker.InvestigationFilter) (list []tasker.InvestigationQueueEntry, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.db.InvestigationQueue(ctx, f)
}

// Cases returns the cases of a filter, those that cost most first, and reports whether there
// are more. Limits are those of InvestigationQueue.
func (e *Engine) Cases(ctx context.Context, f tasker.CaseFilter) (list []tasker.Case, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.db.Cases(ctx, f)
}

// Case returns a case with what is known of its investigations. The error is NotFound when
// there is none.
func (e *Engine) Case(ctx context.Context, id tasker.ID) (tasker.CaseDetail, error) {
	return e.cases.Detail(ctx, id)
}

// WhyCase says why the investigations of a case are one.
func (e *Engine) WhyCase(ctx context.Context, id tasker.ID) (tasker.CaseGrouping, error) {
	return e.cases.Why(ctx, id)
}

// CaseChanges says what differs between the failures of a case and the successes of the same
// step, who is hit, and until when.
func (e *Engine) CaseChanges(ctx context.Context, id tasker.ID) (tasker.CaseComparison, error) {
	return e.cases.Changes(ctx, id)
}

// UpdateCase takes a case, lets it rest, or notes something, and returns it as it is then.
// No investigation and no task changes.
func (e *Engine) UpdateCase(ctx context.Context, id tasker.ID, u tasker.CaseUpdate) (tasker.Case, error) {
	return e.cases.Update(ctx, id, u)
}

// MergeCases has the investigations of a case belong to another one, from now on.
func (e *Engine) MergeCases(ctx context.Context, from, into tasker.ID, actor, reason string) error {
	return e.cases.Merge(ctx, from, into, actor, reason)
}

// UnmergeCase takes back that a case was merged into another one.
func (e *Engine) UnmergeCase(ctx context.Context, id tasker.ID, actor, reason string) error {
	return e.cases.Unmerge(ctx, id, actor, reason)
}

// SplitCase takes failures out of a case, now and from now on, and returns how many open
// investigations are concerned. They are a case of their own within seconds, while Run runs somewhere.
func (e *Engine) SplitCase(ctx context.Context, id tasker.ID, s tasker.CaseSplit) (int64, error) {
	return e.cases.Split(ctx, id, s)
}

// Incidents returns the incidents of a filter, newest first, and reports whether there are
// more. Limits are those of InvestigationQueue.
func (e *Engine) Incidents(ctx context.Context, f tasker.IncidentFilter) (list []tasker.Incident, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.db.Incidents(ctx, f)
}

// Incident returns an incident with its cases and with what people were told of it. The
// error is NotFound when there is none.
func (e *Engine) Incident(ctx context.Context, id tasker.ID) (tasker.IncidentDetail, error) {
	return e.db.Incident(ctx, id)
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

// EvidenceFile returns an investigation as one file: the step that failed, what its handler
// was given, its failures and its history. The error is NotFound when it does not exist.
func (e *Engine) EvidenceFile(ctx context.Context, id tasker.ID) (tasker.EvidenceFile, error) {
	return evidencefile.New(e.db, e.engine).Export(ctx, id)
}

// IncidentReport says how an incident went: a case, an incident, or the investigations that were
// opened in a time. The error is NotFound when there is no such case or incident.
func (e *Engine) IncidentReport(ctx context.Context, q tasker.IncidentReportQuery) (tasker.IncidentReport, error) {
	return incidentreport.Of(ctx, e.db, q)
}

// IncidentReportMarkdown is [Engine.IncidentReport] as a document for people.
func (e *Engine) IncidentReportMarkdown(ctx context.Context, q tasker.IncidentReportQuery) (string, error) {
	r, err := incidentreport.Of(ctx, e.db, q)
	if err != nil {
		return "", err
	}
	return incidentreport.Markdown(r), nil
}

// InvestigationOf returns the newest investigation of a task. The error is NotFound when
// the task has none.
func (e *Engine) InvestigationOf(ctx context.Context, task tasker.ID) (tasker.Entry, error) {
	return e.db.EntryOfTask(ctx, task)
}

// OpenInvestigation opens an investigation because a person asks for one; the task goes
// on as before. When one is open already, the error is a Conflict with its id.
func (e *Engine) OpenInvestigation(ctx context.Context, task tasker.ID, o tasker.NewEntry) (tasker.Entry, error) {
	return e.dlq.Open(ctx, task, o)
}

// UpdateInvestigation changes the notes, the metadata or the status of an investigation.
// To end one, set the status, with notes and ResolvedBy; repair the steps first, with
// OperateStep. The warnings say what may have been overlooked.
func (e *Engine) UpdateInvestigation(ctx context.Context, id tasker.ID, u tasker.EntryUpdate) (entry tasker.Entry, warnings []string, err error) {
	return e.dlq.Update(ctx, id, u)
}

// Explain says why something is where it is: a task, a step, an investigation, a case or an
// operation. The error is NotFound when nothing has the id.
func (e *Engine) Explain(ctx context.Context, id tasker.ID) (tasker.Explanation, error) {
	return e.why.Explain(ctx, id)
}

// ExplainQueue says why steps of a namespace and a handler wait.
func (e *Engine) ExplainQueue(ctx context.Context, namespace, handler string) (tasker.Explanation, error) {
	return e.why.Queue(ctx, namespace, handler)
}
