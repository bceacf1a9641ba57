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
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/version"
)

// Intervals and timeouts of the background loops.
const (
	activeInterval = 250 * time.Millisecond // while an operation is open
	idleInterval   = 2 * time.Second
	passLimit      = 10 * time.Second
	retention      = 90 * 24 * time.Hour // retention of ended operations
	pruneEvery     = time.Hour
)

// Loops returns the background loops. Any number of processes may run them.
func (s *Service) Loops() []*loop.Loop {
	return []*loop.Loop{
		{Name: "release items of operations", Interval: idleInterval, Timeout: passLimit, Wake: s.release, Pass: s.Release, Log: s.log},
		{Name: "look at items of operations", Interval: idleInterval, Timeout: passLimit, Wake: s.verify, Pass: s.VerifyItems, Log: s.log},
		{Name: "remove old operations", Interval: pruneEvery, Timeout: passLimit, Optional: true, Log: s.log,
			Pass: func(ctx context.Context) (time.Duration, error) {
				_, err := s.db.PruneOperations(ctx, retention, 10)
				return 0, err
			}},
	}
}

// maxTries limits how often an item is tried whose task is locked by other transactions.
const maxTries = 20

// Release releases items of one operation, or pauses it. It returns the delay before the next call.
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
	case wait != nil && *wait < activeInterval:
		return max(*wait, time.Millisecond), nil
	default:
		return activeInterval, nil
	}
}

// releaseNext releases items of one operation and reports whether it did something. If a batch
// fails, it releases items one by one and skips those that fail.
func (s *Service) releaseNext(ctx context.Context) (did bool, err error) {
	p, err := s.releaseBatch(ctx, tasker.MaxOperationChunk)
	if !isCausedByItem(ctx, err) || p.id == nil {
		return p.did, err
	}
	if len(p.items) == 0 {
		return true, s.postpone(ctx, *p.id, err)
	}
	s.log.ErrorContext(ctx, "could not release items of an operation together; trying each alone", "operation", p.id, "err", err)
	for begun := time.Now(); time.Since(begun) < singlesTime; {
		p, err := s.releaseBatch(ctx, 1) // from any operation, since they take turns
		switch {
		case err == nil && p.id == nil:
			return true, nil
		case isCausedByItem(ctx, err) && p.id != nil && len(p.items) == 0:
			err = s.postpone(ctx, *p.id, err)
		case isCausedByItem(ctx, err) && p.id != nil:
			s.log.ErrorContext(ctx, "could not release an item of an operation; skipping it", "operation", p.id, "err", err)
			err = s.skipItem(ctx, *p.id, p.items[0].Ordinal)
		}
		if err != nil {
			return true, err
		}
	}
	return true, nil
}

// singlesTime limits how long items are released one by one before batches are tried again.
const singlesTime = 2 * time.Second

// isCausedByItem reports whether an error may be caused by a single item. Errors of the database
// and shutdowns are not.
func isCausedByItem(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !postgres.IsUnavailable(err)
}

// skipItem skips an item that cannot be released, unless it has changed in the meantime.
func (s *Service) skipItem(ctx context.Context, id tasker.ID, ordinal int) error {
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
		return tx.SetNextRelease(ctx, id, o.Now)
	})
}

// postpone delays the next release of an operation after an error.
func (s *Service) postpone(ctx context.Context, id tasker.ID, why error) error {
	s.log.ErrorContext(ctx, "could not decide how an operation continues; trying again", "operation", id, "err", why)
	return s.db.InTx(ctx, func(tx *postgres.Tx) error {
		o, err := tx.LockOperation(ctx, id)
		if err != nil || o.State != tasker.OperationRunning {
			return err
		}
		return tx.SetNextRelease(ctx, id, o.Now.Add(idleInterval))
	})
}

// A releasePart describes a transaction that released items of an operation.
type releasePart struct {
	did   bool
	id    *tasker.ID             // the operation, or nil if none was due
	items []postgres.PlannedItem // items that the transaction tried to release
}

// releaseBatch releases up to limit items of a due operation.
func (s *Service) releaseBatch(ctx context.Context, limit int) (p releasePart, err error) {
	var acted batchResult
	var paused *tasker.OperationPause
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		p, acted, paused = releasePart{}, batchResult{}, nil
		o, err := tx.LockDueOperation(ctx)
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
		case n.release == 0: // wait until items are verified
			return tx.SetNextRelease(ctx, o.UUID, o.Now.Add(activeInterval))
		}
		p.did = true
		if p.items, err = tx.PlannedItems(ctx, o.UUID, 0, min(n.release, limit, batchSize(o))); err != nil {
			return err
		}
		if acted, err = s.applyAction(ctx, tx, o, p.items); err != nil {
			return err
		}
		if err := tx.MoveItems(ctx, o, acted.moved); err != nil {
			return err
		}
		at := nextReleaseTime(o, acted.released)
		if acted.released == 0 && acted.busy > 0 {
			at = o.Now.Add(activeInterval)
		}
		return tx.SetNextRelease(ctx, o.UUID, at)
	})
	if err != nil {
		p.did = false
		return p, err
	}
	s.announce(ctx, acted, paused)
	return p, nil
}

