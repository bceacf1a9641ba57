// Package operation applies one act to many steps or tasks. It freezes a selection, releases the
// items in waves, pauses when they fail and records the outcome of each.
//
// Every server releases items of started operations and verifies their outcomes. An act is
// committed together with its item, so another server can continue after a crash. Investigations
// select the items and end when these succeed.
package operation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/version"
)

// planLife is the time within which a plan must be started.
const planLife = 30 * time.Minute

// Limits of the fields of a plan.
const (
	maxReason      = 20_000
	maxPerson      = 255
	maxWaves       = 20
	maxRate        = 60_000 // per minute: 1000 per second
	maxWaveTimeout = 24 * time.Hour
	maxVersion     = 100

	maxCheckedSteps = 100 // kinds of steps, by template and name, for which an expression is checked
	maxFaults       = 10
)

// Options configures a Service. All fields are optional.
type Options struct {
	Metrics *metrics.Metrics
	Log     *slog.Logger
}

// Service plans and runs operations. It is safe for concurrent use.
type Service struct {
	db      *postgres.DB
	engine  *engine.Engine
	dlq     *dlq.Service
	metrics *metrics.Metrics
	log     *slog.Logger
	release chan struct{} // wakes the release loop
	verify  chan struct{} // wakes the verification loop
	cursors cursors
}

// New returns a service on a database whose schema is current.
func New(db *postgres.DB, e *engine.Engine, d *dlq.Service, o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		db: db, engine: e, dlq: d, metrics: o.Metrics, log: o.Log,
		release: make(chan struct{}, 1), verify: make(chan struct{}, 1),
	}
}

// alsoNeeds lists the permissions that acts on whole tasks require in addition to operating steps.
var alsoNeeds = map[tasker.Act][]access.Permission{
	tasker.ActCancel: {access.CancelTasks}, tasker.ActCompensate: {access.CancelTasks},
	tasker.ActEnd: {access.UpdateInvestigations}, tasker.ActRecreate: {access.CreateTasks, access.UpdateInvestigations},
}

// CheckPlanPermission returns an error if the caller lacks a permission that the act requires. The
// scope of ctx must contain the namespaces in which the caller may operate steps.
func CheckPlanPermission(ctx context.Context, caller *access.Identity, act tasker.Act) error {
	for _, needs := range alsoNeeds[act] {
		if !caller.Scope(needs).Covers(access.ScopeFromContext(ctx)) {
			return caller.CheckPermission(needs)
		}
	}
	return nil
}

// CountPossible returns, for each act, to how many of the selected investigations it can be
// applied. It considers at most limit investigations. Acts that apply to none are omitted.
func (s *Service) CountPossible(
	ctx context.Context, selection tasker.OperationSelection, limit int,
) (map[tasker.Act]int, error) {
	groups, err := s.db.CountSelected(ctx, selection, limit)
	if err != nil {
		return nil, err
	}
	possible := map[tasker.Act]int{}
	for _, g := range groups {
		t := postgres.TaskTarget{State: g.State, Recovered: g.Recovered, ByHand: g.ByHand}
		for _, act := range tasker.Acts() {
			can := g.Failed
			switch act {
			case tasker.ActAnswer:
				can = g.Awaited
			case tasker.ActRecreate:
				can = dlq.CheckWriteOff(tasker.ID{}, g.State, 0) == nil
			case tasker.ActCompensate:
				can = isAllowed(tasker.ActCancel, t)
			case tasker.ActCancel, tasker.ActEnd:
				can = isAllowed(act, t)
			default:
			}
			if can {
				possible[act] += g.N
			}
		}
	}
	return possible, nil
}

// Plan freezes the items of an operation without starting it. A repeated request returns the
// existing operation and false. Plan returns Invalid, NotFound if nothing is selected, or a
// Conflict if another operation already has some of the steps or too many operations are open.
func (s *Service) Plan(ctx context.Context, p tasker.OperationPlan) (planned tasker.Operation, made bool, err error) {
	if err := completePlan(&p); err != nil {
		return planned, false, err
	}
	arguments, err := s.encodeArguments(p)
	if err != nil {
		return planned, false, err
	}
	digest, err := computeDigest(p)
	if err != nil {
		return planned, false, err
	}
	o := postgres.NewOperation{
		OperationPlan: p, UUID: tasker.NewID(), Digest: digest, Arguments: arguments, Expires: planLife,
	}
	o.Key = o.UUID.String()
	if p.RequestKey != "" {
		o.Key = postgres.ScopedRequestKey(ctx, p.RequestKey)
	}
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := tx.LockPlans(ctx); err != nil {
			return err
		}
		known, before, err := tx.OperationByKey(ctx, o.Key)
		if err != nil {
			return err
		}
		if made = known == nil; !made {
			if !bytes.Equal(before, digest) {
				return tasker.Errorf(tasker.Conflict,
					"Idempotency-Key %q was used for a different request: use a new key for each request", p.RequestKey)
			}
			planned, err = tx.Operation(ctx, *known)
			return err
		}
		if err := storePlan(ctx, tx, o); err != nil {
			return err
		}
		if err := s.checkResults(ctx, tx, o); err != nil {
			return err
		}
		planned, err = tx.Operation(ctx, o.UUID)
		return err
	})
	return planned, made, err
}

