package operation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/lifecycle"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/version"
)

// How often servers look for what is to be done: while an operation is open, and else.
const (
	activeRest = 250 * time.Millisecond
	idleRest   = 2 * time.Second
	passLimit  = 10 * time.Second
	keepFor    = 90 * 24 * time.Hour // operations that have come to their end
	pruneEvery = time.Hour
)

// Loops returns the background loops. Any number of processes may run them.
func (s *Service) Loops() []*loop.Loop {
	return []*loop.Loop{
		{Name: "release items of operations", Interval: idleRest, Timeout: passLimit, Wake: s.release, Pass: s.Release, Log: s.log},
		{Name: "look at items of operations", Interval: idleRest, Timeout: passLimit, Wake: s.look, Pass: s.VerifyItems, Log: s.log},
		{Name: "remove old operations", Interval: pruneEvery, Timeout: passLimit, Optional: true, Log: s.log, Pass: func(ctx context.Context) (time.Duration, error) {
			_, err := s.db.PruneOperations(ctx, keepFor, 10)
			return 0, err
		}},
	}
}

// maxTries is how often an item is tried whose task others hold.
const maxTries = 20

// Release releases items of one operation, or pauses it, and returns the next time.
func (s *Service) Release(ctx context.Context) (time.Duration, error) {
	if err := s.expirePlans(ctx); err != nil {
		return 0, err
	}
	found, err := s.releaseNext(ctx)
	if err != nil {
		return 0, err
	}
	if found {
		return loop.AtOnce, nil
	}
	wait, open, err := s.db.NextRelease(ctx)
	switch {
	case err != nil || !open:
		return 0, err
	case wait != nil && *wait < activeRest:
		return max(*wait, time.Millisecond), nil
	default:
		return activeRest, nil
	}
}

// releaseNext is Release for one operation. Items that fail together are released alone, and
// failing ones are skipped.
func (s *Service) releaseNext(ctx context.Context) (did bool, err error) {
	p, err := s.releaseBatch(ctx, tasker.MaxOperationChunk)
	if !toBlame(ctx, err) || p.id == nil {
		return p.did, err
	}
	if len(p.items) == 0 {
		return true, s.postpone(ctx, *p.id, err)
	}
	s.log.ErrorContext(ctx, "items of an operation could not be released together; each is tried by itself", "operation", p.id, "err", err)
	for begun := time.Now(); time.Since(begun) < singlesTime; {
		p, err := s.releaseBatch(ctx, 1) // of any operation: they take turns
		switch {
		case err == nil && p.id == nil:
			return true, nil
		case toBlame(ctx, err) && p.id != nil && len(p.items) == 0:
			err = s.postpone(ctx, *p.id, err)
		case toBlame(ctx, err) && p.id != nil:
			s.log.ErrorContext(ctx, "an item of an operation could not be released and is skipped", "operation", p.id, "err", err)
			err = s.skip(ctx, *p.id, p.items[0].Ordinal)
		}
		if err != nil {
			return true, err
		}
	}
	return true, nil
}

// singlesTime is for how long items are released one by one, before they are tried together again.
const singlesTime = 2 * time.Second

// toBlame reports whether an error may be of one item, while the database answers.
func toBlame(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !postgres.IsUnavailable(err)
}

// skip skips an item of an operation, unless it has moved.
func (s *Service) skip(ctx context.Context, id tasker.ID, ordinal int) error {
	return s.db.InTx(ctx, func(tx *postgres.Tx) error {
		o, err := tx.LockOperation(ctx, id)
		if err != nil || o.State != tasker.OperationRunning {
			return err
		}
		items, err := tx.PlannedItems(ctx, id, ordinal-1, 1)
		if err != nil {
			return err
		}
		if len(items) == 1 && items[0].Ordinal == ordinal {
			if err := tx.MoveItems(ctx, o, []postgres.MovedItem{{Ordinal: ordinal, State: tasker.ItemSkipped, Outcome: outcomeError}}); err != nil {
				return err
			}
		}
		return tx.ReleaseLater(ctx, id, o.Now)
	})
}

// postpone delays an operation that could not be decided.
func (s *Service) postpone(ctx context.Context, id tasker.ID, why error) error {
	s.log.ErrorContext(ctx, "what becomes of an operation could not be decided; it is tried again", "operation", id, "err", why)
	return s.db.InTx(ctx, func(tx *postgres.Tx) error {
		o, err := tx.LockOperation(ctx, id)
		if err != nil || o.State != tasker.OperationRunning {
			return err
		}
		return tx.ReleaseLater(ctx, id, o.Now.Add(idleRest))
	})
}

