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

// operationLine is an operation in a list.
type operationLine struct {
	tasker.Operation
	Path string
	Does string // act and number of steps
	Sums string // items by state
	Bar  []progressPart
}

// Computes returns the expression that computes the results of the steps, or "" if there is none.
func (l operationLine) Computes() string {
	return apiv1.FromOperation(l.Operation).Act.ResultExpression
}

func newOperationLine(o tasker.Operation) operationLine {
	p := newProgress(o.Items, []portion{
		{o.Counts[tasker.ItemVerified], "good", "verified"}, {o.Counts[tasker.ItemRunning], "busy", "running"},
		{o.Counts[tasker.ItemReleased], "busy", "released"}, {o.Counts[tasker.ItemFailedAgain], "bad", "failed again"},
		{o.Counts[tasker.ItemSkipped], "warn", "skipped"}, {o.Counts[tasker.ItemAborted], "idle", "aborted"},
		{o.Counts[tasker.ItemPlanned], "idle", "remaining"},
	})
	return operationLine{
		Operation: o, Path: operationPath(o.UUID), Does: describeAction(o), Bar: p.Parts,
		Sums: p.Words + " = " + formatCount(o.Items, ""),
	}
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

// operationsPage lists operations, newest first.
type operationsPage struct {
	State      tasker.OperationState
	States     []tasker.OperationState
	Operations []operationLine
	Pager      pager
}

func (s *server) showOperations(req *request) (*view, error) {
	q := req.query()
	f := tasker.OperationFilter{State: readChoice(q, "state", tasker.OperationStates()), Limit: operationRows, Offset: q.readOffset()}
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.DB.Operations(req.Context(), f)
	if err != nil {
		return nil, err
	}
	p := operationsPage{State: f.State, States: tasker.OperationStates(), Pager: req.newPager(f.Offset, f.Limit, len(list), more)}
	for _, o := range list {
		p.Operations = append(p.Operations, newOperationLine(o))
	}
	return &view{page: "operations", title: "Operations", nav: navOperations, live: true, body: p}, nil
}

// maxOfCase limits how many operations of each state are searched for a case.
const maxOfCase = 20

// findOperations returns the open operations on a case.
func (s *server) findOperations(req *request, id tasker.ID) (lines []operationLine, err error) {
	for _, state := range []tasker.OperationState{tasker.OperationPaused, tasker.OperationRunning, tasker.OperationPlanned} {
		list, _, err := s.DB.Operations(req.Context(), tasker.OperationFilter{State: state, Limit: maxOfCase})
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if of := o.Selection.Filter.Case; of != nil && *of == id {
				lines = append(lines, newOperationLine(o))
			}
		}
	}
	return lines, nil
}

// operationPage shows an operation with its items, problems first.
type operationPage struct {
	operationLine
	Waves    []waveLine
	Why      *tasker.Condition
	Pause    string // reason of the pause
	Task     string // page of the task that caused the pause
	Case     string // page of the selected case
	Arrived  int    // new investigations that match the selection; -1 if unknown
	Again    string // form to plan for them
	Chosen   string // selection besides the case
	State1   tasker.ItemState
	Groups   []itemGroup
	Pager    pager
	Verbs    []operationVerb
	Hides    bool // payloads are hidden
	Expected bool // not settled
}

type waveLine struct {
	Name, Items string
	Here, Past  bool
	Now         string // state of the current wave
}

// itemGroup contains items of one state.
type itemGroup struct {
	State tasker.ItemState
	All   int64
	Items []itemLine
	Path  string // list of all
	More  bool
	Acts  []link
}

type itemLine struct {
	tasker.OperationItem
	Why string
}