// decide returns what a locked operation does next. It stores a pause or the beginning of a wave
// itself.
func (*Service) decide(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation) (nextStep, error) {
	p, err := tx.Progress(ctx, o.UUID, o.Round, o.Wave < len(o.Waves))
	if err != nil {
		return nextStep{}, err
	}
	failures, err := tx.CountFailures(ctx, o)
	if err != nil {
		return nextStep{}, err
	}
	n := decideNext(o, p, failures)
	if n.release > 0 && o.Guards.WorkerAtLeast != "" {
		versions, err := tx.LiveVersions(ctx, o.Namespaces)
		if err != nil {
			return nextStep{}, err
		}
		if !slices.ContainsFunc(versions, func(v string) bool { return version.AtLeast(v, o.Guards.WorkerAtLeast) }) {
			n = nextStep{pause: &tasker.OperationPause{For: tasker.PausedNoWorker, By: tasker.SystemActor}}
		}
	}
	switch {
	case n.pause != nil:
		err = tx.PauseOperation(ctx, o.UUID, *n.pause)
	case n.begin != nil:
		err = tx.StartWave(ctx, o.UUID, *n.begin)
	}
	return n, err
}

// announce informs workers and updates the log and the metrics after a transaction was committed.
func (s *Service) announce(ctx context.Context, d batchResult, paused *tasker.OperationPause) {
	s.engine.Enqueued(d.namespaces)
	s.dlq.RecordEnded(ctx, d.ended)
	if d.released > 0 {
		loop.Wake(s.verify)
	}
	if paused != nil {
		s.metrics.OperationPaused(ctx, paused.For)
		s.log.WarnContext(ctx, "an operation was paused", "why", paused.For, "failures", paused.Failures)
	}
}

// batchResult collects the effects of an act on items.
type batchResult struct {
	released, busy int
	namespaces     []string // namespaces with newly ready steps
	moved          []postgres.MovedItem
	ended          []postgres.EndedEntry
	tasks          map[int]tasker.ID     // tasks of the items, by ordinal
	made           []tasker.ID           // new tasks
	results        []tasker.DryRunResult // computed results, for a dry run
}

// applyAction performs the act on planned items. Items whose tasks are locked are rescheduled.
func (s *Service) applyAction(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, items []postgres.PlannedItem) (batchResult, error) {
	d := batchResult{tasks: make(map[int]tasker.ID, len(items))}
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
	var unlocked []postgres.PlannedItem
	for _, i := range items {
		switch {
		case free[i.TaskUUID]:
			unlocked = append(unlocked, i)
		case i.Tries+1 >= maxTries:
			d.skipItem(i.Ordinal, outcomeBusy)
			d.busy++
		default:
			d.moved = append(d.moved, postgres.MovedItem{Ordinal: i.Ordinal, State: tasker.ItemPlanned})
			d.busy++
		}
	}
	_, onSteps := o.Act.StepAction()
	switch {
	case onSteps:
		err = s.actOnSteps(ctx, tx, o, unlocked, &d)
	case o.Act == tasker.ActRecreate:
		err = s.recreate(ctx, tx, o, unlocked, &d)
	case o.Act == tasker.ActCompensate:
		err = s.compensate(ctx, tx, o, unlocked, &d)
	default:
		err = actOnTasks(ctx, tx, o, unlocked, &d)
	}
	return d, err
}

// actOnSteps is act for steps. Their tasks must be locked.
func (s *Service) actOnSteps(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, items []postgres.PlannedItem, d *batchResult) error {
	args, err := parseArguments(o)
	if err != nil {
		return err
	}
	action, err := s.newAction(o, args)
	if err != nil {
		return err
	}
	refs := make([]tasker.StepRef, len(items))
	for n, i := range items {
		refs[n] = i.StepRef
	}
	list, err := tx.LockTargets(ctx, refs)
	if err != nil {
		return err
	}
	targets := make(map[tasker.StepRef]postgres.Target, len(list))
	for _, t := range list {
		targets[t.StepRef] = t
	}
	var unchanged []postgres.Target
	ordinals := make(map[tasker.StepRef]int, len(items))
	for _, i := range items {
		t, exists := targets[i.StepRef]
		switch {
		case !exists:
			d.skipItem(i.Ordinal, outcomeGone)
		case string(t.Step) != i.ExpectedState || t.Fence != i.ExpectedFence:
			d.skipItem(i.Ordinal, outcomeChanged)
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
			d.refuseItem(ordinals[a.StepRef], a.Refusal, args.Expression != "" || o.Act == tasker.ActAnswer)
			continue
		}
		if a.Result != nil && len(d.results) < dryRunSample {
			d.results = append(d.results, toDryRunResult(a))
		}
		d.released++
		d.moved = append(d.moved, postgres.MovedItem{
			Ordinal: ordinals[a.StepRef], State: tasker.ItemReleased, Fence: a.Fence, Released: true,
		})
	}
	return nil
}

