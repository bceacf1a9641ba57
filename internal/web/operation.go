package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
)

const (
	operationsPath = Root + "/operations"
	navOperations  = "Operations"

	operationRows = 50
	itemRows      = 100    // on the page of one state
	itemSamples   = 10     // of each state in the overview
	maxArrivals   = 1000   // limit of counting
	maxFitting    = 10_000 // counting the steps of a plan stops here
)

func operationPath(id tasker.ID) string { return operationsPath + "/" + id.String() }

// newOperationProgress shows the items of an operation by state.
func newOperationProgress(o tasker.Operation) progress {
	p := newProgress(o.Items, []portion{
		{o.Counts[tasker.ItemVerified], "good", "verified"}, {o.Counts[tasker.ItemRunning], "busy", "running"},
		{o.Counts[tasker.ItemReleased], "busy", "released"}, {o.Counts[tasker.ItemFailedAgain], "bad", "failed again"},
		{o.Counts[tasker.ItemSkipped], "warn", "skipped"}, {o.Counts[tasker.ItemAborted], "idle", "aborted"},
		{o.Counts[tasker.ItemPlanned], "idle", "remaining"},
	})
	p.Words += " = " + formatCount(o.Items, "")
	return p
}

var actNames = map[tasker.Act]string{
	tasker.ActReset: "Retry %s", tasker.ActResolve: "Skip %s", tasker.ActComplete: "Complete %s with a result", tasker.ActAnswer: "Answer %s", tasker.ActCancel: "Cancel %s",
	tasker.ActCompensate: "Cancel and compensate %s", tasker.ActRecreate: "Recreate %s", tasker.ActEnd: "End %s",
}

func describeAction(o tasker.Operation) string {
	return fmt.Sprintf(cmp.Or(actNames[o.Act], string(o.Act)+" %s"), formatCount(o.Items, itemNoun(o.Act)))
}

// itemNoun returns the noun for the objects that an act applies to.
func itemNoun(act tasker.Act) string {
	return cmp.Or(map[tasker.Act]string{tasker.ActCancel: "task", tasker.ActCompensate: "task", tasker.ActRecreate: "task", tasker.ActEnd: "investigation"}[act], "step")
}

func (s *server) showOperations(req *request) (*view, error) {
	q := req.query()
	f := tasker.OperationFilter{State: readChoice(q, "state", tasker.OperationStates()), Limit: operationRows, Offset: q.readOffset()}
	list, more := loadPage(req, s.DB.Operations, f)
	p := listPage[tasker.Operation]{list, req.newPager(f.Offset, f.Limit, len(list), more)}
	return &view{page: "operations", title: "Operations", nav: navOperations, live: true, body: p}, nil
}

// maxOfCase limits how many operations of each state are searched for a case.
const maxOfCase = 20

// findOperations returns the open operations on a case.
func (s *server) findOperations(req *request, id tasker.ID) (found []tasker.Operation) {
	for _, state := range []tasker.OperationState{tasker.OperationPaused, tasker.OperationRunning, tasker.OperationPlanned} {
		list, _ := loadPage(req, s.DB.Operations, tasker.OperationFilter{State: state, Limit: maxOfCase})
		found = append(found, slices.DeleteFunc(list, func(o tasker.Operation) bool {
			return o.Selection.Filter.Case == nil || *o.Selection.Filter.Case != id
		})...)
	}
	return found
}

type operationPage struct {
	tasker.Operation
	Computes string // expression that computes the results of the steps
	Waves    []waveLine
	Why      *tasker.Condition
	PausedBy string
	Case     string // page of the selected case
	Arrived  int    // new investigations that match the selection; -1 if unknown
	Again    string // form to plan for them
	Chosen   string // selection besides the case
	State1   tasker.ItemState
	Groups   []itemGroup
	Pager    pager
	Verbs    []verb
	Hides    bool // payloads are hidden
}

type waveLine struct {
	Name, Items string
	Here, Past  bool
	Now         string // state of the current wave
}

type itemGroup struct {
	State tasker.ItemState
	All   int64
	Items []tasker.OperationItem
	More  bool
	Acts  []link
}

// formatItemWave numbers the wave of an item from 1.
func formatItemWave(wave *int) string {
	if wave == nil {
		return "–"
	}
	return strconv.Itoa(*wave + 1)
}

// outcomes explains, by outcome code, why an item was skipped.
var outcomes = map[string]string{
	"changed": "the step has changed since the plan", "refused": "the state of the step does not allow it", "gone": "the step no longer exists",
	"busy": "the task was locked for too long", "not_run": "the template skipped the step", "taken_over": "the step was changed outside the operation",
	"cancelled": "the task was cancelled", "template_gone": "the template no longer exists",
	"template_cycle":    "the newest version of the template has a dependency cycle",
	"expression_failed": "the expression failed",
	"context_invalid":   "the context is invalid for the newest version of the template",
}

