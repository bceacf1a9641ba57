package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/operation"
)

// planForm plans an operation on the failed steps of cases, of selected investigations, or of
// all that match a filter. The page of the plan follows, where the operation is started.
type planForm struct {
	form
	Cases  []tasker.Case               // one operation each
	IDs    []tasker.ID                 // selected investigations: one operation
	Filter *tasker.InvestigationFilter // all that match: one operation
	Terms  []string                    // description of the filter
	Fit    int                         // number of matches, at most maxFitting
	First  []tasker.InvestigationQueueEntry
	Others []tasker.Operation // open ones on the cases
	Key    string             // idempotency key

	Act                   tasker.Act
	Acts                  []actChoice // possible acts
	Impossible            string      // why the others are impossible
	Guarded               bool        // a folded guard differs from its default
	Result                string      // as typed
	Expression            string      // as typed; instead of a result
	Waves, Rate, Tolerate string      // as typed
	FailedOn, FailedSince string      // as typed: narrow the failures
	AtLeast               string      // as typed: minimum worker version
	IgnoreNew, Skip       bool
}

// actChoice describes an act.
type actChoice struct {
	Act              tasker.Act
	Flag, Name, Long string
	Unless           string // why it is impossible
	N                int    // investigations it is possible for
}

const noFailedStep = "no step of these investigations has failed permanently"

var actChoices = []actChoice{
	{tasker.ActReset, "--reset", "Run again", "Each failed step gets all its attempts again. Its investigation ends automatically when the step succeeds.", noFailedStep, 0},
	{tasker.ActResolve, "--resolve", "Skip the step", "Each task continues without the result of its failed step.", noFailedStep, 0},
	{tasker.ActComplete, "--complete", "Enter its result", "Each failed step completes with the result below or with that of the expression.", noFailedStep, 0},
	{tasker.ActAnswer, "--answer", "Answer", "Each waiting external step is answered with the result below, if its form accepts it.", "no external step waits for an answer", 0},
	{tasker.ActCancel, "--cancel", "Cancel the tasks", "Each task is cancelled and its investigation ends. Cannot be undone.", "all tasks have ended", 0},
	{tasker.ActCompensate, "--compensate", "Cancel and compensate the tasks", "The completed steps of each task are compensated, then the task is cancelled. Its investigation ends. Cannot be undone.", "all tasks have ended", 0},
	{tasker.ActRecreate, "--recreate", "Recreate the tasks", "Each task is marked as permanently failed. A new task of the newest template version starts with the same context at its first step. Cannot be undone.", "no task has failed", 0},
	{tasker.ActEnd, "--end", "End the investigations", "Only if the task is complete, cancelled or recovered, or if an operator opened the investigation.", "no task is complete, cancelled or recovered, and no investigation was opened manually", 0},
}

// Limits of a plan.
const (
	maxSelectedIDs   = 200
	maxSelectedCases = 20
	maxVersion       = 255
)

// newPlanForm returns the form to plan an operation on a case.
func (s *server) newPlanForm(req *request) *planForm {
	id := req.pathID("case")
	return s.newPlanFormFor(req, &planForm{}, []tasker.ID{id}, casePath(id))
}

// newPlanFormFor completes the form p for the cases, or for the selection that p already contains.
func (s *server) newPlanFormFor(req *request, p *planForm, cases []tasker.ID, back string) *planForm {
	for _, id := range cases {
		p.Cases = append(p.Cases, load(req, s.DB.Case, id))
		p.Others = append(p.Others, s.findOperations(req, id)...)
	}
	p.form = req.newForm(form{
		page: "plan", title: "Plan: " + p.Place(), nav: navCases, Button: "Create the plan", Back: back,
		maxReason: maxNotes,
	})
	p.addRefusals()
	p.read(req)
	p.addOffers(req)
	if len(cases) == 1 && len(p.IDs) == 0 {
		p.First = s.listFirst(req, tasker.InvestigationFilter{Case: &cases[0]})
	}
	p.Command = p.command()
	return p
}

