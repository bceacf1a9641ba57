package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// EntryQuery selects and pages investigations, newest first.
type EntryQuery struct {
	Status tasker.ResolutionStatus // empty means any
	Reason tasker.Reason
	Page
}

// Entries lists investigations.
func (c *Client) Entries(ctx context.Context, q EntryQuery) ([]apiv1.Entry, error) {
	query := q.toValues()
	setText(query, "resolution_status", string(q.Status))
	setText(query, "dlq_reason", string(q.Reason))
	return get[[]apiv1.Entry](ctx, c, query, "v1", "dlq")
}

// Entry returns an investigation with up to 500 rows of its history. [Client.EntryFrom] returns
// further rows.
func (c *Client) Entry(ctx context.Context, entry tasker.ID) (apiv1.Entry, error) {
	return get[apiv1.Entry](ctx, c, nil, "v1", "dlq", "entry", entry.String())
}

// EntryFrom returns an investigation with its history from row offset on.
func (c *Client) EntryFrom(ctx context.Context, entry tasker.ID, offset int) (apiv1.Entry, error) {
	return get[apiv1.Entry](ctx, c, url.Values{"history_offset": {strconv.Itoa(offset)}}, "v1", "dlq", "entry", entry.String())
}

// EvidenceFile exports an investigation: the failed step, its inputs, its failures and the history.
func (c *Client) EvidenceFile(ctx context.Context, entry tasker.ID) (tasker.EvidenceFile, error) {
	return get[tasker.EvidenceFile](ctx, c, nil, "v1", "dlq", "entry", entry.String(), "evidence")
}

// EntryOfTask returns the latest investigation of a task.
func (c *Client) EntryOfTask(ctx context.Context, task tasker.ID) (apiv1.Entry, error) {
	return get[apiv1.Entry](ctx, c, nil, "v1", "dlq", "task", task.String())
}

// UpdateEntry annotates or ends an investigation. It does not change the task; use
// [Client.ActOnStep] to repair it.
func (c *Client) UpdateEntry(ctx context.Context, entry tasker.ID, u apiv1.UpdateEntry) (apiv1.UpdatedEntry, error) {
	return sendKeyed[apiv1.UpdatedEntry](ctx, c, http.MethodPatch, u, "v1", "dlq", "entry", entry.String())
}

// OpenEntry opens an investigation of a task. It returns a Conflict with the id of the open
// investigation if there is one.
func (c *Client) OpenEntry(ctx context.Context, task tasker.ID, o apiv1.OpenEntry) (apiv1.Entry, error) {
	return sendKeyed[apiv1.Entry](ctx, c, http.MethodPost, o, "v1", "dlq", "task", task.String())
}

// Stats counts the investigations by reason.
func (c *Client) Stats(ctx context.Context) ([]tasker.EntryStats, error) {
	return get[[]tasker.EntryStats](ctx, c, nil, "v1", "dlq", "stats")
}

// InvestigationQuery selects and pages open investigations, most urgent first.
type InvestigationQuery struct {
	Reason    tasker.Reason // empty means any
	Namespace string
	Name      string           // of the template
	State     tasker.TaskState // current state of the task
	Recovered *bool            // whether the task continued automatically
	Case      string           // case id
	CaseKey   string           // deprecated
	MinAge    time.Duration    // rounded down to minutes
	Text      string           // substring of namespace, template, step, error pattern or assignee, or part of an id

	// Search fields of the task, supported by the queue only.
	Tags          []string // all of them
	CorrelationID string
	Attributes    []tasker.AttributeFilter
	Page
}

// InvestigationQueue lists open investigations. Callers that end listed investigations must read
// the first page again, because later ones move up.
func (c *Client) InvestigationQueue(ctx context.Context, q InvestigationQuery) ([]apiv1.InvestigationQueueEntry, error) {
	return get[[]apiv1.InvestigationQueueEntry](ctx, c, q.toValues(), "v1", "dlq", "investigation-queue")
}