func (s *server) showOperation(req *request) (*view, error) {
	o := loadByID(req, "operation", s.DB.Operation)
	q := req.query()
	p := operationPage{
		Operation: o, Computes: apiv1.FromOperation(o).Act.ResultExpression, Waves: newWaveLines(o), Arrived: -1,
		State1: readChoice(q, "state", tasker.ItemStates()),
	}
	after := q.readNumber("after", 0, 0, tasker.MaxOperationItems)
	p.Hides = slices.ContainsFunc(o.Namespaces, func(n string) bool { return !req.canReadPayloads(n) })
	if o.Pause != nil {
		p.PausedBy = fmt.Sprintf(cmp.Or(pauseTexts[o.Pause.For], string(o.Pause.For))+"%.0[1]s%.0[2]s", formatCount(o.Pause.Failures, "step"), o.Pause.By)
	}
	if o.SettledAt == nil {
		p.Why = s.findCondition(req, o.UUID)
	}
	s.addArrivals(req, &p)
	if s.canShowAction(req, access.OperateSteps, o.Namespaces...) {
		p.Verbs = slices.DeleteFunc(slices.Clone(operationVerbs), func(v verb) bool { return v.checkOperation(o) != "" })
	}
	s.addItems(req, &p, after)
	return &view{page: "operation", title: describeAction(o), nav: navOperations, live: true, body: p}, nil
}

func newWaveLines(o tasker.Operation) []waveLine {
	list := make([]waveLine, 0, len(o.Waves)+1)
	active := o.State == tasker.OperationRunning || o.State == tasker.OperationPaused
	remaining := o.Items
	for i := range len(o.Waves) + 1 {
		items := remaining
		if i < len(o.Waves) {
			items = min(o.Waves[i], remaining)
		}
		if remaining -= items; items == 0 && i > 0 {
			break
		}
		l := waveLine{Name: "wave " + strconv.Itoa(i+1), Items: formatCount(items, ""), Here: active && i == o.Wave, Past: i < o.Wave || o.State == tasker.OperationDone, Now: "running"}
		if o.State == tasker.OperationPaused {
			l.Now = "paused"
		}
		if i == len(o.Waves) {
			l.Name = "rest"
		}
		list = append(list, l)
	}
	return list
}

// pauseTexts explains why an operation is paused. The arguments are the failed steps and the
// operator.
var pauseTexts = map[tasker.PauseReason]string{
	tasker.PausedByOperator: "by %[2]s", tasker.PausedSameCause: "automatically: %[1]s failed with the same cause", tasker.PausedNewCause: "automatically: %[1]s failed with a new cause",
	tasker.PausedWaveFailed: "automatically: %[1]s of the wave failed again", tasker.PausedWaveTimeout: "automatically: %[1]s of the wave did not succeed in time",
	tasker.PausedNoWorker: "automatically: no worker is online for the steps; it resumes when one is",
}

// addArrivals counts the investigations that match the selection but were opened later.
func (s *server) addArrivals(req *request, p *operationPage) {
	sel := p.Selection
	p.Chosen = describeSelection(p.Operation)
	if id := sel.Filter.Case; id != nil {
		p.Case = casePath(*id)
	}
	if p.Selected > 0 || sel.WorkerVersion != "" || sel.FailedSince != nil {
		return
	}
	n, err := s.DB.CountArrivals(req.Context(), sel, p.CreatedAt, maxArrivals)
	req.fail(err)
	p.Arrived = n
	if n > 0 && s.canShowAction(req, access.OperateSteps, p.Namespaces...) {
		if p.Again = planLink(sel.Filter); p.Chosen == "" {
			p.Again = p.Case + "/run"
		}
	}
}

// addItems adds the items of one state, or samples of each state.
func (s *server) addItems(req *request, p *operationPage, after int) {
	order := []tasker.ItemState{
		tasker.ItemFailedAgain, tasker.ItemSkipped, tasker.ItemRunning, tasker.ItemReleased, tasker.ItemPlanned, tasker.ItemVerified, tasker.ItemAborted,
	}
	if p.State1 != "" {
		order = []tasker.ItemState{p.State1}
	}
	for _, state := range order {
		if p.Counts[state] == 0 {
			continue
		}
		limit := itemSamples
		if p.State1 != "" || state == tasker.ItemFailedAgain { // a new operation selects all of them
			limit = itemRows
		}
		list, more, err := s.DB.OperationItems(req.Context(), p.UUID, tasker.OperationItemFilter{State: state, After: after, Limit: limit})
		req.fail(err)
		g := itemGroup{State: state, All: p.Counts[state], Items: list, More: more}
		if state == tasker.ItemFailedAgain && s.canShowAction(req, access.OperateSteps, p.Namespaces...) {
			g.Acts = s.buildRetryLinks(req, list)
		}
		if p.Groups = append(p.Groups, g); p.State1 != "" && more {
			p.Pager.After = req.buildLink("after", strconv.Itoa(list[len(list)-1].Ordinal))
		}
	}
}

// buildRetryLinks returns links to plan operations on the investigations of items that failed
// again.
func (s *server) buildRetryLinks(req *request, list []tasker.OperationItem) []link {
	var ids []tasker.ID
	query := url.Values{}
	for _, item := range list {
		ids = append(ids, item.EntryUUID)
		query.Add("id", item.EntryUUID.String())
	}
	possible := s.countPossible(req, tasker.OperationSelection{IDs: ids}, len(ids))
	delete(possible, tasker.ActEnd)
	return buildActLinks(req, possible, "", "plan an operation on the steps that failed again", func(tasker.Act) string { return planPath + "?" + query.Encode() })
}

// explainItem returns why an item failed or was skipped, or "".
func explainItem(item tasker.OperationItem) string {
	if item.State == tasker.ItemFailedAgain || item.Outcome == "" {
		return cleanText(item.FailureText)
	}
	return explainOutcome(item.Outcome)
}

func explainOutcome(code string) string { return cmp.Or(outcomes[code], formatWords(code)) }
