package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/postgres"
)

const (
	operationsPath = Root + "/operations"
	navOperations  = "Operations"

	operationRows = 50   // of the list
	itemRows      = 100  // of the items in one state
	itemSamples   = 10   // of each state, where all are shown
	maxArrivals   = 1000 // that are counted
	maxFitting    = 10_000
)

func operationPath(id tasker.ID) string { return operationsPath + "/" + id.String() }

// An operationLine is an operation as a list shows it.
type operationLine struct {
	tasker.Operation
	Path string
	Does string // the act and how many steps
	Sums string // how many items are where
	Bar  []progressPart
}

// Computes returns the expression that gives the results of the steps, if one does.
func (l operationLine) Computes() string {
	return apiv1.FromOperation(l.Operation).Act.ResultExpression
}

func lineOf(o tasker.Operation) operationLine {
	l := operationLine{Operation: o, Path: operationPath(o.UUID), Does: doesOf(o)}
	var p taskProgress
	at := 0.0
	for _, part := range itemParts(o) {
		p.add(&at, int(part.n), o.Items, part.kind)
	}
	l.Bar, l.Sums = p.Parts, sumsOf(o)
	return l
}

// actNames are the acts in the words of the buttons.
var actNames = map[tasker.Act]string{
	tasker.ActReset: "Retry %s", tasker.ActResolve: "Skip %s", tasker.ActComplete: "Complete %s with a result", tasker.ActAnswer: "Answer %s", tasker.ActCancel: "Cancel %s",
	tasker.ActCompensate: "Cancel and undo %s", tasker.ActRecreate: "Recreate %s", tasker.ActEnd: "End %s",
}

// doesOf says what an operation does.
func doesOf(o tasker.Operation) string {
	return fmt.Sprintf(cmp.Or(actNames[o.Act], string(o.Act)+" %s"), count(o.Items, itemNoun(o.Act)))
}

// itemNoun names an item of an operation.
func itemNoun(act tasker.Act) string {
	return cmp.Or(map[tasker.Act]string{tasker.ActCancel: "task", tasker.ActCompensate: "task", tasker.ActRecreate: "task", tasker.ActEnd: "investigation"}[act], "step")
}

// An itemPart is how many items are in a state.
type itemPart struct {
	state      tasker.ItemState
	n          int64
	kind, said string
}

// itemParts are the states of items in the order in which people ask for them.
func itemParts(o tasker.Operation) []itemPart {
	parts := []itemPart{
		{tasker.ItemVerified, 0, "good", "verified"}, {tasker.ItemRunning, 0, "busy", "running"}, {tasker.ItemReleased, 0, "busy", "released"},
		{tasker.ItemFailedAgain, 0, "bad", "failed again"}, {tasker.ItemSkipped, 0, "warn", "skipped"}, {tasker.ItemAborted, 0, "idle", "aborted"},
		{tasker.ItemPlanned, 0, "idle", "remaining"},
	}
	for i := range parts {
		parts[i].n = o.Counts[parts[i].state]
	}
	return parts
}

// sumsOf adds up the items of all states.
func sumsOf(o tasker.Operation) string {
	var words []string
	for _, p := range itemParts(o) {
		if p.n > 0 {
			words = append(words, count(p.n, "")+" "+p.said)
		}
	}
	return strings.Join(words, " · ") + " = " + count(o.Items, "")
}

// An operationsPage lists operations, newest first.
type operationsPage struct {
	State      tasker.OperationState
	States     []tasker.OperationState
	Operations []operationLine
	Pager      pager
}

func (s *server) operations(req *request) (*view, error) {
	q := req.query()
	f := tasker.OperationFilter{State: choice(q, "state", tasker.OperationStates()), Limit: operationRows, Offset: q.offset()}
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.DB.Operations(req.Context(), f)
	if err != nil {
		return nil, err
	}
	p := operationsPage{State: f.State, States: tasker.OperationStates(), Pager: req.pager(f.Offset, f.Limit, len(list), more)}
	for _, o := range list {
		p.Operations = append(p.Operations, lineOf(o))
	}
	return &view{page: "operations", title: "Operations", nav: navOperations, live: true, body: p}, nil
}