func (q InvestigationQuery) toValues() url.Values {
	query := q.Page.toValues()
	setText(query, "dlq_reason", string(q.Reason))
	setText(query, "namespace", q.Namespace)
	setText(query, "name", q.Name)
	setText(query, "current_state", string(q.State))
	setText(query, "text", q.Text)
	if q.Recovered != nil {
		query.Set("recovered", strconv.FormatBool(*q.Recovered))
	}
	setText(query, "case", q.Case)
	setText(query, "case_key", q.CaseKey)
	setMinutes(query, "min_age_minutes", q.MinAge)
	for _, tag := range q.Tags {
		query.Add("tag", tag)
	}
	setText(query, "correlation_id", q.CorrelationID)
	for _, a := range q.Attributes {
		query.Add("attribute", a.String())
	}
	return query
}

// setMinutes sets a parameter to a positive number of whole minutes.
func setMinutes(v url.Values, name string, d time.Duration) {
	if minutes := int(d / time.Minute); minutes > 0 {
		v.Set(name, strconv.Itoa(minutes))
	}
}

// RelatedEntries counts the other investigations of the same case and returns the latest ended
// ones. Limit 0 means the server's default.
func (c *Client) RelatedEntries(ctx context.Context, entry tasker.ID, limit int) (apiv1.RelatedEntries, error) {
	return get[apiv1.RelatedEntries](ctx, c, Page{Limit: limit}.toValues(), "v1", "dlq", "entry", entry.String(),
		"related")
}

// EntryCounts counts the investigations opened and ended per interval, oldest first; the last
// interval is the current one. The width is rounded down to minutes. Zero values mean the
// server's defaults.
func (c *Client) EntryCounts(ctx context.Context, width time.Duration, intervals int) ([]tasker.EntryCount, error) {
	query := url.Values{}
	setMinutes(query, "interval_minutes", width)
	if intervals > 0 {
		query.Set("intervals", strconv.Itoa(intervals))
	}
	return get[[]tasker.EntryCount](ctx, c, query, "v1", "dlq", "counts")
}

// EntryTimes returns the phase durations of the investigations that ended within the window, which
// is rounded down to minutes. Zero means the server's default.
func (c *Client) EntryTimes(ctx context.Context, window time.Duration) (apiv1.EntryTimes, error) {
	query := url.Values{}
	setMinutes(query, "minutes", window)
	return get[apiv1.EntryTimes](ctx, c, query, "v1", "dlq", "times")
}

// StalenessQuery selects and pages tasks with a staleness threshold.
type StalenessQuery struct {
	Health    tasker.Health // empty means any
	Namespace string
	Name      string // of the template
	Page
}

// Staleness lists tasks with a staleness threshold, stale ones first. Limit 0 means the server's
// default.
func (c *Client) Staleness(ctx context.Context, q StalenessQuery) ([]tasker.StaleTask, error) {
	query := q.toValues()
	setText(query, "health_status", string(q.Health))
	setText(query, "namespace", q.Namespace)
	setText(query, "name", q.Name)
	return get[[]tasker.StaleTask](ctx, c, query, "v1", "dlq", "staleness")
}

// CaseQuery selects and pages cases. The embedded query selects the open investigations to count.
type CaseQuery struct {
	InvestigationQuery
	CaseState tasker.CaseState // [tasker.CaseResolved] for resolved cases; empty: all others
	Owner     string
	Unowned   bool

	FailedAgain bool // with a step that failed again after a repair
}

// Cases lists cases, highest impact first. Limit 0 means the server's default.
func (c *Client) Cases(ctx context.Context, q CaseQuery) (apiv1.CaseList, error) {
	query := q.toValues()
	setText(query, "case_state", string(q.CaseState))
	setText(query, "owner", q.Owner)
	setFlag(query, "unowned", q.Unowned)
	setFlag(query, "failed_again", q.FailedAgain)
	return get[apiv1.CaseList](ctx, c, query, "v1", "cases")
}

// Case returns a case with details of its investigations.
func (c *Client) Case(ctx context.Context, id tasker.ID) (apiv1.CaseDetail, error) {
	return get[apiv1.CaseDetail](ctx, c, url.Values{}, "v1", "cases", id.String())
}

