package explain

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// stepsOfMember limits how many open steps are read for each task of a case or operation.
const stepsOfMember = 20

// explainTasks returns the first match of each task. The matches are in the order of the rules.
func (s *Service) explainTasks(ctx context.Context, ids []tasker.ID) ([]match, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	tasks, views, err := s.loadViews(ctx, postgres.ExplainedTasks{Tasks: ids, Steps: stepsOfMember})
	if err != nil {
		return nil, err
	}
	of := groupByTask(views)
	list := make([]match, len(tasks))
	for i, t := range tasks {
		list[i] = s.decideAll(ctx, of[t.TaskUUID])[0]
	}
	return list, nil
}

// loadViews reads tasks, with views of their steps and queues.
func (s *Service) loadViews(ctx context.Context, q postgres.ExplainedTasks) ([]postgres.ExplainedTask, []view, error) {
	tasks, err := s.db.ExplainTasks(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	var views []view
	for i := range tasks {
		views = append(views, newViews(ctx, &tasks[i])...)
	}
	return tasks, views, s.loadQueues(ctx, views)
}

func groupByTask(views []view) map[tasker.ID][]view {
	of := map[tasker.ID][]view{}
	for _, v := range views {
		of[v.task.TaskUUID] = append(of[v.task.TaskUUID], v)
	}
	return of
}

func formatShares(counts []tasker.ReasonCount) string {
	parts := make([]string, len(counts))
	for i, c := range counts {
		parts[i] = fmt.Sprintf("%d %s", c.Count, strings.ReplaceAll(string(c.Reason), "_", " "))
	}
	return strings.Join(parts, ", ")
}

// mostFrequent returns the first match with the most frequent reason.
func mostFrequent(list []match, counts []tasker.ReasonCount) match {
	for _, f := range list {
		if f.why.Reason == counts[0].Reason {
			return f
		}
	}
	return list[0]
}

func (s *Service) explainCase(ctx context.Context, e *tasker.Explanation) error {
	c, err := s.db.Case(ctx, e.ID.ID)
	if err != nil {
		return err
	}
	ids, err := s.db.ExplainedMembers(ctx, e.ID.ID, tasker.MaxExplainedTasks)
	if err != nil {
		return err
	}
	e.Name = c.Namespace + "/" + c.TaskName
	if c.StepName != "" {
		e.Name += " > " + c.StepName
	}
	e.Facts = listCaseFacts(c)
	list, err := s.explainTasks(ctx, ids)
	switch {
	case err != nil:
		return err
	case len(list) == 0 && c.MergedInto != nil:
		e.Condition = tasker.Condition{Reason: tasker.ConditionEnded, Since: &c.UpdatedAt, NextActor: tasker.NextNone, Message: fmt.Sprintf("The case was merged into case %s.", c.MergedInto)}
		return nil
	case len(list) == 0:
		since := cmp.Or(c.ResolvedAt, &c.StateSince)
		e.Condition = tasker.Condition{Reason: tasker.ConditionEnded, Since: since, NextActor: tasker.NextNone, Message: "None of its investigations is open."}
		return nil
	}
	e.Looked, e.Counts, e.More = len(list), countReasons(list), c.Entries > int64(len(list))
	most := mostFrequent(list, e.Counts)
	e.Condition = most.why
	e.Since, e.TaskUUID = c.Oldest, tasker.OptionalID{}
	looked := formatAre(c.Entries, "investigation") + " open"
	if e.More {
		looked += fmt.Sprintf(", of which the newest %d were looked at", len(list))
	}
	e.Message = fmt.Sprintf("%s: %s.", looked, formatShares(e.Counts))
	e.Facts = append(e.Facts, tasker.ExplainedFact{Name: "one of them", Value: fmt.Sprintf("task %s: %s", most.task.TaskUUID, most.condition().Message)})
	return nil
}

func listCaseFacts(c tasker.Case) []tasker.ExplainedFact {
	state := fmt.Sprintf("%s since %s", c.State, formatTime(c.StateSince))
	if c.State == tasker.CaseResting {
		state += ", until " + formatOptionalTime(c.SnoozedUntil)
	}
	owner := "no owner"
	if c.Owner != "" {
		owner = c.Owner + " until " + formatOptionalTime(c.OwnedUntil)
	}
	return []tasker.ExplainedFact{
		{Name: "case", Value: state}, {Name: "owner", Value: owner},
		{Name: "open", Value: fmt.Sprintf("%d waiting, %d proving, %d failed again, %d recovered", c.Waiting, c.Proving, c.FailedAgain, c.Recovered)},
	}
}

func (s *Service) explainOperation(ctx context.Context, e *tasker.Explanation) error {
	o, err := s.db.Operation(ctx, e.ID.ID)
	if err != nil {
		return err
	}
	e.Name = string(o.Act)
	var counts []string
	for _, state := range tasker.ItemStates() {
		if n := o.Counts[state]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(state), "_", " ")))
		}
	}
	e.Facts = []tasker.ExplainedFact{{Name: "items", Value: strings.Join(counts, ", ")}, {Name: "planned", Value: "at " + formatTime(o.CreatedAt) + formatActor(o.PlannedBy)}}
	e.Condition = operationCondition(o)
	onTheWay := o.Counts[tasker.ItemReleased] + o.Counts[tasker.ItemRunning]
	if onTheWay == 0 {
		return nil
	}
	ids, err := s.db.ExplainedItems(ctx, e.ID.ID, tasker.MaxExplainedTasks)
	if err != nil {
		return err
	}
	list, err := s.explainTasks(ctx, ids)
	if err != nil || len(list) == 0 {
		return err
	}
	e.Looked, e.Counts, e.More = len(list), countReasons(list), onTheWay > int64(len(list))
	e.Facts = append(e.Facts, tasker.ExplainedFact{Name: "on their way", Value: formatShares(e.Counts)})
	if o.State == tasker.OperationRunning {
		most := mostFrequent(list, e.Counts)
		e.NextActor, e.Remedy = most.why.NextActor, most.why.Remedy
	}
	return nil
}