// maxOfCase is how many operations in each state are looked at for those of a case.
const maxOfCase = 20

// operationsOf returns the operations on a case that have not ended.
func (s *server) operationsOf(req *request, id tasker.ID) (lines []operationLine, err error) {
	for _, state := range []tasker.OperationState{tasker.OperationPaused, tasker.OperationRunning, tasker.OperationPlanned} {
		list, _, err := s.DB.Operations(req.Context(), tasker.OperationFilter{State: state, Limit: maxOfCase})
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if of := o.Selection.Filter.Case; of != nil && *of == id {
				lines = append(lines, lineOf(o))
			}
		}
	}
	return lines, nil
}

// An operationPage is one operation with its items: those that failed again or were skipped
// come first.
type operationPage struct {
	operationLine
	Waves    []waveLine
	Why      *whyLine
	Pause    string // why it is paused
	Task     string // the page of the task that made it pause
	Case     string // the page of the case that was selected
	Arrived  int    // investigations that the selection would select now; -1 when nobody can tell
	Again    string // where they can be planned
	Chosen   string // what was selected, in words, besides the case
	State1   tasker.ItemState
	Groups   []itemGroup
	Pager    pager
	Verbs    []operationVerb // what can be done now
	Hides    bool
	Expected bool // it is not over: something may still change
}

// A waveLine is one wave.
type waveLine struct {
	Name, Items string
	Here, Past  bool
	Now         string // of the current wave
}

// An itemGroup is items in one state.
type itemGroup struct {
	State tasker.ItemState
	All   int64
	Items []itemLine
	Path  string // of all of them
	More  bool   // there are more than these
	Acts  []caseLink
}

// An itemLine is one item.
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

// outcomes say why an item was skipped.
var outcomes = map[string]string{
	"changed": "something has happened to the step since the plan", "refused": "the state of the step does not allow it", "gone": "the step is not there any more",
	"busy": "others held the task for too long", "not_run": "its template decided that it does not run", "taken_over": "somebody else acted on the step", "cancelled": "the task was cancelled",
	"template_gone": "there is no template of its name", "template_cycle": "the steps of the newest version of its template depend on each other",
	"expression_failed": "its result cannot be computed",
	"context_invalid":   "the newest version of its template does not take its context",
}

func (s *server) onOperation(req *request) (*view, error) {
	id, err := req.id("operation")
	if err != nil {
		return nil, err
	}
	o, err := s.DB.Operation(req.Context(), id)
	if err != nil {
		return nil, err
	}
	q := req.query()
	p := operationPage{operationLine: lineOf(o), Waves: wavesOf(o), Arrived: -1, Expected: o.SettledAt == nil, State1: choice(q, "state", tasker.ItemStates())}
	after := q.number("after", 0, 0, tasker.MaxOperationItems)
	if q.err != nil {
		return nil, q.err
	}
	p.Hides = slices.ContainsFunc(o.Namespaces, func(n string) bool { return !req.readsPayloads(n) })
	p.addPause()
	if p.Expected {
		if p.Why, err = s.why(req, id); err != nil {
			return nil, err
		}
	}
	if err := s.addArrivals(req, &p); err != nil {
		return nil, err
	}
	if s.showsAction(req, access.OperateSteps, o.Namespaces...) {
		for _, v := range operationVerbs {
			if v.refusal(o) == "" {
				p.Verbs = append(p.Verbs, v)
			}
		}
	}
	if err := s.addItems(req, &p, after); err != nil {
		return nil, err
	}
	return &view{page: "operation", title: p.Does, nav: navOperations, live: true, body: p}, nil
}

