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

// An EntryQuery selects and pages investigations, newest first.
type EntryQuery struct {
	Status tasker.ResolutionStatus // empty means any
	Reason tasker.Reason
	Page
}

// Entries lists investigations.
func (c *Client) Entries(ctx context.Context, q EntryQuery) ([]apiv1.Entry, error) {
	query := q.values()
	setText(query, "resolution_status", string(q.Status))
	setText(query, "dlq_reason", string(q.Reason))
	return get[[]apiv1.Entry](ctx, c, query, "v1", "dlq")
}

// Entry returns an investigation with its history, at most 500 lines of it;
// [Client.EntryFrom] has the rest.
func (c *Client) Entry(ctx context.Context, entry tasker.ID) (apiv1.Entry, error) {
	return get[apiv1.Entry](ctx, c, nil, "v1", "dlq", "entry", entry.String())
}

// EntryFrom returns an investigation with what its history has behind offset lines.
func (c *Client) EntryFrom(ctx context.Context, entry tasker.ID, offset int) (apiv1.Entry, error) {
	return get[apiv1.Entry](ctx, c, url.Values{"history_offset": {strconv.Itoa(offset)}}, "v1", "dlq", "entry", entry.String())
}

// EvidenceFile returns an investigation as one file: the step that failed, what its handler
// was given, its failures and its history.
func (c *Client) EvidenceFile(ctx context.Context, entry tasker.ID) (tasker.EvidenceFile, error) {
	return get[tasker.EvidenceFile](ctx, c, nil, "v1", "dlq", "entry", entry.String(), "evidence")
}

// EntryOfTask returns the newest investigation of a task.
func (c *Client) EntryOfTask(ctx context.Context, task tasker.ID) (apiv1.Entry, error) {
	return get[apiv1.Entry](ctx, c, nil, "v1", "dlq", "task", task.String())
}

// UpdateEntry records what an investigator found. It moves no task: the repair is
// [Client.ActOnStep].
func (c *Client) UpdateEntry(ctx context.Context, entry tasker.ID, u apiv1.UpdateEntry) (apiv1.UpdatedEntry, error) {
	return call[apiv1.UpdatedEntry](ctx, c, request{
		method: http.MethodPatch, path: []string{"v1", "dlq", "entry", entry.String()}, body: u, repeatable: true,
		key: tasker.NewID().String(),
	})
}

// OpenEntry opens an investigation of a task by hand. It is a Conflict, with the
// id of the open one as details, when there is one.
func (c *Client) OpenEntry(ctx context.Context, task tasker.ID, o apiv1.OpenEntry) (apiv1.Entry, error) {
	return call[apiv1.Entry](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "dlq", "task", task.String()}, body: o, key: tasker.NewID().String(), repeatable: true,
	})
}

// Stats counts the investigations, by reason.
func (c *Client) Stats(ctx context.Context) ([]tasker.EntryStats, error) {
	return get[[]tasker.EntryStats](ctx, c, nil, "v1", "dlq", "stats")
}

// An InvestigationQuery selects and pages open investigations, the most urgent first.
type InvestigationQuery struct {
	Reason    tasker.Reason // empty means any
	Namespace string
	Name      string           // of the template
	State     tasker.TaskState // of the task now
	Recovered *bool            // whether the task went on by itself
	Case      string           // the id of a case
	CaseKey   string           // deprecated: a case_key
	MinAge    time.Duration    // opened at least so long ago; whole minutes count
	Text      string           // in namespace, template, step, error pattern or assignee, or a part of an id

	// What the task is found by; of the queue only.
	Tags          []string // it has all of them
	CorrelationID string
	Attributes    []tasker.AttributeFilter
	Page
}

// InvestigationQueue lists open investigations. While some of them end, those behind them
// move up: who ends what is listed asks for the first page again.
func (c *Client) InvestigationQueue(ctx context.Context, q InvestigationQuery) ([]apiv1.InvestigationQueueEntry, error) {
	return get[[]apiv1.InvestigationQueueEntry](ctx, c, q.query(), "v1", "dlq", "investigation-queue")
}

