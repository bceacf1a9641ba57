package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

const (
	decideChunk    = 20      // steps that one transaction decides, in addition to those that become due by it
	decideRounds   = 50      // maximum number of rounds per transaction, in which steps are skipped because others were
	conditionBytes = 4 << 20 // total size of the results that an expression refers to
	maxSkipReason  = 1000

	decideTime = time.Second // a transaction decides no further steps after this time
)

// scheduleDecision starts the decision of steps that became due in a transaction of this process.
func (e *Engine) scheduleDecision(c postgres.Concluded) {
	if len(c.ToDecide) > 0 {
		e.decideNow()
	}
}

// decideNow wakes the loop that decides steps.
func (e *Engine) decideNow() {
	if d := e.timers.due.Load(); d != nil {
		d.wakeTimer(postgres.DecideSteps)
	}
}

// decide decides due steps and those that become due as a result. It evaluates expressions between
// its transactions, so that they neither run under a lock nor fail a worker's report. Steps of
// locked tasks are left to a later pass, and namespaces with expensive expressions to
// decideExpensive.
func (e *Engine) decide(ctx context.Context, rows []tasker.StepRef) error {
	return e.decideWith(ctx, rows, evaluations{expensive: &e.timers.expensive})
}

func (e *Engine) decideWith(ctx context.Context, rows []tasker.StepRef, known evaluations) error {
	left, err := known.runBetween(ctx, rows, func(rows []tasker.StepRef) ([]tasker.StepRef, error) {
		return e.decideOnce(ctx, rows, &known)
	})
	if left {
		e.decideNow()
	}
	return err
}

// decideExpensive returns a pass that decides steps of namespaces with expensive expressions.
func (e *Engine) decideExpensive() func(context.Context) (time.Duration, error) {
	w := e.workOfKind(postgres.DecideSteps)
	w.find = func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
		return e.db.StepsToDecideOf(ctx, e.timers.expensive.list(), limit)
	}
	w.do = func(ctx context.Context, rows []tasker.StepRef) error {
		return e.decideWith(ctx, rows, evaluations{expensive: &e.timers.expensive, separate: true})
	}
	pass := e.newTimedPass(w)
	return func(ctx context.Context) (time.Duration, error) {
		if len(e.timers.expensive.list()) == 0 {
			return 0, nil
		}
		return pass(ctx)
	}
}

// decideOnce decides steps in one transaction. It returns the steps for which an expression must be
// evaluated first.
func (e *Engine) decideOnce(ctx context.Context, rows []tasker.StepRef, known *evaluations) ([]tasker.StepRef, error) {
	var d decision
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		d = decision{engine: e, tx: tx, known: known}
		free, err := tx.LockFreeTasks(ctx, uniqueTasks(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		if free, d.namespaces, err = tx.StartTasks(ctx, free); err != nil || len(free) == 0 {
			return err
		}
		due := selectSteps(free, rows)
		d.begun = time.Now()
		for n := 0; len(due) > 0 && n < decideRounds && time.Since(d.begun) < decideTime; n++ { // the rest stays due
			if due, err = d.runRound(ctx, due); err != nil {
				return err
			}
		}
		settled, err := tx.SettleTasks(ctx, free, postgres.Operator{})
		if err != nil {
			return err
		}
		return investigateFailed(ctx, tx, d.failed, indexByTask(settled))
	})
	if err != nil {
		return nil, err
	}
	e.notify(d.namespaces)
	if d.decides {
		e.decideNow()
	}
	return d.notEvaluated, nil
}

// decision holds the state of a transaction that decides steps.
type decision struct {
	engine     *Engine
	tx         *postgres.Tx
	namespaces []string  // namespaces with enqueued steps
	failed     []outcome // final failures of steps that could not be decided
	decides    bool      // more steps are due, because a task started or the time was used up
	made       int       // items created for map steps
	begun      time.Time // when the locks had been acquired

	known        *evaluations
	notEvaluated []tasker.StepRef // steps that need an expression evaluated first

	children []*postgres.CreatedTask // child tasks that this round has planned but not stored yet
}