func storePlan(ctx context.Context, tx *postgres.Tx, o postgres.NewOperation) error {
	open, err := tx.CountOpenOperations(ctx, tasker.MaxOpenOperations)
	if err != nil {
		return err
	}
	if err := checkOpenQuota(open, o.Selection.Filter.Namespace); err != nil { // before the selection, if possible
		return err
	}
	if err := tx.InsertOperation(ctx, o); err != nil {
		return err
	}
	frozen, err := tx.Freeze(ctx, o.UUID, o.Act, o.Selection, o.Limit)
	if err != nil {
		return err
	}
	items := postgres.PlannedItems{Frozen: frozen, Capped: frozen.Selected > o.Limit || frozen.More}
	if items.Overlapping, err = findOverlaps(ctx, tx, frozen); err != nil {
		return err
	}
	if err := checkPlanned(o, items); err != nil {
		return err
	}
	if len(items.Namespaces) == 1 {
		if err := checkOpenQuota(open, items.Namespaces[0]); err != nil {
			return err
		}
	}
	if items.Causes, err = findCauses(ctx, tx, o.UUID, items.Items); err != nil {
		return err
	}
	sum := sha256.Sum256(append(slices.Clone(o.Digest), frozen.Digest...))
	items.PlanDigest = "sha256:" + hex.EncodeToString(sum[:])
	if err := tx.SetItems(ctx, o.UUID, items); err != nil {
		return err
	}
	return tx.AuditOperation(ctx, "operation.planned", o.UUID, o.Actor, map[string]any{
		"act": o.Act, "items": items.Items, "namespaces": items.Namespaces, "reason": o.Reason,
	})
}

// checkOpenQuota returns a Conflict if too many operations are open, in total or in the given
// namespace. An operation with items in several namespaces counts only toward the total.
func checkOpenQuota(open map[string]int, namespace string) error {
	all := 0
	for _, n := range open {
		all += n
	}
	const abort = "abort those you do not need (tasker-ctl operation list"
	switch n := open[namespace]; {
	case all >= tasker.MaxOpenOperations:
		return tasker.Errorf(tasker.Conflict,
			"the limit of %d open operations in all namespaces is reached: "+abort+")", all)
	case namespace != "" && n >= tasker.MaxOpenOperationsPerNamespace:
		return tasker.Errorf(tasker.Conflict, "%d operations are open in namespace %s, "+
			"which is the limit of a namespace: "+abort+" --namespace %s)", n, namespace, namespace)
	}
	return nil
}

// findOverlaps returns the other operations that already contain selected steps.
func findOverlaps(ctx context.Context, tx *postgres.Tx, f postgres.Frozen) ([]tasker.OperationOverlap, error) {
	if len(f.Operations) == 0 {
		return nil, nil
	}
	planners, err := tx.Planners(ctx, f.Operations)
	if err != nil {
		return nil, err
	}
	list := make([]tasker.OperationOverlap, len(f.Operations))
	for i, id := range f.Operations {
		list[i] = tasker.OperationOverlap{OperationUUID: id, PlannedBy: planners[id], Items: f.Held[i]}
	}
	return list, nil
}

