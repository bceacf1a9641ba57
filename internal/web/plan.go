package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// A planForm plans an operation that runs the failed steps of a case again: it freezes them.
// The page of the plan, where the operation is started, follows.
type planForm struct {
	*server
	form
	Case   tasker.Case
	First  []tasker.InvestigationQueueEntry
	Others []operationLine // operations on the case that have not ended
	Key    string          // so that the same form makes one operation, however often it is sent

	Waves, Rate, StopAfter string // as typed
	IgnoreNew, Skip        bool
}

// maxPlanReason bounds the reason of an operation, in characters.
const maxPlanReason = 20_000

func (s *server) planForm(req *request) (*planForm, error) {
	id, err := req.id("case")
	if err != nil {
		return nil, err
	}
	p := &planForm{server: s}
	if p.Case, err = s.DB.Case(req.Context(), id); err != nil {
		return nil, err
	}
	p.form = req.formOf(form{page: "plan", title: "Run again: " + placeOf(p.Case), nav: navCases, Button: "Plan it", Back: casePath(id)})
	switch {
	case p.Case.MergedInto != nil:
		p.Refused = "The case was merged into another one: run the steps of that one again."
	case p.Case.Entries == 0:
		p.Refused = "No investigation of the case is open: there is nothing to run again."
	}
	p.Key, p.Waves, p.Rate, p.StopAfter = tasker.NewID().String(), wavesText(tasker.DefaultWaves()), "", strconv.Itoa(tasker.DefaultStopAfter)
	if req.Method == http.MethodPost {
		p.Key, p.Waves, p.Rate, p.StopAfter = clip(req.typed("key"), 40), strings.TrimSpace(req.typed("waves")), strings.TrimSpace(req.typed("rate")), strings.TrimSpace(req.typed("stop_after"))
		p.IgnoreNew, p.Skip = req.PostFormValue("ignore_new") != "", req.PostFormValue("skip") != ""
	}
	p.First, _, err = s.DB.InvestigationQueue(req.Context(), tasker.InvestigationFilter{Case: &id, Limit: shownItems})
	if err == nil {
		p.Others, err = s.operationsOf(req, id)
	}
	p.Command = p.command(req)
	return p, err
}

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
	plan, err := p.plan()
	if err != nil {
		return nil, err
	}
	o, _, err := p.Operations.Plan(req.Context(), plan)
	if tasker.CodeOf(err) == tasker.NotFound { // nothing that can be run again: what was typed stays
		err = tasker.Errorf(tasker.Conflict, "%s", messageOf(err))
	}
	if err != nil {
		return nil, err
	}
	return &view{next: operationPath(o.UUID) + "/" + wordStart}, nil
}

// plan returns what the form asks for.
func (p *planForm) plan() (tasker.OperationPlan, error) {
	id := p.Case.ID
	plan := tasker.OperationPlan{
		Act: tasker.ActReset, Selection: tasker.OperationSelection{Filter: tasker.InvestigationFilter{Case: &id}},
		Actor: p.Actor, Reason: p.Reason, SkipOverlap: p.Skip, Guards: tasker.Guards{IgnoreNewCause: p.IgnoreNew},
	}
	var err error
	if plan.Waves, err = readWaves(p.Waves); err != nil {
		return plan, err
	}
	if plan.RatePerMinute, err = readRate(p.Rate); err != nil {
		return plan, err
	}
	if plan.Guards.StopAfter, err = strconv.Atoi(p.StopAfter); err != nil || plan.Guards.StopAfter < 1 {
		return plan, tasker.Errorf(tasker.Invalid, "invalid number of failures %q: must be 1 or more", clip(p.StopAfter, 40))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{p.Actor, p.Reason, p.Waves, p.Rate, p.StopAfter, strconv.FormatBool(p.IgnoreNew), strconv.FormatBool(p.Skip)}))
	plan.RequestKey = "page-" + p.Key + "-" + hex.EncodeToString(sum[:8]) // another text is another request
	return plan, nil
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

// command returns the same plan from a terminal.
func (p *planForm) command(req *request) command {
	actor, reason := p.placeholders()
	waves := cmp.Or(strings.ReplaceAll(p.Waves, " ", ""), "1,10,100")
	ctl := []string{"operation", "plan", "--case", p.Case.ID.String(), "--reset", "--reason", reason, "--waves", waves, "--stop-after", p.StopAfter}
	body := apiv1.PlanOperation{
		Act: apiv1.OperationAct{Type: string(tasker.ActReset)}, Select: apiv1.OperationSelection{CaseID: p.Case.ID.String()}, Reason: reason,
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