// runRound decides steps and returns those that become due as a result.
func (d *decision) runRound(ctx context.Context, due []tasker.StepRef) ([]tasker.StepRef, error) {
	list, err := d.tx.DecidingSteps(ctx, due)
	if err != nil {
		return nil, err
	}
	d.children = nil
	var run beginningSteps
	var starts childTasks
	var moves []outcome
	waits := slices.Clone(due)
	for i, s := range list {
		ref := tasker.StepRef{TaskUUID: s.TaskUUID, StepUUID: s.StepUUID}
		isRef := func(w tasker.StepRef) bool { return w == ref }
		late := i > 0 && time.Since(d.begun) > decideTime
		if late || s.StepType == tasker.MapStep && d.made >= expandChunk {
			d.decides = d.decides || late
			waits = slices.DeleteFunc(waits, isRef) // still due
			continue
		}
		j, err := d.decideStep(ctx, s)
		if errors.Is(err, errNotEvaluated) {
			d.notEvaluated = append(d.notEvaluated, ref)
			waits = slices.DeleteFunc(waits, isRef)
			continue
		}
		if err != nil {
			return nil, err
		}
		if j.due != nil {
			if err := d.tx.SetDeadlines(ctx, []postgres.NewDeadline{*j.due}); err != nil {
				return nil, err
			}
		}
		if j.expand != nil {
			if err := d.expandMap(ctx, *j.expand); err != nil {
				return nil, err
			}
			waits = slices.DeleteFunc(waits, isRef)
			continue
		}
		switch j.becomes {
		case core.VerdictWait, core.VerdictBlocked, core.VerdictCancelled:
			continue
		case core.VerdictRun:
			run.addStep(ref, j)
			starts.add(ref, j)
		default:
			moves = append(moves, j.move)
		}
		waits = slices.DeleteFunc(waits, isRef)
	}
	// Do this first: a waiting step may become due again when other steps are skipped below.
	if err := d.tx.PostponeDecisions(ctx, waits); err != nil {
		return nil, err
	}
	if err := d.startChildren(ctx, starts); err != nil {
		return nil, err
	}
	if err := d.beginSteps(ctx, run); err != nil {
		return nil, err
	}
	return d.conclude(ctx, moves)
}

// conclude applies the outcomes of steps that do not run. It returns the steps that become due as a
// result.
func (d *decision) conclude(ctx context.Context, moves []outcome) ([]tasker.StepRef, error) {
	if len(moves) == 0 {
		return nil, nil
	}
	concluded, err := d.tx.ConcludeSteps(ctx, toCoreOutcomes(moves))
	if err != nil {
		return nil, err
	}
	d.failed = append(d.failed, pick(moves, concluded.FailedForGood)...)
	return concluded.ToDecide, nil
}

// stepDecision contains what was decided about a step.
type stepDecision struct {
	becomes core.Verdict          // empty if the step cannot be decided
	move    outcome               // outcome of a step that does not run
	until   *time.Time            // end of the wait, from an expression; may be nil
	expand  *postgres.ExpandedMap // items of a map step that runs

	due      *postgres.NewDeadline // due time, or nil
	asks     bool                  // it waits for a person
	assignee string                // optional

	child *postgres.CreatedTask // child task to start, or nil
	waits *tasker.ID            // child task that the step started before, or nil
}

// decideStep decides one step. It returns an error only if the database fails.
func (d *decision) decideStep(ctx context.Context, s postgres.UndecidedStep) (stepDecision, error) {
	if s.ItemsTotal != nil {
		return d.joinItems(ctx, s)
	}
	standings := make([]core.Standing, len(s.Dependencies))
	for i, p := range s.Dependencies {
		standings[i] = dependencyStatus(p)
		if p.Decision && standings[i] == core.Succeeded && p.Names == nil {
			move, err := newFailedDecision(s, tasker.InvalidDecision, "decision "+p.Name+" has no result that selects "+
				"the next steps")
			return stepDecision{move: move}, err
		}
	}
	becomes := core.ApplyJoin(s.JoinRule, standings)
	if becomes == core.VerdictSkip {
		return stepDecision{becomes: becomes, move: newSkipOutcome(s, describeSkipped(s.Dependencies))}, nil
	}
	if becomes != core.VerdictRun {
		return stepDecision{becomes: becomes}, nil
	}
	g, err := d.engine.loadGraphByID(ctx, d.tx, s.TemplateUUID)
	if err != nil {
		return stepDecision{}, err
	}
	i, ok := g.byName[s.Name]
	if !ok {
		return stepDecision{}, fmt.Errorf("template %s has no step %q", s.TemplateUUID, s.Name)
	}
	of, j := expression.When, stepDecision{becomes: core.VerdictRun}
	if !s.Again {
		j, err = d.evaluateCondition(ctx, s, g.exprs[i][of])
	}
	if err == nil && j.becomes == core.VerdictRun {
		of, j, err = d.beginStep(ctx, s, g, i)
	}
	if err == nil && j.becomes == core.VerdictRun {
		of = expression.DueAt
		j.due, err = d.newStepDeadline(ctx, s, g, i)
	}
	if failure, ok := errors.AsType[*expression.Failure](err); ok {
		move, err := newFailedDecision(s, tasker.ExpressionFailed, of+": "+failure.Error())
		return stepDecision{move: move}, err
	}
	if err == nil && j.child != nil {
		d.children = append(d.children, j.child)
	}
	return j, err
}