// addOffers adds the possible acts, and the reasons why the others are impossible.
func (p *planForm) addOffers(req *request) {
	base, err := p.narrowSelection()
	if err != nil {
		base = tasker.OperationSelection{}
	}
	possible := map[tasker.Act]int{}
	for _, of := range p.listSelections() {
		of.WorkerVersion, of.FailedSince = base.WorkerVersion, base.FailedSince
		for act, n := range p.countPossible(req, of, maxFitting) {
			possible[act] += n
		}
	}
	var not []string
	for _, a := range actChoices {
		switch a.N = possible[a.Act]; {
		case operation.CheckPlanPermission(req.Context(), req.caller, a.Act) != nil:
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
}

// listSelections returns the selection of each operation.
func (p *planForm) listSelections() (list []tasker.OperationSelection) {
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

// addRefusals sets Refused if no plan is possible.
func (p *planForm) addRefusals() {
	if p.Filter != nil && p.Fit == 0 {
		p.Refused = "The filter matches no open investigation on which you have permission to operate."
	}
	for _, c := range p.Cases {
		switch {
		case c.MergedInto != nil:
			p.Refused = "The case " + formatPlace(c) + " was merged into another case: plan for that one."
		case c.Entries == 0:
			p.Refused = "The case " + formatPlace(c) + " has no open investigation."
		}
	}
}

// read reads the submitted fields, or the parameters of the link.
func (p *planForm) read(req *request) {
	waves, tolerate := formatWaves(tasker.DefaultWaves()),
		tasker.FailureTolerance{Percent: tasker.DefaultTolerate}.String()
	p.Key, p.Waves, p.Tolerate = tasker.NewID().String(), waves, tolerate
	q := req.query()
	p.FailedOn, p.FailedSince = strings.TrimSpace(q.Get("failed_on")), strings.TrimSpace(q.Get("failed_since"))
	p.Act = cmp.Or(tasker.Act(q.Get("act")), tasker.ActReset)
	if req.Method == http.MethodPost {
		p.Key, p.Waves, p.Rate, p.Tolerate = truncate(req.rawField("key"), 40), req.trimmedField("waves"), req.trimmedField("rate"), req.trimmedField("tolerate")
		p.FailedOn, p.FailedSince, p.AtLeast = req.trimmedField("failed_on"), req.trimmedField("failed_since"),
			req.trimmedField("worker_at_least")
		p.IgnoreNew, p.Skip = req.isChecked("ignore_new"), req.isChecked("skip")
		p.Act, p.Result, p.Expression = cmp.Or(tasker.Act(req.PostFormValue("act")), p.Act), req.trimmedField("result"), req.trimmedField("result_expression")
	}
	p.Guarded = p.Waves != waves || p.Tolerate != tolerate || p.Rate+p.AtLeast+p.FailedOn+p.FailedSince != "" || p.IgnoreNew || p.Skip
}

// Place describes the selection.
func (p *planForm) Place() string {
	if p.Filter != nil {
		return "all that match: " + strings.Join(p.Terms, ", ")
	}
	var parts []string
	switch len(p.Cases) {
	case 0:
	case 1:
		parts = append(parts, formatPlace(p.Cases[0]))
	default:
		parts = append(parts, formatCount(len(p.Cases), "case"))
	}
	if len(p.IDs) > 0 {
		parts = append(parts, formatCount(len(p.IDs), "selected investigation"))
	}
	return strings.Join(parts, " and ")
}

// Some returns the first selected investigations.
func (p *planForm) Some() []tasker.ID { return p.IDs[:min(len(p.IDs), shownItems)] }

func formatWaves(waves []int) string {
	texts := make([]string, len(waves))
	for i, n := range waves {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ", ")
}

func (p *planForm) do(req *request) (*view, error) {
	if err := operation.CheckPlanPermission(req.Context(), req.caller, p.Act); err != nil {
		return nil, err
	}
	plans, err := p.buildPlans()
	if err != nil {
		return nil, err
	}
	var last tasker.Operation
	for i, plan := range plans {
		last, _, err = p.Operations.Plan(req.Context(), plan)
		if tasker.CodeOf(err) == tasker.NotFound { // keeps the input
			err = tasker.Errorf(tasker.Conflict, "%s", errorMessage(err))
		}
		if err != nil && len(plans) > 1 {
			err = tasker.Errorf(tasker.CodeOf(err), "%s: %s. %s already planned: submit again to plan the rest", p.formatPlanPlace(i), errorMessage(err), formatCount(i, "operation"))
		}
		if err != nil {
			return nil, err
		}
	}
	if len(plans) > 1 {
		return &view{next: operationsPath + "?state=" + string(tasker.OperationPlanned), note: formatCount(len(plans), "operation") + " planned. Start each one from here."}, nil
	}
	return &view{next: operationPath(last.UUID) + "/" + wordStart}, nil
}

// computesResult reports whether an expression computes the results.
func (p *planForm) computesResult() bool { return p.Act.TakesResult() && p.Expression != "" }

// formatPlanPlace describes the selection of plan n.
func (p *planForm) formatPlanPlace(n int) string {
	if n < len(p.Cases) {
		return "the case " + formatPlace(p.Cases[n])
	}
	return "the selected investigations"
}

// buildPlans returns the requested operations.
func (p *planForm) buildPlans() ([]tasker.OperationPlan, error) {
	plan := tasker.OperationPlan{Act: p.Act, Actor: p.Actor, Reason: p.Reason, SkipOverlap: p.Skip, Guards: tasker.Guards{IgnoreNewCause: p.IgnoreNew, WorkerAtLeast: p.AtLeast}}
	switch {
	case p.computesResult() && p.Result != "":
		return nil, tasker.Errorf(tasker.Invalid, "invalid result: enter a result or an expression, not both")
	case p.computesResult():
		plan.ResultExpression = p.Expression
	case p.Act.TakesResult():
		if plan.Result = json.RawMessage(p.Result); !json.Valid(plan.Result) {
			return nil, tasker.Errorf(tasker.Invalid, "invalid result: must be JSON, such as {\"ok\": true}")
		}
	}
	if err := p.readNumbers(&plan); err != nil {
		return nil, err
	}
	base, err := p.narrowSelection()
	if err != nil {
		return nil, err
	}
	key := newRequestKey(p.Key, string(p.Act), p.Result, p.Expression, p.Actor, p.Reason, p.Waves, p.Rate, p.Tolerate,
		strconv.FormatBool(p.IgnoreNew), strconv.FormatBool(p.Skip), p.AtLeast, p.FailedOn, p.FailedSince, strings.Join(p.Terms, "\n"))
	var plans []tasker.OperationPlan
	for i, of := range p.listSelections() {
		plan.Selection, plan.RequestKey = of, key
		if i < len(p.Cases) {
			plan.RequestKey += "-" + formatShortID(p.Cases[i].ID)
		}
		plan.Selection.WorkerVersion, plan.Selection.FailedSince = base.WorkerVersion, base.FailedSince
		plans = append(plans, plan)
	}
	return plans, nil
}

// readNumbers reads the waves, the rate and the tolerance.
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

// readTolerance reads the optional failure tolerance of a wave.
func readTolerance(text string) (*tasker.FailureTolerance, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // optional
	}
	t, err := tasker.ParseTolerance(text)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid tolerance: %w", err)
	}
	return &t, nil
}

// narrowSelection returns the conditions on the selected failures: the worker version and the
// earliest time.
func (p *planForm) narrowSelection() (s tasker.OperationSelection, err error) {
	if s.WorkerVersion = p.FailedOn; utf8.RuneCountInString(p.FailedOn) > maxVersion || checkStorable(p.FailedOn) != nil {
		return s, tasker.Errorf(tasker.Invalid, "invalid version %q: must be at most %d "+
			"characters long", truncate(strings.ToValidUTF8(p.FailedOn, "�"), 40), maxVersion)
	}
	at, err := parseTime(p.FailedSince)
	s.FailedSince = nilIfZeroTime(at)
	return s, err
}

// readWaves parses wave sizes separated by commas. For "all", it returns no waves, so that one
// wave contains all items.
func readWaves(text string) ([]int, error) {
	waves := []int{}
	if text == "all" {
		return waves, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > tasker.MaxOperationItems {
			return nil, tasker.Errorf(tasker.Invalid, "invalid waves %q: must be numbers from 1 to %d separated by commas, or all", truncate(text, 60), tasker.MaxOperationItems)
		}
		waves = append(waves, n)
	}
	return waves, nil
}

// maxRate is the maximum rate of releases per minute.
const maxRate = 60_000

// readRate parses a rate such as 200/s and returns steps per minute. It returns 0 for an empty
// text.
func readRate(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	each := map[string]int{"s": 60, "m": 1}[unit]
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || each == 0 || n > maxRate/each {
		return 0, tasker.Errorf(tasker.Invalid, "invalid rate %q: must be from 1/m to 1000/s, such as 200/s",
			truncate(text, 40))
	}
	return n * each, nil
}

// formatRate formats the rate at which an operation releases steps.
func formatRate(perMinute int) string {
	switch {
	case perMinute == 0:
		return "no rate limit"
	case perMinute%60 == 0:
		return "at most " + strconv.Itoa(perMinute/60) + "/s"
	default:
		return "at most " + strconv.Itoa(perMinute) + "/m"
	}
}

// command returns the commands that create the plan, or the first of several plans.
func (p *planForm) command() command {
	c := p.newCall(endpoint.PlanOperation, "operation plan")
	sel, err := p.narrowSelection()
	if err != nil {
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
	p.addSelection(c, sel)
	c.setReason()
	c.flag("--waves", cmp.Or(strings.ReplaceAll(p.Waves, " ", ""), "1,10,100"))
	c.flag("--tolerate", p.Tolerate)
	if waves, err := readWaves(p.Waves); err == nil {
		c.member("waves", &waves)
	}
	if rate, err := readRate(p.Rate); err == nil {
		c.flag("--rate", p.Rate)
		c.member("rate_per_minute", rate)
	}
	c.flag("--worker-at-least", p.AtLeast)
	c.flag("--ignore-new-causes", p.IgnoreNew)
	c.member("guards", apiv1.OperationGuards{Tolerate: p.Tolerate, IgnoreNewCause: p.IgnoreNew,
		WorkerAtLeast: p.AtLeast})
	if p.Skip {
		c.flag("--skip-overlap", true)
		c.member("overlap", "skip")
	}
	c.setActor("--by", "planned_by")
	return c.format()
}

// addSelection adds the selection and the act.
func (p *planForm) addSelection(c *call, sel tasker.OperationSelection) {
	selects, act := apiv1.FromSelection(sel, 0), apiv1.OperationAct{Type: string(p.Act)}
	c.flag("--dlq-reason", sel.Filter.Reason) // --reason is that of the operation
	sel.Filter.Reason = ""
	c.words = append(c.words, formatFilterFlags(&sel.Filter)...)
	c.flag("--failed-on", sel.WorkerVersion)
	if sel.FailedSince != nil {
		c.flag("--failed-since", sel.FailedSince.UTC().Format(time.RFC3339Nano))
	}
	for _, id := range sel.IDs {
		selects.IDs, c.words = append(selects.IDs, id.String()), append(c.words, id.String())
	}
	for _, a := range actChoices {
		c.flag(a.Flag, a.Act == p.Act)
	}
	switch {
	case p.computesResult():
		c.flag("--result-expression", p.Expression)
		act.ResultExpression = p.Expression
	case p.Act.TakesResult():
		result := cmp.Or(p.Result, `{"ok":true}`)
		c.flag("--result", result)
		if json.Valid([]byte(result)) {
			act.Result = json.RawMessage(result)
		}
	}
	c.member("act", act)
	c.member("select", selects)
}