// WaveName numbers the wave of an item from 1.
func (l itemLine) WaveName() string {
	if l.Wave == nil {
		return "–"
	}
	return strconv.Itoa(*l.Wave + 1)
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
	o, err := findByID(req, "operation", s.DB.Operation)
	if err != nil {
		return nil, err
	}
	q := req.query()
	p := operationPage{operationLine: newOperationLine(o), Waves: newWaveLines(o), Arrived: -1, Expected: o.SettledAt == nil, State1: readChoice(q, "state", tasker.ItemStates())}
	after := q.readNumber("after", 0, 0, tasker.MaxOperationItems)
	if q.err != nil {
		return nil, q.err
	}
	p.Hides = slices.ContainsFunc(o.Namespaces, func(n string) bool { return !req.canReadPayloads(n) })
	p.addPause()
	if p.Expected {
		if p.Why, err = s.findCondition(req, o.UUID); err != nil {
			return nil, err
		}
	}
	if err := s.addArrivals(req, &p); err != nil {
		return nil, err
	}
	if s.canShowAction(req, access.OperateSteps, o.Namespaces...) {
		for _, v := range operationVerbs {
			if v.checkOperation(o) == "" {
				p.Verbs = append(p.Verbs, v)
			}
		}
	}
	if err := s.addItems(req, &p, after); err != nil {
		return nil, err
	}
	return &view{page: "operation", title: p.Does, nav: navOperations, live: true, body: p}, nil
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

func (p *operationPage) addPause() {
	if p.operationLine.Pause == nil {
		return
	}
	pause := *p.operationLine.Pause
	p.Pause = fmt.Sprintf(cmp.Or(pauseTexts[pause.For], string(pause.For))+"%.0[1]s%.0[2]s", formatCount(pause.Failures, "step"), pause.By)
	if pause.TaskUUID != nil {
		p.Task = taskPath(*pause.TaskUUID)
	}
}

// addArrivals counts the investigations that match the selection but were opened later.
func (s *server) addArrivals(req *request, p *operationPage) error {
	sel := p.Selection
	p.Chosen = describeSelection(p.Operation)
	if id := sel.Filter.Case; id != nil {
		p.Case = casePath(*id)
	}
	if p.Selected > 0 || sel.WorkerVersion != "" || sel.FailedSince != nil {
		return nil
	}
	n, err := s.DB.CountArrivals(req.Context(), sel, p.CreatedAt, maxArrivals)
	p.Arrived = n
	if n > 0 && s.canShowAction(req, access.OperateSteps, p.Namespaces...) {
		if p.Again = planLink(sel.Filter); p.Chosen == "" {
			p.Again = p.Case + "/run"
		}
	}
	return err
}

// addItems adds the items of one state, or samples of each state.
func (s *server) addItems(req *request, p *operationPage, after int) error {
	order := []tasker.ItemState{
		tasker.ItemFailedAgain, tasker.ItemSkipped, tasker.ItemRunning, tasker.ItemReleased, tasker.ItemPlanned, tasker.ItemVerified, tasker.ItemAborted,
	}
	limit := itemSamples
	if p.State1 != "" {
		order, limit = []tasker.ItemState{p.State1}, itemRows
	}
	for _, state := range order {
		if p.Counts[state] == 0 {
			continue
		}
		if state == tasker.ItemFailedAgain {
			limit = itemRows // a new operation selects all of them
		} else if p.State1 == "" {
			limit = itemSamples
		}
		list, more, err := s.DB.OperationItems(req.Context(), p.UUID, tasker.OperationItemFilter{State: state, After: after, Limit: limit})
		if err != nil {
			return err
		}
		g := itemGroup{State: state, All: p.Counts[state], Path: p.Path + "?state=" + string(state), Items: newItemLines(list), More: more}
		if state == tasker.ItemFailedAgain && s.canShowAction(req, access.OperateSteps, p.Namespaces...) {
			if g.Acts, err = s.buildRetryLinks(req, list); err != nil {
				return err
			}
		}
		if p.Groups = append(p.Groups, g); p.State1 != "" && more {
			p.Pager.After = req.buildLink("after", strconv.Itoa(list[len(list)-1].Ordinal))
		}
	}
	return nil
}

// buildRetryLinks returns links to plan operations on the investigations of items that failed
// again.
func (s *server) buildRetryLinks(req *request, list []tasker.OperationItem) ([]link, error) {
	var ids []tasker.ID
	query := url.Values{}
	for _, item := range list {
		ids = append(ids, item.EntryUUID)
		query.Add("id", item.EntryUUID.String())
	}
	possible, err := s.Operations.CountPossible(req.withPermission(access.OperateSteps).Context(), tasker.OperationSelection{IDs: ids}, len(ids))
	delete(possible, tasker.ActEnd)
	return buildActLinks(req, possible, "", "plan an operation on the steps that failed again", func(tasker.Act) string { return planPath + "?" + query.Encode() }), err
}

func newItemLines(list []tasker.OperationItem) []itemLine {
	lines := make([]itemLine, len(list))
	for i, item := range list {
		lines[i] = itemLine{OperationItem: item, Why: cleanText(item.FailureText)}
		if item.State != tasker.ItemFailedAgain && item.Outcome != "" {
			lines[i].Why = cmp.Or(outcomes[item.Outcome], formatWords(item.Outcome))
		}
	}
	return lines
}
