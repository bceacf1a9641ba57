package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/operation"
)

// A planForm plans an operation on the failed steps of cases, of investigations that were
// selected, or of all that fit a filter: it freezes them. The page of the plan, where the operation is started, follows.
type planForm struct {
	*server
	form
	Cases  []tasker.Case               // each becomes an operation
	IDs    []tasker.ID                 // investigations that were selected one by one: an operation of their own
	Filter *tasker.InvestigationFilter // all that fits it becomes one operation
	Says   []string                    // what the filter says
	Fit    int                         // how many fit it; counting stops at maxFitting
	First  []tasker.InvestigationQueueEntry
	Others []operationLine // operations on the cases that have not ended
	Key    string          // so that the same form makes one operation, however often it is sent

	Act                   tasker.Act
	Acts                  []actChoice // those that can work
	Impossible            string      // why the others cannot
	Guarded               bool        // one of the guards that are folded is not as usual
	Result                string      // of complete_manually, as typed
	Expression            string      // or an expression that gives it, as typed
	Waves, Rate, Tolerate string      // as typed
	FailedOn, FailedSince string      // as typed: only steps that failed so
	AtLeast               string      // as typed: the oldest version of workers that take the steps
	IgnoreNew, Skip       bool
}

// An actChoice is an act, with what it does.
type actChoice struct {
	Act              tasker.Act
	Flag, Name, Long string
	Unless           string // why it can work for none
	N                int    // for how many of the investigations it can work
}

const noFailedStep = "no step of these investigations has failed for good"

var actChoices = []actChoice{
	{tasker.ActReset, "--reset", "Run again", "Each failed step gets all of its attempts again. An investigation ends by itself when its step has succeeded.", noFailedStep, 0},
	{tasker.ActResolve, "--resolve", "Skip the step", "Each task goes on without the result of its failed step.", noFailedStep, 0},
	{tasker.ActComplete, "--complete", "Enter its result", "Each failed step counts as complete with the result below, one for all, or with what the expression gives for it.", noFailedStep, 0},
	{tasker.ActAnswer, "--answer", "Answer", "Each external step that waits is answered with the result below, if the form of the step accepts it.", "no external step waits for an answer", 0},
	{tasker.ActCancel, "--cancel", "Cancel the tasks", "Each task is cancelled, and its investigation ends. It cannot be taken back.", "every task has ended", 0},
	{tasker.ActCompensate, "--compensate", "Cancel and undo the tasks", "Each task is cancelled, its investigation ends, and what its completed steps have done is undone where the template says how. It cannot be taken back.", "every task has ended", 0},
	{tasker.ActRecreate, "--recreate", "Recreate the tasks", "Each task is written off, and a new one of the newest version of its template, with the same context, takes its place. It begins at its first step. It cannot be taken back.", "no task has failed", 0},
	{tasker.ActEnd, "--end", "End the investigations", "Only where the task is complete, cancelled or recovered, or where a person opened the investigation.", "no task is over or has recovered, and no person opened one", 0},
}

// Bounds of a plan: characters of its reason, and what may be selected on a page.
const (
	maxPlanReason    = 20_000
	maxSelectedIDs   = 200
	maxSelectedCases = 20
	maxVersion       = 255
)

// planForm plans an operation on one case.
func (s *server) planForm(req *request) (*planForm, error) {
	id, err := req.id("case")
	if err != nil {
		return nil, err
	}
	return s.planOf(req, &planForm{}, []tasker.ID{id}, casePath(id))
}

// planOf reads the form for cases, or for what p already has.
func (s *server) planOf(req *request, p *planForm, cases []tasker.ID, back string) (*planForm, error) {
	p.server = s
	for _, id := range cases {
		c, err := s.DB.Case(req.Context(), id)
		if err != nil {
			return nil, err
		}
		others, err := s.operationsOf(req, id)
		if err != nil {
			return nil, err
		}
		p.Cases, p.Others = append(p.Cases, c), append(p.Others, others...)
	}
	p.form = req.formOf(form{page: "plan", title: "Plan: " + p.Place(), nav: navCases, Button: "Create the plan", Back: back})
	p.refuse()
	p.read(req)
	if err := p.offer(req); err != nil {
		return nil, err
	}
	var err error
	if len(cases) == 1 && len(p.IDs) == 0 {
		p.First, _, err = s.firstOf(req, tasker.InvestigationFilter{Case: &cases[0]})
	}
	p.Command = p.command(req)
	return p, err
}