// wavesOf lists the waves of an operation.
func wavesOf(o tasker.Operation) []waveLine {
	list := make([]waveLine, 0, len(o.Waves)+1)
	under := o.State == tasker.OperationRunning || o.State == tasker.OperationPaused
	left := o.Items
	for i := range len(o.Waves) + 1 {
		items := left
		if i < len(o.Waves) {
			items = min(o.Waves[i], left)
		}
		if left -= items; items == 0 && i > 0 {
			break
		}
		l := waveLine{Name: "wave " + strconv.Itoa(i+1), Items: count(items, ""), Here: under && i == o.Wave, Past: i < o.Wave || o.State == tasker.OperationDone, Now: "under way"}
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

// pauseTexts say why an operation is paused: by whom, or after how many failures.
var pauseTexts = map[tasker.PauseReason]string{
	tasker.PausedByOperator: "by %[2]s", tasker.PausedSameCause: "automatically: %[1]s failed with the same cause", tasker.PausedNewCause: "automatically: %[1]s failed with a new cause",
	tasker.PausedWaveFailed: "automatically: %[1]s of the wave failed again", tasker.PausedWaveTimeout: "automatically: %[1]s of the wave did not succeed in time",
	tasker.PausedNoWorker: "automatically: no worker takes the steps; they continue when one is alive",
}

func (p *operationPage) addPause() {
	if p.operationLine.Pause == nil {
		return
	}
	pause := *p.operationLine.Pause
	p.Pause = fmt.Sprintf(cmp.Or(pauseTexts[pause.For], string(pause.For))+"%.0[1]s%.0[2]s", count(pause.Failures, "step"), pause.By)
	if pause.TaskUUID != nil {
		p.Task = taskPath(*pause.TaskUUID)
	}
}

// addArrivals counts what the selection would select that came after the plan.
func (s *server) addArrivals(req *request, p *operationPage) error {
	sel := p.Selection
	p.Chosen = selectionWords(p.Operation)
	if id := sel.Filter.Case; id != nil {
		p.Case = casePath(*id)
	}
	if p.Selected > 0 || sel.WorkerVersion != "" || sel.FailedSince != nil {
		return nil
	}
	n, err := s.DB.CountArrivals(req.Context(), sel, p.CreatedAt, maxArrivals)
	p.Arrived = n
	if n > 0 && s.showsAction(req, access.OperateSteps, p.Namespaces...) {
		if p.Again = planLink(sel.Filter); p.Chosen == "" {
			p.Again = p.Case + "/run"
		}
	}
	return err
}

// addItems reads the items of one state, or some of each.
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
			limit = itemRows // they are planned for together
		} else if p.State1 == "" {
			limit = itemSamples
		}
		list, more, err := s.DB.OperationItems(req.Context(), p.UUID, postgres.ItemFilter{State: state, After: after, Limit: limit})
		if err != nil {
			return err
		}
		g := itemGroup{State: state, All: p.Counts[state], Path: p.Path + "?state=" + string(state), Items: itemLines(list), More: more}
		if state == tasker.ItemFailedAgain && s.showsAction(req, access.OperateSteps, p.Namespaces...) {
			if g.Acts, err = s.againLinks(req, list); err != nil {
				return err
			}
		}
		if p.Groups = append(p.Groups, g); p.State1 != "" && more {
			p.Pager.After = req.link("after", strconv.Itoa(list[len(list)-1].Ordinal))
		}
	}
	return nil
}

// againLinks are the acts on the investigations of items that failed again.
func (s *server) againLinks(req *request, list []tasker.OperationItem) ([]caseLink, error) {
	var ids []tasker.ID
	query := url.Values{}
	for _, item := range list {
		ids = append(ids, item.EntryUUID)
		query.Add("id", item.EntryUUID.String())
	}
	possible, err := s.Operations.Possible(req.within(access.OperateSteps).Context(), tasker.OperationSelection{IDs: ids}, len(ids))
	delete(possible, tasker.ActEnd)
	return actLinks(req, possible, "", "plan for those that failed again", func(tasker.Act) string { return planPath + "?" + query.Encode() }), err
}

func itemLines(list []tasker.OperationItem) []itemLine {
	lines := make([]itemLine, len(list))
	for i, item := range list {
		lines[i] = itemLine{OperationItem: item, Why: shown(item.FailureText)}
		if item.State != tasker.ItemFailedAgain && item.Outcome != "" {
			lines[i].Why = cmp.Or(outcomes[item.Outcome], words(item.Outcome))
		}
	}
	return lines
}
