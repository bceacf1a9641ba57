package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/incidentreport"
)

func casePath(id tasker.ID) string { return Root + "/cases/" + id.String() }

// casePage shows a case: what its investigations share, how they differ, and the possible actions.
type casePage struct {
	tasker.CaseDetail
	Explained  *tasker.Condition
	Newest     *tasker.CaseSample // nil if none is open
	Verbs      []link
	Own        *link  // button to take the case
	Runs       bool   // an operation is possible
	Acts       []link // possible operations
	Idle       string // why no retry is possible
	Hold       string // form to hold its steps
	Operations []tasker.Operation
	Changed    *tasker.CaseComparison // nil if none is open or the time was too short
	AskChanged string                 // link to wait longer
	Why        *tasker.CaseGrouping   // only with ?why=1
	Seen       string                 // update time of the displayed case
}

// changedTime limits how long a case page waits for the comparison of failures with successes.
const changedTime = 250 * time.Millisecond

// showCaseReport sends the post-incident report of a case as Markdown.
func (s *server) showCaseReport(req *request) (*view, error) {
	id := req.pathID("case")
	r, err := incidentreport.Build(req.Context(), s.DB, tasker.IncidentReportQuery{Case: &id})
	if err != nil {
		return nil, err
	}
	return download(req, "report-"+id.String()+".md", "text/markdown; charset=utf-8", []byte(incidentreport.Markdown(r)))
}

// showCase shows a case. With ?why=1 it also compares the messages of the newest investigations.
// With ?changes=1 it waits for the comparison of failures with successes without a time limit.
func (s *server) showCase(req *request) (*view, error) {
	d := loadByID(req, "case", s.Cases.FindDetail)
	id := d.ID
	p := casePage{CaseDetail: d, Seen: lastSeenCase(d.Case)}
	if req.query().has("why") {
		p.Why = new(load(req, s.Cases.Why, id))
	}
	s.addChanges(req, &p)
	if len(p.Samples) > 0 {
		p.Newest = &p.Samples[0]
	}
	if s.canShowAction(req, access.UpdateInvestigations, p.Namespace) {
		p.addVerbs(req)
	}
	p.Explained = s.findCondition(req, id)
	if p.MergedInto == nil {
		p.Hold = s.buildHoldLink(req, p.Namespace, "case", p.ID.String())
	}
	s.addActions(req, &p)
	p.Operations = s.findOperations(req, id)
	return &view{page: "case", title: formatPlace(p.Case), nav: navCases, live: true, body: p}, nil
}

// addActions adds links to plan the possible operations.
func (s *server) addActions(req *request, p *casePage) {
	if p.Entries == 0 || !s.canShowAction(req, access.OperateSteps, p.Namespace) {
		return
	}
	possible := s.countPossible(req, tasker.OperationSelection{Filter: tasker.InvestigationFilter{Case: &p.ID}},
		maxFitting)
	run := casePath(p.ID) + "/run"
	p.Acts = buildActLinks(req, possible, "", "plan an operation on the case", func(act tasker.Act) string {
		if act == tasker.ActReset {
			return run
		}
		return run + "?act=" + string(act)
	})
	if p.Runs = len(possible) > 0; possible[tasker.ActReset] == 0 {
		p.Idle = "Nothing to retry: " + noFailedStep + "."
	}
}

// addChanges adds the comparison of failures with successes and the impact of the case.
func (s *server) addChanges(req *request, p *casePage) {
	patient := req.query().has("changes")
	if p.Entries == 0 {
		return
	}
	ctx, cancel := req.Context(), context.CancelFunc(func() {})
	if !patient {
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(s.PartTimeout, changedTime))
	}
	defer cancel()
	changes, err := s.Cases.Changes(ctx, p.ID)
	switch {
	case err == nil && changes.FirstFailure != nil:
		p.Changed = &changes
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && req.Context().Err() == nil:
		p.AskChanged = casePath(p.ID) + "?changes=1#changed"
	default:
		req.fail(err)
	}
}

// Share formats a part of a total, with its percentage.
func (casePage) Share(have, of int) string {
	return fmt.Sprintf("%s of %s (%d %%)", formatCount(have, ""), formatCount(of, ""), int(math.Round(100*float64(have)/float64(max(of, 1)))))
}

// formatPlace returns the namespace, template and step of a case.
func formatPlace(c tasker.Case) string {
	place := c.Namespace + "/" + c.TaskName
	if c.StepName != "" {
		place += " › " + c.StepName
	}
	return place
}

// addVerbs adds the actions that the case accepts.
func (p *casePage) addVerbs(req *request) {
	for _, v := range caseVerbs {
		if checkCaseVerb(v, p.Case, req.now) != "" {
			continue
		}
		l := v.link(casePath(p.ID))
		if v.Word == wordOwn && (p.Owner == "" || p.Owner != req.actor) {
			p.Own = new(l)
			l.Name, l.Key, l.Does = "Take it until…", "", ""
		}
		p.Verbs = append(p.Verbs, l)
	}
}

// OtherFailures counts the open investigations besides the newest.
func (p casePage) OtherFailures() int64 { return max(p.Entries-1, 0) }

// EndedCounts returns the outcomes of resolved investigations in the order of the states.
func (p casePage) EndedCounts() []tasker.ValueCount {
	var list []tasker.ValueCount
	for _, status := range tasker.ResolutionStatuses() {
		if n := p.Ended[status]; n > 0 {
			list = append(list, tasker.ValueCount{Value: string(status), Entries: n})
		}
	}
	return list
}

// formatEnded returns the words before the counts: a note if they include only the newest
// investigations, otherwise nothing.
func formatEnded(counts map[tasker.ResolutionStatus]int64) string {
	n := int64(0)
	for _, ended := range counts {
		n += ended
	}
	if n < tasker.MaxRelated {
		return ""
	}
	return "Of the newest " + formatCount(n, "") + " resolved: "
}

// Fact formats the name of a property; paths in the context stay unchanged.
func (casePage) Fact(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "_", " "), "task version", "template version")
}

// Accepts reports whether the page offers the action with this word.
func (p casePage) Accepts(word string) bool {
	return slices.ContainsFunc(p.Verbs, func(l link) bool { return strings.HasSuffix(l.Path, "/"+word) })
}
