package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/operation"
)

// A planForm plans an operation on the failed steps of cases, or of investigations that were
// selected: it freezes them. The page of the plan, where the operation is started, follows.
type planForm struct {
	*server
	form
	Cases  []tasker.Case // each becomes an operation
	IDs    []tasker.ID   // investigations that were selected one by one: an operation of their own
	First  []tasker.InvestigationQueueEntry
	Others []operationLine // operations on the cases that have not ended
	Key    string          // so that the same form makes one operation, however often it is sent

	Act                    tasker.Act
	Acts                   []actChoice
	Result                 string // of complete_manually, as typed
	Waves, Rate, StopAfter string // as typed
	IgnoreNew, Skip        bool
}

// An actChoice is an act, with what it does.
type actChoice struct {
	Act              tasker.Act
	Flag, Name, Long string
}

var actChoices = []actChoice{
	{tasker.ActReset, "--reset", "Run again", "Each failed step gets all of its attempts again. An investigation ends by itself when its step has succeeded."},
	{tasker.ActResolve, "--resolve", "Skip the step", "Each task goes on without the result of its failed step."},
	{tasker.ActComplete, "--complete", "Enter its result", "Each failed step counts as complete with the result below: one for all."},
	{tasker.ActCancel, "--cancel", "Cancel the tasks", "Each task is cancelled, and its investigation ends. It cannot be taken back."},
	{tasker.ActRecreate, "--recreate", "Recreate the tasks", "Each task is written off, and a new one of the newest version of its template, with the same context, takes its place. It begins at its first step. It cannot be taken back."},
	{tasker.ActEnd, "--end", "End the investigations", "Only where the task is complete or cancelled, or went on by itself."},
}

// Bounds of a plan: characters of its reason, and what may be selected on a page.
const (
	maxPlanReason    = 20_000
	maxSelectedIDs   = 200
	maxSelectedCases = 20
)

// planForm plans an operation on one case.
func (s *server) planForm(req *request) (*planForm, error) {
	id, err := req.id("case")
	if err != nil {
		return nil, err
	}
	return s.planOf(req, []tasker.ID{id}, nil, casePath(id))
}

// selectionForm plans operations on what was selected in a list: ?case= and ?id=.
func (s *server) selectionForm(req *request) (*planForm, error) {
	q := req.URL.Query()
	cases, err := readSelected(q["case"], "cases", maxSelectedCases)
	if err != nil {
		return nil, err
	}
	ids, err := readSelected(q["id"], "investigations", maxSelectedIDs)
	if err == nil && len(cases)+len(ids) == 0 {
		err = tasker.Errorf(tasker.Invalid, "nothing is selected: go back, and select cases or investigations")
	}
	if err != nil {
		return nil, err
	}
	back := Root + "/"
	if len(cases) == 0 {
		back += "?view=entries"
	}
	return s.planOf(req, cases, ids, back)
}

