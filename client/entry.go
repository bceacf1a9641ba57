package client

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

// Entries lists investigations.
func (c *Client) Entries(ctx context.Context, f tasker.EntryFilter) ([]tasker.Entry, error) {
	return call(ctx, c, endpoint.ListEntries, f, none)
}

// Entry returns an investigation with up to 500 rows of its history. [Client.EntryFrom] returns
// further rows.
func (c *Client) Entry(ctx context.Context, entry tasker.ID) (tasker.Entry, error) {
	return c.EntryFrom(ctx, entry, 0)
}

// EntryFrom returns an investigation with its history from row offset on.
func (c *Client) EntryFrom(ctx context.Context, entry tasker.ID, offset int) (tasker.Entry, error) {
	return call(ctx, c, endpoint.GetEntry, apiv1.EntryQuery{HistoryOffset: offset}, none, entry)
}

// EvidenceFile exports an investigation: the failed step, its inputs, its failures and the history.
func (c *Client) EvidenceFile(ctx context.Context, entry tasker.ID) (tasker.EvidenceFile, error) {
	return call(ctx, c, endpoint.GetEvidenceFile, none, none, entry)
}

// EntryOfTask returns the latest investigation of a task.
func (c *Client) EntryOfTask(ctx context.Context, task tasker.ID) (tasker.Entry, error) {
	return call(ctx, c, endpoint.GetEntryOfTask, none, none, task)
}

// UpdateEntry annotates or ends an investigation. It does not change the task; use
// [Client.ActOnStep] to repair it.
func (c *Client) UpdateEntry(ctx context.Context, entry tasker.ID, u apiv1.UpdateEntry) (apiv1.UpdatedEntry, error) {
	return call(ctx, c, endpoint.UpdateEntry, none, u, entry)
}

// OpenEntry opens an investigation of a task. It returns a Conflict with the id of the open
// investigation if there is one.
func (c *Client) OpenEntry(ctx context.Context, task tasker.ID, o apiv1.OpenEntry) (tasker.Entry, error) {
	return call(ctx, c, endpoint.OpenEntry, none, o, task)
}

// Stats counts the investigations by reason.
func (c *Client) Stats(ctx context.Context) ([]tasker.EntryStats, error) {
	return call(ctx, c, endpoint.GetEntryStats, none, none)
}

// InvestigationQueue lists open investigations. Callers that end listed investigations must read
// the first page again, because later ones move up.
func (c *Client) InvestigationQueue(ctx context.Context, f tasker.InvestigationFilter) ([]tasker.InvestigationQueueEntry, error) {
	return call(ctx, c, endpoint.GetQueue, f, none)
}

// RelatedEntries counts the other investigations of the same case and returns the latest ended
// ones. Limit 0 means the server's default.
func (c *Client) RelatedEntries(ctx context.Context, entry tasker.ID, limit int) (tasker.RelatedEntries, error) {
	return call(ctx, c, endpoint.GetRelatedEntries, apiv1.RelatedQuery{Limit: limit}, none, entry)
}

// EntryCounts counts the investigations opened and ended per interval, oldest first; the last
// interval is the current one. The width is rounded down to minutes. Zero values mean the
// server's defaults.
func (c *Client) EntryCounts(ctx context.Context, width time.Duration, intervals int) ([]tasker.EntryCount, error) {
	return call(ctx, c, endpoint.GetEntryCounts, apiv1.EntryCountQuery{Interval: width.Truncate(time.Minute), Intervals: intervals}, none)
}

// EntryTimes returns the phase durations of the investigations that ended within the window, which
// is rounded down to minutes. Zero means the server's default.
func (c *Client) EntryTimes(ctx context.Context, window time.Duration) (tasker.ResolutionTimes, error) {
	return call(ctx, c, endpoint.GetEntryTimes, apiv1.EntryTimesQuery{Window: window.Truncate(time.Minute)}, none)
}

// Staleness lists tasks with a staleness threshold, stale ones first. Limit 0 means the server's
// default.
func (c *Client) Staleness(ctx context.Context, f tasker.StalenessFilter) ([]tasker.StaleTask, error) {
	return call(ctx, c, endpoint.GetStaleness, f, none)
}