// offer adds the acts that can work, and says why the others cannot.
func (p *planForm) offer(req *request) error {
	base, err := p.narrowed()
	if err != nil {
		base = tasker.OperationSelection{}
	}
	possible := map[tasker.Act]int{}
	for _, of := range p.selections() {
		of.WorkerVersion, of.FailedSince = base.WorkerVersion, base.FailedSince
		some, err := p.Operations.Possible(req.Context(), of, maxFitting)
		if err != nil {
			return err
		}
		for act, n := range some {
			possible[act] += n
		}
	}
	var not []string
	for _, a := range actChoices {
		switch a.N = possible[a.Act]; {
		case operation.MayPlan(req.Context(), req.caller, a.Act) != nil:
		case a.N == 0:
			not = append(not, a.Name+": "+a.Unless)
		default:
			p.Acts = append(p.Acts, a)
		}
	}
	p.Impossible = strings.Join(not, "; ")
	if len(p.Acts) > 0 && possible[p.Act] == 0 && req.Method == http.MethodGet {
		p.Act = p.Acts[0].Act
	}
	return nil
}

// selections are what is planned for: each becomes an operation.
func (p *planForm) selections() (list []tasker.OperationSelection) {
	for _, c := range p.Cases {
		list = append(list, tasker.OperationSelection{Filter: tasker.InvestigationFilter{Case: &c.ID}})
	}
	if len(p.IDs) > 0 {
		list = append(list, tasker.OperationSelection{IDs: p.IDs})
	}
	if p.Filter != nil {
		list = append(list, tasker.OperationSelection{Filter: *p.Filter})
	}
	return list
}

// refuse says why nothing can be planned, if that is so.
func (p *planForm) refuse() {
	if p.Filter != nil && p.Fit == 0 {
		p.Refused = "No open investigation that you may operate on fits the filter: there is nothing to do."
	}
	for _, c := range p.Cases {
		switch {
		case c.MergedInto != nil:
			p.Refused = "The case " + placeOf(c) + " was merged into another one: plan for that one."
		case c.Entries == 0:
			p.Refused = "No investigation of the case " + placeOf(c) + " is open: there is nothing to do."
		}
	}
}

// read reads what was typed; before that, ?act= says what to begin with.
func (p *planForm) read(req *request) {
	p.Key, p.Waves, p.Rate, p.Tolerate = tasker.NewID().String(), wavesText(tasker.DefaultWaves()), "", tasker.FailureTolerance{Percent: tasker.DefaultTolerate}.String()
	q := req.query()
	p.FailedOn, p.FailedSince = strings.TrimSpace(q.Get("failed_on")), strings.TrimSpace(q.Get("failed_since"))
	p.Act = cmp.Or(tasker.Act(q.Get("act")), tasker.ActReset)
	if req.Method == http.MethodPost {
		p.Key, p.Waves, p.Rate, p.Tolerate = clip(req.typed("key"), 40), strings.TrimSpace(req.typed("waves")), strings.TrimSpace(req.typed("rate")), strings.TrimSpace(req.typed("tolerate"))
		p.FailedOn, p.FailedSince, p.AtLeast = strings.TrimSpace(req.typed("failed_on")), strings.TrimSpace(req.typed("failed_since")), strings.TrimSpace(req.typed("worker_at_least"))
		p.IgnoreNew, p.Skip = req.PostFormValue("ignore_new") != "", req.PostFormValue("skip") != ""
		p.Act, p.Result = cmp.Or(tasker.Act(req.PostFormValue("act")), p.Act), strings.TrimSpace(req.typed("result"))
		p.Expression = strings.TrimSpace(req.typed("result_expression"))
	}
	usual := p.Waves == wavesText(tasker.DefaultWaves()) && p.Tolerate == tasker.FailureTolerance{Percent: tasker.DefaultTolerate}.String()
	p.Guarded = !usual || p.Rate+p.AtLeast+p.FailedOn+p.FailedSince != "" || p.IgnoreNew || p.Skip
}

// Place says of what the plan is.
func (p *planForm) Place() string {
	if p.Filter != nil {
		return "all that fit: " + strings.Join(p.Says, ", ")
	}
	var parts []string
	switch len(p.Cases) {
	case 0:
	case 1:
		parts = append(parts, placeOf(p.Cases[0]))
	default:
		parts = append(parts, count(len(p.Cases), "case"))
	}
	if len(p.IDs) > 0 {
		parts = append(parts, count(len(p.IDs), "selected investigation"))
	}
	return strings.Join(parts, " and ")
}