// A part is what a transaction worked on that released items of one operation.
type part struct {
	did   bool
	id    *tasker.ID             // the operation; nil when there was none
	items []postgres.PlannedItem // those that it tried to release; none while it decided
}

// releaseBatch releases up to so many items of an operation.
func (s *Service) releaseBatch(ctx context.Context, most int) (p part, err error) {
	var acted done
	var paused *tasker.OperationPause
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		p, acted, paused = part{}, done{}, nil
		o, err := tx.TakeOperation(ctx)
		if err != nil || o == nil {
			return err
		}
		p.id = &o.UUID
		n, err := s.decide(ctx, tx, o)
		switch {
		case err != nil:
			return err
		case n.pause != nil:
			paused, p.did = n.pause, true
			return nil
		case n.begin != nil:
			p.did = true
			return nil
		case n.release == 0: // until something is proved
			return tx.ReleaseLater(ctx, o.UUID, o.Now.Add(activeRest))
		}
		p.did = true
		if p.items, err = tx.PlannedItems(ctx, o.UUID, 0, min(n.release, most, mostOf(o))); err != nil {
			return err
		}
		if acted, err = s.releaseItems(ctx, tx, o, p.items); err != nil {
			return err
		}
		at := nextReleaseTime(o, acted.released)
		if acted.released == 0 && acted.busy > 0 {
			at = o.Now.Add(activeRest)
		}
		return tx.ReleaseLater(ctx, o.UUID, at)
	})
	if err != nil {
		p.did = false
		return p, err
	}
	s.tell(ctx, acted, paused)
	return p, nil
}

// decide decides about an operation that is locked. It pauses it or begins a wave itself.
func (*Service) decide(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation) (step, error) {
	p, err := tx.Progress(ctx, o.UUID, o.Round, o.Wave < len(o.Waves))
	if err != nil {
		return step{}, err
	}
	failures, err := tx.CountFailures(ctx, o)
	if err != nil {
		return step{}, err
	}
	n := next(o, p, failures)
	if n.release > 0 && o.Guards.WorkerAtLeast != "" {
		versions, err := tx.LiveVersions(ctx, o.Namespaces)
		if err != nil {
			return step{}, err
		}
		if !slices.ContainsFunc(versions, func(v string) bool { return version.AtLeast(v, o.Guards.WorkerAtLeast) }) {
			n = step{pause: &tasker.OperationPause{For: tasker.PausedNoWorker, By: tasker.SystemActor}}
		}
	}
	switch {
	case n.pause != nil:
		err = tx.PauseOperation(ctx, o.UUID, *n.pause)
	case n.begin != nil:
		err = tx.BeginWave(ctx, o.UUID, *n.begin)
	}
	return n, err
}

// tell tells workers, the log and the metrics what a transaction did that is committed.
func (s *Service) tell(ctx context.Context, d done, paused *tasker.OperationPause) {
	s.engine.Enqueued(d.namespaces)
	s.dlq.Ended(ctx, d.ended)
	if d.released > 0 {
		loop.Wake(s.look)
	}
	if paused != nil {
		s.metrics.OperationPaused(ctx, paused.For)
		s.log.WarnContext(ctx, "an operation was paused", "why", paused.For, "failures", paused.Failures)
	}
}

// done is what was done to some items.
type done struct {
	released, busy int
	namespaces     []string // in which steps became ready
	moved          []postgres.MovedItem
	ended          []postgres.EndedEntry
	tasks          map[int]tasker.ID     // of the items, by their ordinals
	made           []tasker.ID           // new ones
	results        []tasker.DryRunResult // of the first items, if they are computed
}

// releaseItems performs the act on the next items, committed together with them.
func (s *Service) releaseItems(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, items []postgres.PlannedItem) (done, error) {
	d, err := s.act(ctx, tx, o, items)
	if err != nil {
		return done{}, err
	}
	return d, tx.MoveItems(ctx, o, d.moved)
}