// Cases lists cases, highest impact first. Limit 0 means the server's default.
func (c *Client) Cases(ctx context.Context, f tasker.CaseFilter) (apiv1.CaseList, error) {
	return call(ctx, c, endpoint.ListCases, f, none)
}

// Case returns a case with details of its investigations.
func (c *Client) Case(ctx context.Context, id tasker.ID) (tasker.CaseDetail, error) {
	return call(ctx, c, endpoint.GetCase, none, none, id)
}

// WhyCase explains why investigations share a case.
func (c *Client) WhyCase(ctx context.Context, id tasker.ID) (tasker.CaseGrouping, error) {
	return call(ctx, c, endpoint.WhyCase, none, none, id)
}

// CaseChanges compares the failures of a case with the successes of the same step, and returns
// the impact.
func (c *Client) CaseChanges(ctx context.Context, id tasker.ID) (tasker.CaseComparison, error) {
	return call(ctx, c, endpoint.ChangesOfCase, none, none, id)
}

// UpdateCase changes a case and returns it.
func (c *Client) UpdateCase(ctx context.Context, id tasker.ID, u apiv1.UpdateCase) (tasker.Case, error) {
	return call(ctx, c, endpoint.UpdateCase, none, u, id)
}

// MergeCase merges a case into another one, which it returns.
func (c *Client) MergeCase(ctx context.Context, id tasker.ID, m apiv1.MergeCase) (tasker.Case, error) {
	return call(ctx, c, endpoint.MergeCase, none, m, id)
}

// UnmergeCase reverts a merge and returns the merged case.
func (c *Client) UnmergeCase(ctx context.Context, id tasker.ID, u apiv1.UnmergeCase) (tasker.Case, error) {
	return call(ctx, c, endpoint.UnmergeCase, none, u, id)
}

// SplitCase moves failures out of a case.
func (c *Client) SplitCase(ctx context.Context, id tasker.ID, s apiv1.SplitCase) (apiv1.CaseSplit, error) {
	return call(ctx, c, endpoint.SplitCase, none, s, id)
}

// Incidents lists incidents.
func (c *Client) Incidents(ctx context.Context, f tasker.IncidentFilter) (apiv1.IncidentList, error) {
	return call(ctx, c, endpoint.ListIncidents, f, none)
}

// Incident returns an incident with its cases and notifications.
func (c *Client) Incident(ctx context.Context, id tasker.ID) (tasker.IncidentDetail, error) {
	return call(ctx, c, endpoint.GetIncident, none, none, id)
}

// IncidentReport returns the post-incident report of a case, an incident or a time range.
func (c *Client) IncidentReport(ctx context.Context, q tasker.IncidentReportQuery) (tasker.IncidentReport, error) {
	return send[tasker.IncidentReport](ctx, c, incidentReportRequest(q, ""))
}

// IncidentReportMarkdown returns the post-incident report as Markdown.
func (c *Client) IncidentReportMarkdown(ctx context.Context, q tasker.IncidentReportQuery) (string, error) {
	return send[string](ctx, c, incidentReportRequest(q, apiv1.ReportMarkdown))
}

func incidentReportRequest(q tasker.IncidentReportQuery, format apiv1.ReportFormat) request {
	query := apiv1.ReportQuery{Format: format, From: q.From, To: q.To}
	switch {
	case q.Case != nil:
		return newRequest(endpoint.ReportOfCase, query, none, *q.Case)
	case q.Incident != nil:
		return newRequest(endpoint.ReportOfIncident, query, none, *q.Incident)
	default:
		return newRequest(endpoint.ReportOfTime, apiv1.TimeReportQuery{ReportQuery: query, Namespace: q.Namespace}, none)
	}
}

// TryMessage sends a test notification through the first matching route.
func (c *Client) TryMessage(ctx context.Context, m apiv1.TryMessage) (apiv1.TriedMessage, error) {
	return call(ctx, c, endpoint.TryMessage, none, m)
}