// A taskItem is an item that is a whole task, with the current state of the task.
type taskItem struct {
	postgres.PlannedItem
	task postgres.TaskTarget
}

// selectUnchanged returns the items whose tasks have not changed since the operation was planned,
// and skips the others. The tasks must be locked.
func selectUnchanged(ctx context.Context, tx *postgres.Tx, items []postgres.PlannedItem, d *batchResult) ([]taskItem,
	error) {
	tasks := make([]tasker.ID, len(items))
	for n, i := range items {
		tasks[n] = i.TaskUUID
	}
	list, err := tx.TaskTargets(ctx, tasks)
	if err != nil {
		return nil, err
	}
	targets := make(map[tasker.ID]postgres.TaskTarget, len(list))
	for _, t := range list {
		targets[t.TaskUUID] = t
	}
	var unchanged []taskItem
	for _, i := range items {
		t, exists := targets[i.TaskUUID]
		switch {
		case !exists:
			d.skipItem(i.Ordinal, outcomeGone)
		case string(t.State) != i.ExpectedState && !t.ByHand: // manual investigations stop no task
			d.skipItem(i.Ordinal, outcomeChanged)
		default:
			unchanged = append(unchanged, taskItem{i, t})
		}
	}
	return unchanged, nil
}

// actOnTasks is act for whole tasks, which must be locked. The act takes effect at once, so a
// released item is already verified.
func actOnTasks(ctx context.Context, tx *postgres.Tx, o *postgres.RunningOperation, items []postgres.PlannedItem, d *batchResult) error {
	unchanged, err := selectUnchanged(ctx, tx, items, d)
	if err != nil {
		return err
	}
	var cancel []postgres.TaskTarget
	var endings []postgres.Ending
	for _, i := range unchanged {
		t := i.task
		switch {
		case !isAllowed(o.Act, t):
			d.skipItem(i.Ordinal, outcomeRefused)
			continue
		case o.Act == tasker.ActCancel:
			cancel = append(cancel, t)
			t.State = tasker.TaskCancelled
		}
		e, err := newTaskEnding(o, i.PlannedItem, t)
		if err != nil {
			return err
		}
		endings = append(endings, e)
		d.released++
		d.moved = append(d.moved, postgres.MovedItem{
			Ordinal: i.Ordinal, State: tasker.ItemVerified, Outcome: outcomeStands, Released: true,
		})
	}
	if len(cancel) > 0 {
		if err := tx.CancelTasks(ctx, cancel, newCancellation(o)); err != nil {
			return err
		}
	}
	d.ended, err = dlq.EndEntries(ctx, tx, formatActor(o), endings)
	return err
}

// isAllowed reports whether the state of a task allows an act.
func isAllowed(act tasker.Act, t postgres.TaskTarget) bool {
	if act == tasker.ActCancel {
		_, err := core.TaskMoves.Next(t.State, core.CancelTask)
		return err == nil
	}
	return t.Recovered || t.ByHand || t.State == tasker.TaskComplete || t.State == tasker.TaskCancelled
}

func newCancellation(o *postgres.RunningOperation) postgres.Cancellation {
	return postgres.Cancellation{Operator: postgres.Operator{Actor: formatActor(o), Reason: o.Reason}, Operation: &o.UUID}
}

// formatActor returns who started the operation or, in a dry run, who planned it.
func formatActor(o *postgres.RunningOperation) string { return cmp.Or(o.StartedBy, o.PlannedBy) }

func (d *batchResult) skipItem(ordinal int, outcome string) {
	d.moved = append(d.moved, postgres.MovedItem{Ordinal: ordinal, State: tasker.ItemSkipped, Outcome: outcome})
}

// refuseItem skips an item whose state does not allow the act. If its result was to be computed, it
// also stores the reason.
func (d *batchResult) refuseItem(ordinal int, why error, computed bool) {
	m := postgres.MovedItem{Ordinal: ordinal, State: tasker.ItemSkipped, Outcome: outcomeRefused}
	if _, ok := errors.AsType[*expression.Failure](why); ok {
		m.Outcome = outcomeExpression
	}
	if computed {
		m.Text = payload.CleanText(why.Error(), maxRefusal)
	}
	d.moved = append(d.moved, m)
}

func parseArguments(o *postgres.RunningOperation) (args argumentsDoc, err error) {
	if err := json.Unmarshal(o.Arguments, &args); err != nil {
		return args, fmt.Errorf("read the arguments of operation %s: %w", o.UUID, err)
	}
	return args, nil
}

// newAction returns the step action that an operation performs.
func (s *Service) newAction(o *postgres.RunningOperation, args argumentsDoc) (engine.Action, error) {
	kind, ok := o.Act.StepAction()
	if !ok {
		return engine.Action{}, fmt.Errorf("operation %s has act %q, which does not apply to steps", o.UUID, o.Act)
	}
	return s.engine.NewAction(tasker.ActionRequest{
		Action: kind, Answer: o.Act == tasker.ActAnswer, Actor: formatActor(o), Reason: o.Reason, Result: args.Result,
		ResultExpression: args.Expression, Metadata: args.Metadata, Operation: &o.UUID,
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
