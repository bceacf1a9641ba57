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

// A casePage is one case: what its investigations have in common and what differs, how
// far their repair is, and what can be done about all of them.
type casePage struct {
	tasker.CaseDetail
	Cause      tasker.Cause
	Explained  *whyLine
	Newest     *tasker.CaseSample // nil when none is open
	Progress   casesProgress
	Members    string // the list of its investigations
	Into       string // the case that it was merged into
	Verbs      []caseLink
	Own        *caseLink  // the button that takes it; nil where it does not make sense
	Runs       bool       // an operation can work for some of its investigations
	Acts       []caseLink // those that can work
	Idle       string     // why none is to retry
	Hold       string     // the form that holds its steps
	Operations []operationLine
	Changed    *tasker.CaseComparison // nil when none is open, or when it took too long
	AskChanged string                 // where it may take longer; empty when it did not take too long
	Why        *tasker.CaseGrouping   // what differs in its messages; nil until somebody asks
	AskWhy     string
	Seen       string // when it was last updated, as this page shows it
}

// A caseLink leads to what can be done about a case.
type caseLink struct{ Name, Href, Key, Does string }

// changedTime bounds how long the page of a case waits to say what changed.
const changedTime = 250 * time.Millisecond

// onCase shows one case. With ?why=1 it looks at the messages of its newest investigations as
// well, and with ?changes=1 it waits for what changed, however long that takes.
// caseReport sends the report of a case, as Markdown.
func (s *server) caseReport(req *request) (*view, error) {
	id, err := req.id("case")
	if err != nil {
		return nil, err
	}
	r, err := incidentreport.Of(req.Context(), s.DB, tasker.IncidentReportQuery{Case: &id})
	if err != nil {
		return nil, err
	}
	return download(req, "report-"+id.String()+".md", "text/markdown; charset=utf-8", []byte(incidentreport.Markdown(r)))
}

func (s *server) onCase(req *request) (*view, error) {
	id, err := req.id("case")
	if err != nil {
		return nil, err
	}
	p := casePage{Members: Root + "/?view=entries&case=" + id.String(), AskWhy: casePath(id) + "?why=1#why"}
	if p.CaseDetail, err = s.Cases.Detail(req.Context(), id); err != nil {
		return nil, err
	}
	if req.query().has("why") {
		why, err := s.Cases.Why(req.Context(), id)
		if err != nil {
			return nil, err
		}
		p.Why = &why
	}
	if err := s.addChanged(req, &p); err != nil {
		return nil, err
	}
	p.Cause, p.Progress, p.Seen = tasker.CauseOf(p.Reason, p.DetailCode), caseProgress(p.CaseCounts), seenOf(p.Case)
	if len(p.Samples) > 0 {
		p.Newest = &p.Samples[0]
	}
	if p.MergedInto != nil {
		p.Into = casePath(*p.MergedInto)
	}
	if s.showsAction(req, access.UpdateInvestigations, p.Namespace) {
		p.addVerbs(req)
	}
	if p.Explained, err = s.why(req, id); err != nil {
		return nil, err
	}
	if p.MergedInto == nil {
		p.Hold = s.holdLink(req, p.Namespace, "case", p.ID.String())
	}
	if err := s.addActs(req, &p); err != nil {
		return nil, err
	}
	if p.Operations, err = s.operationsOf(req, id); err != nil {
		return nil, err
	}
	return &view{page: "case", title: placeOf(p.Case), nav: navCases, live: true, body: p}, nil
}

// addActs adds the acts that can work for investigations of the case.
func (s *server) addActs(req *request, p *casePage) error {
	if p.Entries == 0 || !s.showsAction(req, access.OperateSteps, p.Namespace) {
		return nil
	}
	ctx := req.within(access.OperateSteps).Context()
	possible, err := s.Operations.Possible(ctx, tasker.OperationSelection{Filter: tasker.InvestigationFilter{Case: &p.ID}}, maxFitting)
	if err != nil {
		return err
	}
	run := casePath(p.ID) + "/run"
	p.Acts = actLinks(req, possible, "", "plan it for the case", func(act tasker.Act) string {
		if act == tasker.ActReset {
			return run
		}
		return run + "?act=" + string(act)
	})
	if p.Runs = len(possible) > 0; possible[tasker.ActReset] == 0 {
		p.Idle = "Nothing to retry: " + noFailedStep + "."
	}
	return nil
}

// addChanged adds what changed before the case began, who is hit, and until when.
func (s *server) addChanged(req *request, p *casePage) error {
	patient := req.query().has("changes")
	if p.Entries == 0 {
		return nil
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
	case err != nil:
		return err
	}
	return nil
}

// Share spells how many of those compared have a value.
func (casePage) Share(have, of int) string {
	return fmt.Sprintf("%s of %s (%d %%)", count(have, ""), count(of, ""), int(math.Round(100*float64(have)/float64(max(of, 1)))))
}

// placeOf says where the investigations of a case are.
func placeOf(c tasker.Case) string {
	place := c.Namespace + "/" + c.TaskName
	if c.StepName != "" {
		place += " › " + c.StepName
	}
	return place
}

// addVerbs adds what can be done about the case as it is now.
func (p *casePage) addVerbs(req *request) {
	for _, v := range caseVerbs {
		if v.refusal(p.Case, req.now) != "" {
			continue
		}
		l := caseLink{Name: v.Name, Href: casePath(p.ID) + "/" + v.Word, Key: v.Key, Does: v.Does}
		if v.Word == wordOwn && (p.Owner == "" || p.Owner != req.actor) {
			p.Own = new(l)
			l.Name, l.Key, l.Does = "Take it until…", "", ""
		}
		p.Verbs = append(p.Verbs, l)
	}
}

// Others counts the open investigations beside the newest.
func (p casePage) Others() int64 { return max(p.Entries-1, 0) }

// EndedCounts returns how earlier investigations ended, in the order of the states.
func (p casePage) EndedCounts() []tasker.ValueCount {
	var list []tasker.ValueCount
	for _, status := range tasker.ResolutionStatuses() {
		if n := p.Ended[status]; n > 0 {
			list = append(list, tasker.ValueCount{Value: string(status), Entries: n})
		}
	}
	return list
}

// endedOf introduces counts of ended investigations if only the newest were counted.
func endedOf(counts map[tasker.ResolutionStatus]int64) string {
	n := int64(0)
	for _, ended := range counts {
		n += ended
	}
	if n < tasker.MaxRelated {
		return ""
	}
	return "Of the newest " + count(n, "") + " that ended: "
}

// Fact spells the name of a fact of investigations; a key of the context stays as it is.
func (casePage) Fact(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "_", " "), "task version", "template version")
}

// Here reports whether another open case with the same error is of the same namespace, so
// that the two can be merged.
func (p casePage) Here(e tasker.RelatedCase) bool { return e.Namespace == p.Namespace }

// May reports whether an action is among those that are shown.
func (p casePage) May(word string) bool {
	return slices.ContainsFunc(p.Verbs, func(l caseLink) bool { return strings.HasSuffix(l.Href, "/"+word) })
}