// Some are the first of the selected investigations.
func (p *planForm) Some() []tasker.ID { return p.IDs[:min(len(p.IDs), shownItems)] }

func wavesText(waves []int) string {
	texts := make([]string, len(waves))
	for i, n := range waves {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ", ")
}

func (p *planForm) do(req *request) (*view, error) {
	if err := p.check(req, maxPlanReason); err != nil {
		return nil, err
	}
	if err := operation.MayPlan(req.Context(), req.caller, p.Act); err != nil {
		return nil, err
	}
	plans, err := p.plans()
	if err != nil {
		return nil, err
	}
	var last tasker.Operation
	for i, plan := range plans {
		last, _, err = p.Operations.Plan(req.Context(), plan)
		if tasker.CodeOf(err) == tasker.NotFound { // nothing that can be done so: what was typed stays
			err = tasker.Errorf(tasker.Conflict, "%s", messageOf(err))
		}
		if err != nil && len(plans) > 1 {
			err = tasker.Errorf(tasker.CodeOf(err), "%s: %s. %s planned before it; send this again, and they are not planned twice", p.placeOfPlan(i), messageOf(err), count(i, "operation"))
		}
		if err != nil {
			return nil, err
		}
	}
	if len(plans) > 1 {
		return &view{next: operationsPath + "?state=" + string(tasker.OperationPlanned), note: count(len(plans), "operation") + " are planned. Start each one from here."}, nil
	}
	return &view{next: operationPath(last.UUID) + "/" + wordStart}, nil
}

// computes reports whether an expression gives the results.
func (p *planForm) computes() bool { return p.Act.TakesResult() && p.Expression != "" }

// placeOfPlan says of what one of several plans is.
func (p *planForm) placeOfPlan(n int) string {
	if n < len(p.Cases) {
		return "the case " + placeOf(p.Cases[n])
	}
	return "the selected investigations"
}

// plans returns what the form asks for: a plan for each case, and one for what was selected.
func (p *planForm) plans() ([]tasker.OperationPlan, error) {
	plan := tasker.OperationPlan{Act: p.Act, Actor: p.Actor, Reason: p.Reason, SkipOverlap: p.Skip, Guards: tasker.Guards{IgnoreNewCause: p.IgnoreNew, WorkerAtLeast: p.AtLeast}}
	switch {
	case p.computes() && p.Result != "":
		return nil, tasker.Errorf(tasker.Invalid, "invalid result: give a result or an expression, not both")
	case p.computes():
		plan.ResultExpression = p.Expression
	case p.Act.TakesResult():
		if plan.Result = json.RawMessage(p.Result); !json.Valid(plan.Result) {
			return nil, tasker.Errorf(tasker.Invalid, "invalid result: must be JSON, such as {\"ok\": true}")
		}
	}
	err := p.readNumbers(&plan)
	if err != nil {
		return nil, err
	}
	base, err := p.narrowed()
	if err != nil {
		return nil, err
	}
	key := requestKey(p.Key, string(p.Act), p.Result, p.Expression, p.Actor, p.Reason, p.Waves, p.Rate, p.Tolerate,
		strconv.FormatBool(p.IgnoreNew), strconv.FormatBool(p.Skip), p.AtLeast, p.FailedOn, p.FailedSince, strings.Join(p.Says, "\n"))
	var plans []tasker.OperationPlan
	for i, of := range p.selections() {
		plan.Selection, plan.RequestKey = of, key
		if i < len(p.Cases) {
			plan.RequestKey += "-" + short(p.Cases[i].ID)
		}
		plan.Selection.WorkerVersion, plan.Selection.FailedSince = base.WorkerVersion, base.FailedSince
		plans = append(plans, plan)
	}
	return plans, nil
}

// readNumbers reads the waves, the rate and the guards that are numbers.
func (p *planForm) readNumbers(plan *tasker.OperationPlan) (err error) {
	if plan.Waves, err = readWaves(p.Waves); err != nil {
		return err
	}
	if plan.RatePerMinute, err = readRate(p.Rate); err != nil {
		return err
	}
	plan.Guards.Tolerate, err = readTolerance(p.Tolerate)
	return err
}

// readTolerance reads how many steps of a wave may fail; nil if nothing was typed.
func readTolerance(text string) (*tasker.FailureTolerance, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // the default, or as it was
	}
	t, err := tasker.ParseTolerance(text)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid tolerance: %w", err)
	}
	return &t, nil
}