// act performs the act on planned items, except in locked tasks.
func (s *Service) act(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, items []postgres.PlannedItem) (done, error) {
	d := done{tasks: make(map[int]tasker.ID, len(items))}
	tasks := make([]tasker.ID, len(items))
	for n, i := range items {
		tasks[n], d.tasks[i.Ordinal] = i.TaskUUID, i.TaskUUID
	}
	locked, err := tx.LockFreeTasks(ctx, tasks)
	if err != nil {
		return d, err
	}
	free := make(map[tasker.ID]bool, len(locked))
	for _, id := range locked {
		free[id] = true
	}
	var mine []postgres.PlannedItem
	for _, i := range items {
		switch {
		case free[i.TaskUUID]:
			mine = append(mine, i)
		case i.Tries+1 >= maxTries:
			d.moved = append(d.moved, postgres.MovedItem{Ordinal: i.Ordinal, State: tasker.ItemSkipped, Outcome: outcomeBusy})
			d.busy++
		default:
			d.moved = append(d.moved, postgres.MovedItem{Ordinal: i.Ordinal, State: tasker.ItemPlanned})
			d.busy++
		}
	}
	_, onSteps := o.Act.StepAction()
	switch {
	case onSteps:
		err = s.actOnSteps(ctx, tx, o, mine, &d)
	case o.Act == tasker.ActRecreate:
		err = s.recreate(ctx, tx, o, mine, &d)
	case o.Act == tasker.ActCompensate:
		err = s.compensate(ctx, tx, o, mine, &d)
	default:
		err = actOnTasks(ctx, tx, o, mine, &d)
	}
	return d, err
}

// actOnSteps is act for items whose tasks are locked.
func (s *Service) actOnSteps(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, items []postgres.PlannedItem, d *done) error {
	args, err := argumentsOf(o)
	if err != nil {
		return err
	}
	action, err := s.action(o, args)
	if err != nil {
		return err
	}
	refs := make([]tasker.StepRef, len(items))
	for n, i := range items {
		refs[n] = i.StepRef
	}
	targets, err := tx.LockTargets(ctx, refs)
	if err != nil {
		return err
	}
	stands := make(map[tasker.StepRef]postgres.Target, len(targets))
	for _, t := range targets {
		stands[t.StepRef] = t
	}
	var unchanged []postgres.Target
	ordinals := make(map[tasker.StepRef]int, len(items))
	for _, i := range items {
		t, exists := stands[i.StepRef]
		switch {
		case !exists:
			d.skip(i.Ordinal, outcomeGone)
		case string(t.Step) != i.ExpectedState || t.Fence != i.ExpectedFence:
			d.skip(i.Ordinal, outcomeChanged)
		default:
			unchanged, ordinals[i.StepRef] = append(unchanged, t), i.Ordinal
		}
	}
	acted, err := action.Do(ctx, tx, unchanged)
	if err != nil {
		return err
	}
	d.namespaces = acted.Namespaces
	for _, a := range acted.Steps {
		if a.Refusal != nil {
			d.refuse(ordinals[a.StepRef], a.Refusal, args.Expression != "" || o.Act == tasker.ActAnswer)
			continue
		}
		if a.Result != nil && len(d.results) < dryRunSample {
			d.results = append(d.results, dryRunResult(a))
		}
		d.released++
		d.moved = append(d.moved, postgres.MovedItem{Ordinal: ordinals[a.StepRef], State: tasker.ItemReleased, Fence: a.Fence, Released: true})
	}
	return nil
}

// A taskItem is an item that is a whole task, with how that stands.
type taskItem struct {
	postgres.PlannedItem
	task postgres.TaskTarget
}

// unchangedTasks returns the items whose tasks, which are locked, stand as they did when they were
// planned, and skips the others.
func unchangedTasks(ctx context.Context, tx *postgres.Tx, items []postgres.PlannedItem, d *done) ([]taskItem, error) {
	tasks := make([]tasker.ID, len(items))
	for n, i := range items {
		tasks[n] = i.TaskUUID
	}
	targets, err := tx.TaskTargets(ctx, tasks)
	if err != nil {
		return nil, err
	}
	stands := make(map[tasker.ID]postgres.TaskTarget, len(targets))
	for _, t := range targets {
		stands[t.TaskUUID] = t
	}
	var unchanged []taskItem
	for _, i := range items {
		t, exists := stands[i.TaskUUID]
		switch {
		case !exists:
			d.skip(i.Ordinal, outcomeGone)
		case string(t.State) != i.ExpectedState && !t.ByHand: // a task that a person looks into may continue
			d.skip(i.Ordinal, outcomeChanged)
		default:
			unchanged = append(unchanged, taskItem{i, t})
		}
	}
	return unchanged, nil
}

