package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/endpoint"
)

const (
	operationsPath = Root + "/operations"
	navOperations  = "Operations"

	itemRows    = 100    // on the page of one state
	itemSamples = 10     // of each state in the overview
	maxArrivals = 1000   // limit of counting
	maxFitting  = 10_000 // counting the steps of a plan stops here
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
	f := tasker.OperationFilter{State: readChoice(q, "state", tasker.OperationStates()), Limit: listRows,
		Offset: q.readOffset()}
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

	Arrived int    // new investigations that match the selection; -1 if unknown
	Again   string // form to plan for them
	Chosen  string // selection besides the case
	State1  tasker.ItemState
	Groups  []itemGroup
	Pager   pager
	Verbs   []verb
	Hides   bool // payloads are hidden
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

func (s *server) showOperation(req *request) (*view, error) {
	o := loadByID(req, "operation", s.DB.Operation)
	q := req.query()
	p := operationPage{
		Operation: o, Computes: apiv1.FromOperation(o).Act.ResultExpression, Waves: newWaveLines(o), Arrived: -1,
		State1: readChoice(q, "state", tasker.ItemStates()),
	}
	after := q.readNumber("after", 0, 0, tasker.MaxOperationItems)
	p.Hides = slices.ContainsFunc(o.Namespaces, func(n string) bool { return !req.canReadPayloads(n) })

	if o.SettledAt == nil {
		p.Why = s.findCondition(req, o.UUID)
	}
	s.addArrivals(req, &p)
	if s.canShowAction(req, access.OperateSteps, o.Namespaces...) {
		p.Verbs = slices.DeleteFunc(slices.Clone(operationVerbs),
			func(v verb) bool { return v.checkOperation(o) != "" })
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

// addArrivals counts the investigations that match the selection but were opened later.
func (s *server) addArrivals(req *request, p *operationPage) {
	sel := p.Selection
	p.Chosen = describeSelection(p.Operation)

	if p.Selected > 0 || sel.WorkerVersion != "" || sel.FailedSince != nil {
		return
	}
	n, err := s.DB.CountArrivals(req.Context(), sel, p.CreatedAt, maxArrivals)
	req.fail(err)
	p.Arrived = n
	if n > 0 && s.canShowAction(req, access.OperateSteps, p.Namespaces...) {
		if p.Again = planLink(sel.Filter); p.Chosen == "" && sel.Filter.Case != nil {
			p.Again = casePath(*sel.Filter.Case) + "/run"
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
	return buildActLinks(req, possible, "", "plan an operation on the steps that failed again",
		func(tasker.Act) string { return planPath + "?" + query.Encode() })
}

const wordStart = "start"

var operationVerbs = []verb{
	{
		Word: wordStart, Name: "Start…", Key: "r", Does: "start the operation", Done: "started",
		endpoint: endpoint.StartOperation,
		Long:     "Releases the steps in waves. The operation pauses automatically if too many fail again.",
		from:     []tasker.OperationState{tasker.OperationPlanned},
	},
	{
		Word: wordPause, Name: "Pause", Key: "h", Does: "pause the operation", Done: "paused",
		endpoint: endpoint.PauseOperation,
		Long:     "Releases no more steps until it is resumed. Released steps continue.", InPlace: true,
		from: []tasker.OperationState{tasker.OperationRunning},
	},
	{
		Word: wordResume, Name: "Resume", Key: "r", Does: "resume the operation", Done: "resumed",
		endpoint: endpoint.ResumeOperation,
		Long:     "Continues the current wave and resets the failure counts.", InPlace: true,
		from: []tasker.OperationState{tasker.OperationPaused},
	},
	{
		Word: "abort", Name: "Abort…", Does: "abort the operation", Done: "aborted",
		endpoint: endpoint.AbortOperation, Final: true,
		Long: "Releases no more steps. Released steps continue and their outcomes are recorded. An aborted operation cannot be started again.",
		from: []tasker.OperationState{tasker.OperationPlanned, tasker.OperationRunning, tasker.OperationPaused},
	},
}

// checkOperation returns why an operation does not accept the action, or "" if it does.
func (v verb) checkOperation(o tasker.Operation) string {
	if slices.Contains(v.from, o.State) {
		return ""
	}
	state := formatWords(o.State)
	if o.EndedAt != nil {
		state = "finished"
	}
	return fmt.Sprintf("This operation is %s and can't be %s.", state, v.Done)
}

// operationForm is the form for an action on an operation.
type operationForm struct {
	form
	verb
	Operation tasker.Operation
	Computes  string // expression that computes the results of the steps
	Digest    string // of the displayed plan
	First     []tasker.OperationItem
	DryRun    *tasker.DryRun
	Enqueues  []tasker.ValueCount // steps that would be enqueued
	Waves     []waveLine
	NoDryRun  string // why there is none

	Tolerate      string // as typed, for resume
	TolerateCause bool
}

// Limits of a plan page.
const (
	shownItems  = 10
	dryRunItems = 1000
)

func (s *server) newOperationForm(req *request, v verb) *operationForm {
	o := loadByID(req, "operation", s.DB.Operation)
	p := &operationForm{
		verb: v, Operation: o, Computes: apiv1.FromOperation(o).Act.ResultExpression, Digest: o.PlanDigest,
		Waves: newWaveLines(o),
	}
	p.form = req.newForm(form{
		page: "operationaction", title: v.button() + ": " + describeAction(o), nav: navOperations, Button: v.button(),
		Back: operationPath(o.UUID), Danger: v.Final,
	})
	p.Refused = v.checkOperation(o)
	p.Tolerate, p.TolerateCause = req.trimmedField("tolerate"), req.isChecked("tolerate_cause")
	if p.Tolerate == "" && o.Guards.Tolerate != nil {
		p.Tolerate = o.Guards.Tolerate.String()
	}
	p.Command = p.command()
	if v.Word != wordStart || req.err() != nil {
		return p
	}
	p.Button = describeAction(o)
	if len(o.Waves) > 0 && o.Items > o.Waves[0] {
		p.Button = "Start with " + formatCount(o.Waves[0], itemNoun(o.Act))
	}
	list, _, err := s.DB.OperationItems(req.Context(), o.UUID, tasker.OperationItemFilter{Limit: shownItems})
	p.First = list
	if err == nil && p.Refused == "" && req.Method == http.MethodGet {
		err = p.dryRun(req.Context())
	}
	req.fail(err)
	return p
}

func (p *operationForm) dryRun(ctx context.Context) error {
	r, err := p.Operations.DryRun(ctx, p.Operation.UUID, 0, dryRunItems)
	if code := tasker.CodeOf(err); code == tasker.Conflict || code == tasker.Unavailable {
		p.NoDryRun = errorMessage(err) // the plan can still be started
		return nil
	}
	if err != nil {
		return err
	}
	p.DryRun = &r

	for name, n := range r.Enqueues {
		p.Enqueues = append(p.Enqueues, tasker.ValueCount{Value: name, Entries: int64(n)})
	}
	slices.SortFunc(p.Enqueues, func(a, b tasker.ValueCount) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Value, b.Value))
	})
	return nil
}

func (p *operationForm) do(req *request) (*view, error) {
	switch seen := req.PostFormValue("seen"); {
	case seen == "":
		return nil, tasker.Errorf(tasker.Invalid, "the form is missing the operation's state: reload the page")
	case seen != string(p.Operation.State):
		return nil, tasker.Errorf(tasker.Conflict, "the operation is now %s: check it and submit again", formatWords(p.Operation.State))
	}
	ctx, id := req.Context(), p.Operation.UUID
	var err error
	switch p.Word {
	case wordStart:
		_, err = p.Operations.Start(ctx, id, req.PostFormValue("digest"), p.Actor)
	case wordPause:
		_, err = p.Operations.Pause(ctx, id, p.Actor)
	case wordResume:
		var tolerate *tasker.FailureTolerance
		if tolerate, err = readTolerance(p.Tolerate); err == nil {
			_, err = p.Operations.Resume(ctx, id, p.Actor, tasker.ResumeOptions{Tolerate: tolerate, TolerateCause: p.TolerateCause})
		}
	default:
		_, err = p.Operations.Abort(ctx, id, p.Actor)
	}
	return &view{next: p.Back, note: "The operation was " + p.Done + "."}, err
}

func (p *operationForm) command() command {
	c := p.newCall(p.endpoint, "operation "+p.Word, p.Operation.UUID.String())
	switch p.Word {
	case wordStart:
		c.set("--plan-digest", "plan_digest", p.Digest)
	case wordResume:
		c.set("--tolerate", "tolerate", p.Tolerate)
		c.set("--tolerate-cause", "tolerate_cause", p.TolerateCause)
	}
	c.setActor("--by", "by")
	return c.format()
}