// operationCondition returns the condition of an operation, regardless of its released items.
func operationCondition(o tasker.Operation) tasker.Condition {
	switch o.State {
	case tasker.OperationPlanned:
		return tasker.Condition{Reason: tasker.ConditionOperation, Since: &o.CreatedAt, NextActor: tasker.NextOperator,
			Message: "The operation is planned and not started.", Remedy: "Start it; otherwise the plan expires at " + formatTime(o.ExpiresAt) + "."}
	case tasker.OperationPaused:
		w := tasker.Condition{Reason: tasker.ConditionOperation, NextActor: tasker.NextOperator, Message: "The operation is paused.", Remedy: "Resume it, or abort it."}
		if p := o.Pause; p != nil {
			w.Since, w.Message = &p.At, fmt.Sprintf("The operation is paused since %s%s: %s.", formatTime(p.At), formatActor(p.By), strings.ReplaceAll(string(p.For), "_", " "))
		}
		return w
	case tasker.OperationRunning:
		return tasker.Condition{Reason: tasker.ConditionOperation, Since: o.StartedAt, NextActor: tasker.NextServer,
			Message: fmt.Sprintf("Wave %d of %d is under way: %d of %d items are verified.", o.Wave+1, len(o.Waves)+1, o.Counts[tasker.ItemVerified], o.Items),
			Remedy:  "It continues automatically when the items of the wave are verified."}
	default:
		return tasker.Condition{Reason: tasker.ConditionEnded, Since: o.EndedAt, NextActor: tasker.NextNone, Message: fmt.Sprintf("The operation is %s since %s.", o.State, formatOptionalTime(o.EndedAt))}
	}
}