// checkPlanned returns why a plan cannot run with its items, or nil.
func checkPlanned(o postgres.NewOperation, p postgres.PlannedItems) error {
	if len(p.Overlapping) > 0 && (!o.SkipOverlap || p.Items == 0) {
		first := p.Overlapping[0]
		others := ""
		if n := len(p.Overlapping) - 1; n > 0 {
			others = fmt.Sprintf(", and %d more operations (see details) include others", n)
		}
		return tasker.Errorf(tasker.Conflict, "operation %s, planned by %s, includes %d of the selected steps%s: "+
			"wait for it, abort it, or skip these steps (overlap: skip, --skip-overlap)",
			first.OperationUUID, first.PlannedBy, first.Items, others).WithDetails(map[string]any{"overlapping": p.Overlapping})
	}
	switch {
	case p.Selected == 0:
		return tasker.Errorf(tasker.NotFound, "no open investigation selected that you may operate on")
	case p.Items == 0:
		return newNothingToDoError(o.Act, p.Selected)
	}
	return nil
}

// newNothingToDoError returns the error for an act that applies to none of the selected
// investigations.
func newNothingToDoError(act tasker.Act, selected int) error {
	none := fmt.Sprintf("none of these %d investigations has", selected)
	if selected == 1 {
		none = "this investigation does not have"
	}
	what := "a failed step, so there is nothing to retry, skip or complete: answer external steps that wait (answer, --answer), " +
		"and end investigations of tasks that have ended or recovered, and those opened manually " +
		"(end_investigation, --end)"
	if act == tasker.ActAnswer {
		what = "an external step that waits for an answer, so there is nothing to answer: " +
			"retry, skip or complete failed steps"
	}
	return tasker.Errorf(tasker.NotFound, "%s %s", none, what)
}