// WhyCase explains why investigations share a case.
func (c *Client) WhyCase(ctx context.Context, id tasker.ID) (apiv1.CaseWhy, error) {
	return get[apiv1.CaseWhy](ctx, c, url.Values{}, "v1", "cases", id.String(), "why")
}

// CaseChanges compares the failures of a case with the successes of the same step, and returns
// the impact.
func (c *Client) CaseChanges(ctx context.Context, id tasker.ID) (apiv1.CaseChanges, error) {
	return get[apiv1.CaseChanges](ctx, c, url.Values{}, "v1", "cases", id.String(), "changes")
}

// UpdateCase changes a case and returns it.
func (c *Client) UpdateCase(ctx context.Context, id tasker.ID, u apiv1.UpdateCase) (apiv1.Case, error) {
	return send[apiv1.Case](ctx, c, http.MethodPatch, u, "v1", "cases", id.String())
}

// MergeCase merges a case into another one, which it returns.
func (c *Client) MergeCase(ctx context.Context, id tasker.ID, m apiv1.MergeCase) (apiv1.Case, error) {
	return send[apiv1.Case](ctx, c, http.MethodPost, m, "v1", "cases", id.String(), "merge")
}

// UnmergeCase reverts a merge and returns the merged case.
func (c *Client) UnmergeCase(ctx context.Context, id tasker.ID, u apiv1.UnmergeCase) (apiv1.Case, error) {
	return send[apiv1.Case](ctx, c, http.MethodPost, u, "v1", "cases", id.String(), "unmerge")
}

// SplitCase moves failures out of a case.
func (c *Client) SplitCase(ctx context.Context, id tasker.ID, s apiv1.SplitCase) (apiv1.CaseSplit, error) {
	return send[apiv1.CaseSplit](ctx, c, http.MethodPost, s, "v1", "cases", id.String(), "split")
}

// IncidentQuery selects and pages incidents, newest first.
type IncidentQuery struct {
	State     tasker.IncidentState // empty means any
	Namespace string
	Page
}

// Incidents lists incidents.
func (c *Client) Incidents(ctx context.Context, q IncidentQuery) (apiv1.IncidentList, error) {
	query := q.toValues()
	setText(query, "state", string(q.State))
	setText(query, "namespace", q.Namespace)
	return get[apiv1.IncidentList](ctx, c, query, "v1", "incidents")
}

// Incident returns an incident with its cases and notifications.
func (c *Client) Incident(ctx context.Context, id tasker.ID) (apiv1.IncidentDetail, error) {
	return get[apiv1.IncidentDetail](ctx, c, nil, "v1", "incidents", id.String())
}

// IncidentReport returns the post-incident report of a case, an incident or a time range.
func (c *Client) IncidentReport(ctx context.Context, q tasker.IncidentReportQuery) (tasker.IncidentReport, error) {
	path, query := incidentReportRequest(q)
	return get[tasker.IncidentReport](ctx, c, query, path...)
}

// IncidentReportMarkdown returns the post-incident report as Markdown.
func (c *Client) IncidentReportMarkdown(ctx context.Context, q tasker.IncidentReportQuery) (string, error) {
	path, query := incidentReportRequest(q)
	query.Set("format", "md")
	return get[string](ctx, c, query, path...)
}

func incidentReportRequest(q tasker.IncidentReportQuery) (path []string, query url.Values) {
	query = url.Values{}
	setTime(query, "from", q.From)
	setTime(query, "to", q.To)
	switch {
	case q.Case != nil:
		return []string{"v1", "cases", q.Case.String(), "report"}, query
	case q.Incident != nil:
		return []string{"v1", "incidents", q.Incident.String(), "report"}, query
	}
	setText(query, "namespace", q.Namespace)
	return []string{"v1", "reports"}, query
}

// TryMessage sends a test notification through the first matching route.
func (c *Client) TryMessage(ctx context.Context, m apiv1.TryMessage) (apiv1.TriedMessage, error) {
	return send[apiv1.TriedMessage](ctx, c, http.MethodPost, m, "v1", "messages", "test")
}