// narrowed reads which failures count: those on a version of workers, and those since an instant.
func (p *planForm) narrowed() (s tasker.OperationSelection, err error) {
	if s.WorkerVersion = p.FailedOn; utf8.RuneCountInString(p.FailedOn) > maxVersion || storable(p.FailedOn) != nil {
		return s, tasker.Errorf(tasker.Invalid, "invalid version %q: must be text of at most %d characters", clip(strings.ToValidUTF8(p.FailedOn, "�"), 40), maxVersion)
	}
	at, err := readInstant(p.FailedSince)
	s.FailedSince = known(at)
	return s, err
}

// readWaves reads the sizes of waves.
func readWaves(text string) ([]int, error) {
	waves := []int{}
	if text == "all" {
		return waves, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > tasker.MaxOperationItems {
			return nil, tasker.Errorf(tasker.Invalid, "invalid waves %q: must be numbers from 1 to %d with commas between them, or all", clip(text, 60), tasker.MaxOperationItems)
		}
		waves = append(waves, n)
	}
	return waves, nil
}

// maxRate is the highest rate of releases, a minute.
const maxRate = 60_000

// readRate reads a rate such as 200/s as steps a minute; 0 for nothing.
func readRate(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	each := map[string]int{"s": 60, "m": 1}[unit]
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || each == 0 || n > maxRate/each {
		return 0, tasker.Errorf(tasker.Invalid, "invalid rate %q: must be from 1/m to 1000/s, such as 200/s", clip(text, 40))
	}
	return n * each, nil
}

// rateText spells a rate of releases.
func rateText(perMinute int) string {
	switch {
	case perMinute == 0:
		return "no rate limit"
	case perMinute%60 == 0:
		return "at most " + strconv.Itoa(perMinute/60) + "/s"
	default:
		return "at most " + strconv.Itoa(perMinute) + "/m"
	}
}

// Rate spells the rate at which an operation releases steps.
func (l operationLine) Rate() string { return rateText(l.RatePerMinute) }

// command returns the same plan from a terminal; of several, that of the first case.
func (p *planForm) command(req *request) command {
	actor, reason := p.placeholders()
	waves := cmp.Or(strings.ReplaceAll(p.Waves, " ", ""), "1,10,100")
	ctl, body := []string{"operation", "plan"}, apiv1.PlanOperation{Act: apiv1.OperationAct{Type: string(p.Act)}, Reason: reason}
	sel, err := p.narrowed()
	if err != nil { // what cannot be read is left out
		sel = tasker.OperationSelection{}
	}
	switch {
	case p.Filter != nil:
		sel.Filter = *p.Filter
	case len(p.Cases) > 0:
		sel.Filter.Case = &p.Cases[0].ID
	default:
		sel.IDs = p.IDs
	}
	body.Select = apiv1.FromSelection(sel, 0)
	ctl = append(ctl, filterFlags(sel)...)
	for _, id := range sel.IDs {
		body.Select.IDs, ctl = append(body.Select.IDs, id.String()), append(ctl, id.String())
	}
	for _, a := range actChoices {
		if a.Act == p.Act {
			ctl = append(ctl, a.Flag)
		}
	}
	switch {
	case p.computes():
		ctl, body.Act.ResultExpression = append(ctl, "--result-expression", p.Expression), p.Expression
	case p.Act.TakesResult():
		result := cmp.Or(p.Result, `{"ok":true}`)
		ctl = append(ctl, "--result", result)
		if json.Valid([]byte(result)) {
			body.Act.Result = json.RawMessage(result)
		}
	}
	ctl = append(ctl, "--reason", reason, "--waves", waves)
	if p.Tolerate != "" {
		ctl = append(ctl, "--tolerate", p.Tolerate)
	}
	if p.Subject == "" {
		body.PlannedBy = actor
	}
	if list, err := readWaves(p.Waves); err == nil {
		body.Waves = &list
	}
	if rate, err := readRate(p.Rate); err == nil && rate > 0 {
		ctl, body.RatePerMinute = append(ctl, "--rate", p.Rate), rate
	}
	body.Guards = &apiv1.OperationGuards{Tolerate: p.Tolerate, IgnoreNewCause: p.IgnoreNew, WorkerAtLeast: p.AtLeast}
	if p.AtLeast != "" {
		ctl = append(ctl, "--worker-at-least", p.AtLeast)
	}
	if p.IgnoreNew {
		ctl = append(ctl, "--ignore-new-causes")
	}
	if p.Skip {
		ctl, body.Overlap = append(ctl, "--skip-overlap"), "skip"
	}
	return commandOf(req, append(ctl, p.by("--by", actor)...), http.MethodPost, "/v1/operations", body)
}