// actOnTasks is act for items that are whole tasks, which are locked. What it does stands at
// once, so that such an item is verified when it is released.
func actOnTasks(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, items []postgres.PlannedItem, d *done) error {
	unchanged, err := unchangedTasks(ctx, tx, items, d)
	if err != nil {
		return err
	}
	var cancel []postgres.TaskTarget
	var endings []postgres.Ending
	for _, i := range unchanged {
		t := i.task
		switch {
		case !allows(o.Act, t):
			d.skip(i.Ordinal, outcomeRefused)
			continue
		case o.Act == tasker.ActCancel:
			cancel = append(cancel, t)
			t.State = tasker.TaskCancelled
		}
		e, err := endingOfTask(o, i.PlannedItem, t)
		if err != nil {
			return err
		}
		endings = append(endings, e)
		d.released++
		d.moved = append(d.moved, postgres.MovedItem{Ordinal: i.Ordinal, State: tasker.ItemVerified, Outcome: outcomeStands, Released: true})
	}
	if len(cancel) > 0 {
		if err := tx.CancelTasks(ctx, cancel, postgres.Cancellation{Operator: postgres.Operator{Actor: actorOf(o), Reason: o.Reason}, Operation: &o.UUID}); err != nil {
			return err
		}
	}
	d.ended, err = dlq.End(ctx, tx, actorOf(o), endings)
	return err
}

// allows reports whether a task that is locked allows an act on it.
func allows(act tasker.Act, t postgres.TaskTarget) bool {
	if act == tasker.ActCancel {
		_, err := lifecycle.Task.Next(t.State, lifecycle.CancelTask)
		return err == nil
	}
	return t.Recovered || t.ByHand || t.State == tasker.TaskComplete || t.State == tasker.TaskCancelled
}

// actorOf is who acts: who has started the operation or, in a dry run, has planned it.
func actorOf(o *postgres.RunningOperation) string { return cmp.Or(o.StartedBy, o.PlannedBy) }

func (d *done) skip(ordinal int, outcome string) {
	d.moved = append(d.moved, postgres.MovedItem{Ordinal: ordinal, State: tasker.ItemSkipped, Outcome: outcome})
}

// refuse skips an item that does not allow the act; where results are computed it says why.
func (d *done) refuse(ordinal int, why error, computed bool) {
	m := postgres.MovedItem{Ordinal: ordinal, State: tasker.ItemSkipped, Outcome: outcomeRefused}
	if _, ok := errors.AsType[*expression.Failure](why); ok {
		m.Outcome = outcomeExpression
	}
	if computed {
		m.Text = payload.CleanText(why.Error(), maxRefusal)
	}
	d.moved = append(d.moved, m)
}

// argumentsOf returns what the act of an operation needs beside its kind.
func argumentsOf(o *postgres.RunningOperation) (args argumentsDoc, err error) {
	if err := json.Unmarshal(o.Arguments, &args); err != nil {
		return args, fmt.Errorf("read the arguments of operation %s: %w", o.UUID, err)
	}
	return args, nil
}

// action returns the step action of an operation.
func (s *Service) action(o *postgres.RunningOperation, args argumentsDoc) (engine.Action, error) {
	kind, ok := o.Act.StepAction()
	if !ok {
		return engine.Action{}, fmt.Errorf("operation %s has the act %q, which is not on steps", o.UUID, o.Act)
	}
	return s.engine.NewAction(tasker.ActionRequest{
		Action: kind, Answer: o.Act == tasker.ActAnswer, Actor: actorOf(o), Reason: o.Reason, Result: args.Result, ResultExpression: args.Expression, Metadata: args.Metadata, Operation: &o.UUID,
	})
}

// expirePlans aborts plans that were not started in time.
func (s *Service) expirePlans(ctx context.Context) error {
	list, err := s.db.ExpiredPlans(ctx, tasker.MaxOpenOperations)
	if err != nil {
		return err
	}
	var all []error
	for _, id := range list {
		all = append(all, s.db.InTx(ctx, func(tx *postgres.Tx) error {
			o, err := tx.LockOperation(ctx, id)
			if err != nil || o.State != tasker.OperationPlanned {
				return err
			}
			_, err = tx.AbortOperation(ctx, id, tasker.SystemActor, "expired")
			return err
		}))
	}
	return errors.Join(all...)
}