func (q InvestigationQuery) query() url.Values {
	query := q.values()
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

// setMinutes sets a parameter to the whole minutes of a duration, unless there are none.
func setMinutes(v url.Values, name string, d time.Duration) {
	if minutes := int(d / time.Minute); minutes > 0 {
		v.Set(name, strconv.Itoa(minutes))
	}
}

// RelatedEntries returns how many other investigations of the same case are open, and how
// others ended, with the newest of them. Limit 0 means the server's default.
func (c *Client) RelatedEntries(ctx context.Context, entry tasker.ID, limit int) (apiv1.RelatedEntries, error) {
	return get[apiv1.RelatedEntries](ctx, c, Page{Limit: limit}.values(), "v1", "dlq", "entry", entry.String(), "related")
}

// EntryCounts counts the investigations opened and ended in each of the last intervals,
// oldest first; the present one is the last. The width counts in whole minutes. Zero
// means the server's default, for both.
func (c *Client) EntryCounts(ctx context.Context, width time.Duration, intervals int) ([]tasker.EntryCount, error) {
	query := url.Values{}
	setMinutes(query, "interval_minutes", width)
	if intervals > 0 {
		query.Set("intervals", strconv.Itoa(intervals))
	}
	return get[[]tasker.EntryCount](ctx, c, query, "v1", "dlq", "counts")
}

// EntryTimes says how long the investigations took that ended in the last window, which counts
// in whole minutes. Zero means the server's default.
func (c *Client) EntryTimes(ctx context.Context, window time.Duration) (apiv1.EntryTimes, error) {
	query := url.Values{}
	setMinutes(query, "minutes", window)
	return get[apiv1.EntryTimes](ctx, c, query, "v1", "dlq", "times")
}

// A StalenessQuery selects and pages tasks with a staleness threshold.
type StalenessQuery struct {
	Health    tasker.Health // empty means any
	Namespace string
	Name      string // of the template
	Page
}

// Staleness lists the tasks with a staleness threshold, those past it first. Limit 0 means the
// server's default.
func (c *Client) Staleness(ctx context.Context, q StalenessQuery) ([]tasker.StaleTask, error) {
	query := q.values()
	setText(query, "health_status", string(q.Health))
	setText(query, "namespace", q.Namespace)
	setText(query, "name", q.Name)
	return get[[]tasker.StaleTask](ctx, c, query, "v1", "dlq", "staleness")
}

// A CaseQuery selects and pages cases. The fields of InvestigationQuery select the open
// investigations that are counted.
type CaseQuery struct {
	InvestigationQuery
	CaseState tasker.CaseState // [tasker.CaseResolved]: those without open investigations; empty means all others
	Owner     string
	Unowned   bool

	FailedAgain bool // only those in which a step failed again after a repair
}

// Cases lists cases, those that cost most first. Limit 0 means the server's default.
func (c *Client) Cases(ctx context.Context, q CaseQuery) (apiv1.CaseList, error) {
	query := q.query()
	setText(query, "case_state", string(q.CaseState))
	setText(query, "owner", q.Owner)
	setFlag(query, "unowned", q.Unowned)
	setFlag(query, "failed_again", q.FailedAgain)
	return get[apiv1.CaseList](ctx, c, query, "v1", "cases")
}

// Case returns one case with what is known of its investigations.
func (c *Client) Case(ctx context.Context, id tasker.ID) (apiv1.CaseDetail, error) {
	return get[apiv1.CaseDetail](ctx, c, url.Values{}, "v1", "cases", id.String())
}

// WhyCase returns why the investigations of a case are one.
func (c *Client) WhyCase(ctx context.Context, id tasker.ID) (apiv1.CaseWhy, error) {
	return get[apiv1.CaseWhy](ctx, c, url.Values{}, "v1", "cases", id.String(), "why")
}

// CaseChanges returns what differs between the failures of a case and the successes of the
// same step, who is hit, and until when.
func (c *Client) CaseChanges(ctx context.Context, id tasker.ID) (apiv1.CaseChanges, error) {
	return get[apiv1.CaseChanges](ctx, c, url.Values{}, "v1", "cases", id.String(), "changes")
}

// UpdateCase changes a case, and returns it as it is then.
func (c *Client) UpdateCase(ctx context.Context, id tasker.ID, u apiv1.UpdateCase) (apiv1.Case, error) {
	return call[apiv1.Case](ctx, c, request{method: http.MethodPatch, path: []string{"v1", "cases", id.String()}, body: u})
}

// MergeCase has the investigations of a case belong to another one, which is returned.
func (c *Client) MergeCase(ctx context.Context, id tasker.ID, m apiv1.MergeCase) (apiv1.Case, error) {
	return call[apiv1.Case](ctx, c, request{method: http.MethodPost, path: []string{"v1", "cases", id.String(), "merge"}, body: m})
}

// UnmergeCase takes a merge back, and returns the case that was merged.
func (c *Client) UnmergeCase(ctx context.Context, id tasker.ID, u apiv1.UnmergeCase) (apiv1.Case, error) {
	return call[apiv1.Case](ctx, c, request{method: http.MethodPost, path: []string{"v1", "cases", id.String(), "unmerge"}, body: u})
}

// SplitCase takes failures out of a case.
func (c *Client) SplitCase(ctx context.Context, id tasker.ID, s apiv1.SplitCase) (apiv1.CaseSplit, error) {
	return call[apiv1.CaseSplit](ctx, c, request{method: http.MethodPost, path: []string{"v1", "cases", id.String(), "split"}, body: s})
}

// An IncidentQuery selects and pages incidents, newest first.
type IncidentQuery struct {
	State     tasker.IncidentState // empty means any
	Namespace string
	Page
}

// Incidents lists incidents: cases of one namespace that people were told of together.
func (c *Client) Incidents(ctx context.Context, q IncidentQuery) (apiv1.IncidentList, error) {
	query := q.values()
	setText(query, "state", string(q.State))
	setText(query, "namespace", q.Namespace)
	return get[apiv1.IncidentList](ctx, c, query, "v1", "incidents")
}

// Incident returns one incident with its cases and with what people were told of it.
func (c *Client) Incident(ctx context.Context, id tasker.ID) (apiv1.IncidentDetail, error) {
	return get[apiv1.IncidentDetail](ctx, c, nil, "v1", "incidents", id.String())
}

// IncidentReport says how an incident went: a case, an incident, or the investigations that were
// opened in a time.
func (c *Client) IncidentReport(ctx context.Context, q tasker.IncidentReportQuery) (tasker.IncidentReport, error) {
	path, query := reportOf(q)
	return get[tasker.IncidentReport](ctx, c, query, path...)
}

// IncidentReportMarkdown is [Client.IncidentReport] as a document for people.
func (c *Client) IncidentReportMarkdown(ctx context.Context, q tasker.IncidentReportQuery) (string, error) {
	path, query := reportOf(q)
	query.Set("format", "md")
	return get[string](ctx, c, query, path...)
}

func reportOf(q tasker.IncidentReportQuery) (path []string, query url.Values) {
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

// TryMessage has a message sent about nothing, by the first route that is for it.
func (c *Client) TryMessage(ctx context.Context, m apiv1.TryMessage) (apiv1.TriedMessage, error) {
	return call[apiv1.TriedMessage](ctx, c, request{method: http.MethodPost, path: []string{"v1", "messages", "test"}, body: m})
}