// beginStep returns how a step begins to run and the name of the field whose expression it
// evaluated. The error may be an [expression.Failure].
func (d *decision) beginStep(ctx context.Context, s postgres.UndecidedStep, g *graph, i int) (of string, j stepDecision, err error) {
	j = stepDecision{becomes: core.VerdictRun}
	step := g.stored.Steps[i]
	switch step.Type {
	case tasker.ChildStep:
		j, err = d.startChild(ctx, s, g, i)
		return expression.Input, j, err
	case tasker.MapStep:
		j, err = d.expandItems(ctx, s, step, g.exprs[i][expression.Over])
		return expression.Over, j, err
	case tasker.ExternalStep:
		j.asks, j.assignee = step.ForPerson(), step.Assignee
		if p := g.exprs[i][expression.AssigneeFrom]; p != nil {
			j.assignee, err = d.evaluateAssignee(ctx, s, p)
		}
		return expression.AssigneeFrom, j, err
	default:
		j.until, err = d.evaluateWait(ctx, s, g.exprs[i][expression.WaitUntil])
		return expression.WaitUntil, j, err
	}
}

// evaluateCondition evaluates the condition of a step. A step that has none runs. The error may be
// an [expression.Failure].
func (d *decision) evaluateCondition(ctx context.Context, s postgres.UndecidedStep, p *expression.Program) (stepDecision, error) {
	if p == nil {
		return stepDecision{becomes: core.VerdictRun}, nil
	}
	values, err := d.loadValues(ctx, s, p)
	if err != nil {
		return stepDecision{}, err
	}
	holds, err := evaluateOnce(d.known, newEvaluationKey(s, expression.When, p), values, func(ctx context.Context) (bool, error) { return p.Bool(ctx, values) })
	if err != nil || holds {
		return stepDecision{becomes: core.VerdictRun}, err
	}
	return stepDecision{becomes: core.VerdictSkip, move: newSkipOutcome(s, "condition is false: "+p.Text())}, nil
}

// evaluateWait evaluates when the wait of a step ends. It returns nil if the step has no such
// expression. The error may be an [expression.Failure].
func (d *decision) evaluateWait(ctx context.Context, s postgres.UndecidedStep, p *expression.Program) (*time.Time,
	error) {
	if p == nil {
		return nil, nil // documented
	}
	values, err := d.loadValues(ctx, s, p)
	if err != nil {
		return nil, err
	}
	at, err := evaluateOnce(d.known, newEvaluationKey(s, expression.WaitUntil, p), values, func(ctx context.Context) (time.Time, error) { return p.Time(ctx, values) })
	if err == nil && at.Sub(s.AsOf) > tasker.MaxWait {
		err = &expression.Failure{Text: p.Text(), Reason: "the time must be at most 5 years ahead"}
	}
	return &at, err
}

// loadValues reads the values that an expression uses. It returns an [expression.Failure] if they
// are too large.
func (d *decision) loadValues(ctx context.Context, s postgres.UndecidedStep, p *expression.Program) (expression.Values, error) {
	v, err := loadValues(ctx, d.tx, s.TaskUUID, p)
	v.Task = expression.TaskValues{ID: s.TaskUUID, CreatedAt: s.CreatedAt, Priority: s.Priority, Namespace: s.Namespace, CorrelationID: s.CorrelationID}
	return v, err
}

func newEvaluationKey(s postgres.UndecidedStep, field string, p *expression.Program) evaluationKey {
	return evaluationKey{row: s.StepUUID, field: field, expression: p.Text()}
}

// newSkipOutcome returns the outcome of skipping a step.
func newSkipOutcome(s postgres.UndecidedStep, reason string) outcome {
	return outcome{Outcome: core.Outcome{
		TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepPending, Fence: s.Fence,
		Event: core.Skip, Reason: payload.CleanText(reason, maxSkipReason),
	}}
}

// dependencyStatus returns the standing of a dependency as its dependent step sees it.
func dependencyStatus(p postgres.Dependency) core.Standing {
	s := core.StandingOf(p.State, p.Retries)
	if s == core.Succeeded && p.Names != nil && !*p.Names {
		return core.Declined
	}
	return s
}

// describeSkipped describes the dependencies because of which a step is skipped.
func describeSkipped(list []postgres.Dependency) string {
	for _, p := range list {
		if dependencyStatus(p) == core.Declined {
			return "decision of " + p.Name
		}
	}
	return "because " + listSkipped(list)
}

func listSkipped(list []postgres.Dependency) string {
	var names []string
	for _, p := range list {
		if p.State == tasker.StepSkipped {
			names = append(names, p.Name)
		}
	}
	if len(names) == 1 {
		return names[0] + " was skipped"
	}
	return strings.Join(names, ", ") + " were skipped"
}

// newFailedDecision returns the outcome of a step that cannot be decided. There is no retry, since
// the inputs of the decision would be the same.
func newFailedDecision(s postgres.UndecidedStep, kind, why string) (outcome, error) {
	body, err := encodeFailure(tasker.Failure{Type: kind, Message: why}, "")
	detail := kind
	if kind == tasker.InvalidDecision {
		detail = tasker.PermanentFailure
	}
	return outcome{Detail: detail, Outcome: core.Outcome{
		TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepPending, Fence: s.Fence,
		Event: core.FailDecision, Body: body,
	}}, err
}