// readSelected reads ids that a list has sent.
func readSelected(texts []string, what string, most int) (ids []tasker.ID, err error) {
	if len(texts) > most {
		return nil, tasker.Errorf(tasker.Invalid, "%d %s are selected; a page plans for %d at most: use a filter of tasker-ctl operation plan", len(texts), what, most)
	}
	for _, text := range texts {
		var id tasker.ID
		if err := id.UnmarshalText([]byte(text)); err != nil {
			return nil, tasker.Errorf(tasker.Invalid, "invalid selection %q: must be a whole UUID", clip(text, 60))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// planOf reads the form for cases and investigations.
func (s *server) planOf(req *request, cases, ids []tasker.ID, back string) (*planForm, error) {
	p := &planForm{server: s, IDs: ids}
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
	p.form = req.formOf(form{page: "plan", title: "Plan: " + p.Place(), nav: navCases, Button: "Plan it", Back: back})
	p.refuse()
	for _, a := range actChoices {
		if operation.MayPlan(req.Context(), req.caller, a.Act) == nil {
			p.Acts = append(p.Acts, a)
		}
	}
	p.read(req)
	var err error
	if len(cases) == 1 && len(ids) == 0 {
		p.First, _, err = s.DB.InvestigationQueue(req.Context(), tasker.InvestigationFilter{Case: &cases[0], Limit: shownItems})
	}
	p.Command = p.command(req)
	return p, err
}

// refuse says why nothing can be planned, if that is so.
func (p *planForm) refuse() {
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
	p.Key, p.Waves, p.Rate, p.StopAfter = tasker.NewID().String(), wavesText(tasker.DefaultWaves()), "", strconv.Itoa(tasker.DefaultStopAfter)
	p.Act = cmp.Or(tasker.Act(req.URL.Query().Get("act")), tasker.ActReset)
	if req.Method == http.MethodPost {
		p.Key, p.Waves, p.Rate, p.StopAfter = clip(req.typed("key"), 40), strings.TrimSpace(req.typed("waves")), strings.TrimSpace(req.typed("rate")), strings.TrimSpace(req.typed("stop_after"))
		p.IgnoreNew, p.Skip = req.PostFormValue("ignore_new") != "", req.PostFormValue("skip") != ""
		p.Act, p.Result = cmp.Or(tasker.Act(req.PostFormValue("act")), p.Act), strings.TrimSpace(req.typed("result"))
	}
}

// Place says of what the plan is.
func (p *planForm) Place() string {
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

// placeOfPlan says of what one of several plans is.
func (p *planForm) placeOfPlan(n int) string {
	if n < len(p.Cases) {
		return "the case " + placeOf(p.Cases[n])
	}
	return "the selected investigations"
}

// plans returns what the form asks for: a plan for each case, and one for what was selected.
func (p *planForm) plans() ([]tasker.OperationPlan, error) {
	plan := tasker.OperationPlan{Act: p.Act, Actor: p.Actor, Reason: p.Reason, SkipOverlap: p.Skip, Guards: tasker.Guards{IgnoreNewCause: p.IgnoreNew}}
	if p.Act == tasker.ActComplete {
		if plan.Result = json.RawMessage(p.Result); !json.Valid(plan.Result) {
			return nil, tasker.Errorf(tasker.Invalid, "invalid result: must be JSON, such as {\"ok\": true}")
		}
	}
	var err error
	if plan.Waves, err = readWaves(p.Waves); err != nil {
		return nil, err
	}
	if plan.RatePerMinute, err = readRate(p.Rate); err != nil {
		return nil, err
	}
	if plan.Guards.StopAfter, err = strconv.Atoi(p.StopAfter); err != nil || plan.Guards.StopAfter < 1 {
		return nil, tasker.Errorf(tasker.Invalid, "invalid number of failures %q: must be 1 or more", clip(p.StopAfter, 40))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{string(p.Act), p.Result, p.Actor, p.Reason, p.Waves, p.Rate, p.StopAfter, strconv.FormatBool(p.IgnoreNew), strconv.FormatBool(p.Skip)}))
	key := "page-" + p.Key + "-" + hex.EncodeToString(sum[:8]) // another text is another request
	var plans []tasker.OperationPlan
	for _, c := range p.Cases {
		plan.Selection, plan.RequestKey = tasker.OperationSelection{Filter: tasker.InvestigationFilter{Case: &c.ID}}, key+"-"+short(c.ID)
		plans = append(plans, plan)
	}
	if len(p.IDs) > 0 {
		plan.Selection, plan.RequestKey = tasker.OperationSelection{IDs: p.IDs}, key
		plans = append(plans, plan)
	}
	return plans, nil
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
		return "without a limit"
	case perMinute%60 == 0:
		return strconv.Itoa(perMinute/60) + "/s"
	default:
		return strconv.Itoa(perMinute) + "/m"
	}
}

// Rate spells the rate at which an operation releases steps.
func (l operationLine) Rate() string { return rateText(l.RatePerMinute) }

// command returns the same plan from a terminal; of several, that of the first case.
func (p *planForm) command(req *request) command {
	actor, reason := p.placeholders()
	waves := cmp.Or(strings.ReplaceAll(p.Waves, " ", ""), "1,10,100")
	ctl, body := []string{"operation", "plan"}, apiv1.PlanOperation{Act: apiv1.OperationAct{Type: string(p.Act)}, Reason: reason}
	if len(p.Cases) > 0 {
		body.Select.CaseID = p.Cases[0].ID.String()
		ctl = append(ctl, "--case", body.Select.CaseID)
	} else {
		for _, id := range p.IDs {
			body.Select.IDs, ctl = append(body.Select.IDs, id.String()), append(ctl, id.String())
		}
	}
	for _, a := range actChoices {
		if a.Act == p.Act {
			ctl = append(ctl, a.Flag)
		}
	}
	if p.Act == tasker.ActComplete {
		result := cmp.Or(p.Result, `{"ok":true}`)
		ctl = append(ctl, "--result", result)
		if json.Valid([]byte(result)) {
			body.Act.Result = json.RawMessage(result)
		}
	}
	ctl = append(ctl, "--reason", reason, "--waves", waves, "--stop-after", p.StopAfter)
	if p.Subject == "" {
		body.PlannedBy = actor
	}
	if list, err := readWaves(p.Waves); err == nil {
		body.Waves = &list
	}
	if rate, err := readRate(p.Rate); err == nil && rate > 0 {
		ctl, body.RatePerMinute = append(ctl, "--rate", p.Rate), rate
	}
	body.Guards = &apiv1.OperationGuards{IgnoreNewCause: p.IgnoreNew}
	body.Guards.StopAfter, _ = strconv.Atoi(p.StopAfter) // what cannot be read is left to the default
	if p.IgnoreNew {
		ctl = append(ctl, "--ignore-new-causes")
	}
	if p.Skip {
		ctl, body.Overlap = append(ctl, "--skip-overlap"), "skip"
	}
	return commandOf(req, append(ctl, p.by("--by", actor)...), http.MethodPost, "/v1/operations", body)
}