// ExplainQueue explains the queue of a handler in a namespace.
func (s *Service) ExplainQueue(ctx context.Context, namespace, handler string) (tasker.Explanation, error) {
	e := tasker.Explanation{Kind: tasker.ExplainedQueue, Namespaces: []string{namespace}, Name: handler}
	w, err := s.db.ExplainWaiting(ctx, namespace, handler)
	if err != nil {
		return tasker.Explanation{}, err
	}
	list, err := s.db.ExplainQueues(ctx, []postgres.ExplainedPlace{{Namespace: namespace, Handler: handler}})
	if err != nil {
		return tasker.Explanation{}, err
	}
	q := list[0]
	v := view{now: w.AsOf, queue: &q, task: &postgres.ExplainedTask{Namespace: namespace}, step: &postgres.ExplainedStep{Handler: handler}}
	e.AsOf = w.AsOf
	e.Facts = []tasker.ExplainedFact{
		{Name: "waiting", Value: formatUpTo(w.Steps, "step")},
		{Name: "waited too long", Value: formatUpTo(w.Awaiting, "step")},
		{Name: "workers", Value: fmt.Sprintf("%d alive, %d draining, %d for other namespaces", q.Live, q.Draining, q.Elsewhere)},
		{Name: "places", Value: formatSlots(q)},
	}
	if w.NextExpiry != nil {
		e.Facts = append(e.Facts, tasker.ExplainedFact{Name: "first expires", Value: formatTime(*w.NextExpiry)})
	}
	held, err := s.db.HeldInQueue(ctx, namespace, handler)
	if err != nil {
		return tasker.Explanation{}, err
	}
	if held.Steps > 0 || held.Hold != nil {
		e.Facts = append(e.Facts, tasker.ExplainedFact{Name: "held", Value: formatUpTo(held.Steps, "step")})
	}
	if held.Limited > 0 {
		e.Facts = append(e.Facts, tasker.ExplainedFact{Name: "wait for limits", Value: formatUpTo(held.Limited, "step")})
	}
	switch waiting := formatUpTo(w.Steps+w.Awaiting, "step"); {
	case held.Hold != nil && (held.Whole && held.Steps+w.Steps > 0 || held.Steps > 0 && w.Steps+w.Awaiting == 0):
		e.Condition = holdCondition(*held.Hold, w.AsOf)
		e.Message = fmt.Sprintf("%s held %s.", formatAreUpTo(held.Steps+w.Steps, "step"), formatHoldPeriod(*held.Hold))
	case w.Steps+w.Awaiting == 0 && held.Limited > 0:
		e.Condition = limitedCondition(held, q)
	case w.Steps+w.Awaiting == 0:
		e.Condition = tasker.Condition{Reason: tasker.ConditionEmpty, NextActor: tasker.NextNone, Message: fmt.Sprintf("Nothing waits; %s alive.", formatAre(q.Live, "worker"))}
	case q.Live == 0:
		e.Condition = tasker.Condition{Reason: tasker.ConditionNoWorker, Since: w.Since, NextActor: tasker.NextOperator, Message: fmt.Sprintf("%s: %s.", formatWaits(waiting), v.describeWorkers()),
			Remedy: fmt.Sprintf("Start a worker with handler %s for namespace %s.", handler, namespace)}
	case q.SaturatedSince != nil:
		e.Condition = tasker.Condition{Reason: tasker.ConditionSaturated, Since: q.SaturatedSince, NextActor: tasker.NextWorker, Remedy: "Workers claim them as places become free; more workers do so sooner.",
			Message: fmt.Sprintf("%s, the oldest of those counted since %s, and steps wait past their limit since %s; %s alive and busy%s, %s.",
				formatWaits(waiting), formatOptionalTime(w.Since), formatTime(*q.SaturatedSince), formatAre(q.Live, "worker"),
				formatLastBusy(&q), formatSlots(q))}
	default:
		e.Condition = tasker.Condition{Reason: tasker.ConditionQueue, Since: w.Since, NextActor: tasker.NextWorker, Remedy: "Workers claim them as places become free; more workers do so sooner.",
			Message: fmt.Sprintf("%s, the oldest of those counted since %s; %s alive, %s.", formatWaits(waiting), formatOptionalTime(w.Since), formatAre(q.Live, "worker"), formatSlots(q))}
	}
	return withLists(e), nil
}

// limitedCondition returns the condition of a queue whose steps all wait for limits.
func limitedCondition(held postgres.HeldInQueue, q postgres.ExplainedQueue) tasker.Condition {
	w := tasker.Condition{
		Reason: tasker.ConditionLimit, Since: held.LimitedSince,
		Message: fmt.Sprintf("%s for limits, the first of those counted for %s since %s; %s alive.", formatWaits(formatUpTo(held.Limited, "step")), held.Limit, formatOptionalTime(held.LimitedSince), formatAre(q.Live, "worker")),
	}
	if w.NextActor, w.Remedy = slotRemedy(); held.LimitMax == 0 {
		w.NextActor, w.Remedy = rateRemedy()
	}
	return w
}

func formatWaits(steps string) string {
	if strings.HasPrefix(steps, "1 ") {
		return steps + " waits"
	}
	return strings.ToUpper(steps[:1]) + steps[1:] + " wait"
}

func formatSlots(q postgres.ExplainedQueue) string {
	if q.Taken == nil {
		return formatCount(q.Places, "place")
	}
	return fmt.Sprintf("%d of %s free", max(0, q.Places-*q.Taken), formatCount(q.Places, "place"))
}