// completePlan validates a plan and sets its defaults.
func completePlan(p *tasker.OperationPlan) error {
	var faults []tasker.Fault
	fault := func(path, format string, args ...any) {
		faults = append(faults, tasker.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if !slices.Contains(tasker.Acts(), p.Act) {
		fault("act.type", "must be one of %s, not %q", strings.Join(strings.Fields(strings.Trim(fmt.Sprint(tasker.Acts()), "[]")), ", "), p.Act)
	}
	if p.Selection.IsEmpty() {
		fault("select",
			"is empty: select investigations; %q with a namespace selects all investigations in it", "namespace")
	}
	if p.Selection.IDs != nil && (len(p.Selection.IDs) == 0 || len(p.Selection.IDs) > tasker.MaxOperationItems) {
		fault("select.ids", "has %d ids; must have 1 to %d", len(p.Selection.IDs), tasker.MaxOperationItems)
	}
	if n := len(p.Selection.Filter.Tags); n > tasker.MaxSearchTags {
		fault("select.tags", "has %d tags; the limit is %d", n, tasker.MaxSearchTags)
	}
	for _, f := range []struct {
		path, text string
		limit      int
	}{{"reason", p.Reason, maxReason}, {"planned_by", p.Actor, maxPerson}} {
		if wrong := payload.CheckText(f.text, f.limit); payload.IsBlank(f.text) {
			fault(f.path, "is missing")
		} else if wrong != "" {
			fault(f.path, "%s", wrong)
		}
	}
	if wrong := payload.CheckText(p.RequestKey, postgres.MaxRequestKey); wrong != "" {
		fault("Idempotency-Key", "%s", wrong)
	}
	if p.Waves == nil {
		p.Waves = tasker.DefaultWaves()
	}
	if len(p.Waves) > maxWaves || slices.ContainsFunc(p.Waves, func(n int) bool { return n < 1 || n > tasker.MaxOperationItems }) {
		fault("waves", "must be at most %d numbers from 1 to %d; all remaining items follow the "+
			"last wave", maxWaves, tasker.MaxOperationItems)
	}
	if p.RatePerMinute < 0 || p.RatePerMinute > maxRate {
		fault("rate_per_minute", "must be from 0 (no limit) to %d, not %d", maxRate, p.RatePerMinute)
	}
	completeGuards(p, fault)
	p.Limit = cmp.Or(p.Limit, tasker.MaxOperationItems)
	if p.Limit < 1 || p.Limit > tasker.MaxOperationItems {
		fault("limit", "must be from 1 to %d, not %d", tasker.MaxOperationItems, p.Limit)
	}
	validateResult(p, fault)
	if len(faults) > 0 {
		return tasker.Errorf(tasker.Invalid, "the operation cannot be planned: %s", faults[0]).WithDetails(faults)
	}
	return nil
}

// validateResult validates the result or the result expression of an act.
func validateResult(p *tasker.OperationPlan, fault func(path, format string, args ...any)) {
	switch {
	case !p.Act.TakesResult() && (len(p.Result) > 0 || len(p.Metadata) > 0):
		fault("act.result", "is only allowed with complete_manually and answer")
	case !p.Act.TakesResult() && p.ResultExpression != "":
		fault("act.result_expression", "is only allowed with complete_manually and answer")
	case len(p.Result) > 0 && p.ResultExpression != "":
		fault("act.result_expression", "conflicts with result: set only one of them")
	case strings.ContainsRune(p.ResultExpression, 0) || !utf8.ValidString(p.ResultExpression):
		fault("act.result_expression", "contains NUL or is not valid UTF-8")
	}
}

// checkResults rejects a result expression that is certain to fail for some of the items.
func (s *Service) checkResults(ctx context.Context, tx *postgres.Tx, o postgres.NewOperation) error {
	if o.ResultExpression == "" {
		return nil
	}
	steps, err := tx.TemplateSteps(ctx, o.UUID, maxCheckedSteps+1)
	if err != nil {
		return err
	}
	var faults []tasker.Fault
	if len(steps) > maxCheckedSteps {
		faults = []tasker.Fault{{Path: "act.result_expression", Message: fmt.Sprintf(
			"applies to steps of more than %d kinds, by template and name: select steps of one "+
				"template", maxCheckedSteps)}}
		steps = nil
	}
	for _, step := range steps {
		err := s.engine.CheckResult(ctx, tx, o.ResultExpression, step)
		if tasker.CodeOf(err) == tasker.Invalid && len(faults) < maxFaults {
			faults = append(faults, tasker.Fault{Path: "act.result_expression", Message: err.Error()})
		} else if err != nil && tasker.CodeOf(err) != tasker.Invalid {
			return err
		}
	}
	if len(faults) > 0 {
		return tasker.Errorf(tasker.Invalid, "the operation cannot be planned: %s", faults[0]).WithDetails(faults)
	}
	return nil
}

// completeGuards validates the guards of a plan and sets their defaults.
func completeGuards(p *tasker.OperationPlan, fault func(path, format string, args ...any)) {
	p.Guards.Tolerate = cmp.Or(p.Guards.Tolerate, &tasker.FailureTolerance{Percent: tasker.DefaultTolerate})
	if !isValidTolerance(p.Guards.Tolerate) {
		fault("guards.tolerate", outOfRange, tasker.MaxOperationItems, p.Guards.Tolerate)
	}
	p.Guards.WaveTimeout = cmp.Or(p.Guards.WaveTimeout, tasker.DefaultWaveTimeout)
	if p.Guards.WaveTimeout < time.Second || p.Guards.WaveTimeout > maxWaveTimeout {
		fault("guards.wave_timeout_seconds", "must be from 1 to %d", int(maxWaveTimeout/time.Second))
	}
	switch w := p.Guards.WorkerAtLeast; {
	case w == "":
	case p.Act != tasker.ActReset:
		fault("guards.worker_at_least", "is only allowed with reset_for_retry: no worker is involved otherwise")
	case !version.Valid(w) || len(w) > maxVersion:
		fault("guards.worker_at_least", "must be a semantic version such as 1.6.0")
	}
}

const outOfRange = "must be from 0 to %d steps, or from 0%% to 100%%, not %s"

func isValidTolerance(t *tasker.FailureTolerance) bool {
	return t.Items >= 0 && t.Items <= tasker.MaxOperationItems && t.Percent >= 0 && t.Percent <= 100
}

// An argumentsDoc is the stored form of the arguments of an act.
type argumentsDoc struct {
	Result     json.RawMessage `json:"result,omitempty"`
	Expression string          `json:"result_expression,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
}

// encodeArguments returns the arguments of the act for storage. It returns Invalid if steps would
// refuse them.
func (s *Service) encodeArguments(p tasker.OperationPlan) (json.RawMessage, error) {
	if action, ok := p.Act.StepAction(); ok {
		if _, err := s.engine.NewAction(tasker.ActionRequest{
			Action: action, Answer: p.Act == tasker.ActAnswer, Actor: p.Actor, Reason: p.Reason, Result: p.Result,
			ResultExpression: p.ResultExpression, Metadata: p.Metadata,
		}); err != nil {
			return nil, err
		}
	}
	return json.Marshal(argumentsDoc{Result: p.Result, Expression: p.ResultExpression, Metadata: p.Metadata})
}

// computeDigest returns a digest that distinguishes requests with the same idempotency key.
func computeDigest(p tasker.OperationPlan) ([]byte, error) {
	p.RequestKey = ""
	doc, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("digest of a plan: %w", err)
	}
	sum := sha256.Sum256(doc)
	return sum[:], nil
}
