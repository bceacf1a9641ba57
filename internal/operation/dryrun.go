package operation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/postgres"
)

const (
	dryRunFor         = 20 * time.Second // time after which the caller must continue with another request
	dryRunSample      = 3                // number of listed tasks per refusal, and of listed results
	dryRunResultBytes = 2 << 10          // maximum size of a listed result
	maxRefusal        = 2000             // characters of a refusal
)

// dryRunLimitations lists what a dry run cannot predict.
var dryRunLimitations = []string{
	"whether the cause of the failures is gone", "what the handlers do outside of Tasker", "what happens behind the steps that become ready",
	"what others do between the dry run and the release",
}

// errRollback rolls back the transaction of a dry run.
var errRollback = errors.New("this was a dry run")

// DryRun performs the act on some of the items and rolls it back. It does not wait for locks. The
// result contains the position at which to continue.
func (s *Service) DryRun(ctx context.Context, id tasker.ID, after, limit int) (tasker.DryRun, error) {
	r := tasker.DryRun{Refused: []tasker.DryRunRefusal{}, Enqueues: map[string]int{}, Limitations: dryRunLimitations}
	if after < 0 || limit < 1 || limit > tasker.MaxOperationItems {
		return r, tasker.Errorf(tasker.Invalid,
			"after must be at least 0 and limit from 1 to %d, not %d and %d", tasker.MaxOperationItems, after, limit)
	}
	o, err := s.db.Operation(ctx, id)
	if err != nil {
		return r, err
	}
	if o.State == tasker.OperationDone || o.State == tasker.OperationAborted {
		return r, checkNotEnded(&postgres.RunningOperation{Operation: o})
	}
	if o.Act == tasker.ActReset {
		if err := s.db.RefuseHeldItems(ctx, id); err != nil {
			return r, err
		}
	}
	begun, refused := time.Now(), map[string]*tasker.DryRunRefusal{}
	for {
		d, last, err := s.dryRunPart(ctx, id, after, min(limit-r.LookedAt, tasker.MaxOperationChunk), r.Enqueues)
		if err != nil {
			return r, err
		}
		d.addTo(&r, refused)
		if last == 0 {
			break
		}
		if after = last; r.LookedAt >= limit || time.Since(begun) > dryRunFor {
			r.Next = &last
			break
		}
	}
	for _, outcome := range slices.Sorted(maps.Keys(refused)) {
		r.Refused = append(r.Refused, *refused[outcome])
	}
	if slices.ContainsFunc(o.Namespaces, func(n string) bool { return !access.PayloadScopeFromContext(ctx).Has(n) }) {
		redactDryRun(&r)
	}
	return r, nil
}

// dryRunPart performs the act on some items in one transaction and rolls it back. It returns the
// ordinal of the last item, or 0 if there are none.
func (s *Service) dryRunPart(ctx context.Context, id tasker.ID, after, limit int, enqueues map[string]int) (d batchResult, last int, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		d, last = batchResult{}, 0
		if err := tx.SetLockTimeout(ctx); err != nil {
			return err
		}
		o, err := tx.LockOperation(ctx, id) // prevents a concurrent release
		if err != nil {
			return err
		}
		items, err := tx.PlannedItems(ctx, id, after, min(limit, batchSize(o)))
		if err != nil || len(items) == 0 {
			return err
		}
		last = items[len(items)-1].Ordinal
		if d, err = s.applyAction(ctx, tx, o, items); err != nil {
			return err
		}
		if err := tx.MoveItems(ctx, o, d.moved); err != nil {
			return err
		}
		ready, err := tx.EnqueuedSteps(ctx, slices.AppendSeq(d.made, maps.Values(d.tasks)))
		if err != nil {
			return err
		}
		for name, n := range ready {
			enqueues[name] += n
		}
		return errRollback
	})
	if errors.Is(err, errRollback) {
		err = nil
	}
	return d, last, err
}

// addTo adds the results of a part to a dry run.
func (d batchResult) addTo(r *tasker.DryRun, refused map[string]*tasker.DryRunRefusal) {
	r.LookedAt += len(d.moved)
	r.WouldRelease += d.released
	r.Busy += d.busy
	r.Results = append(r.Results, d.results[:min(len(d.results), dryRunSample-len(r.Results))]...)
	for _, m := range d.moved {
		if m.State != tasker.ItemSkipped || m.Outcome == outcomeBusy {
			continue
		}
		f := refused[m.Outcome]
		if f == nil {
			f = &tasker.DryRunRefusal{Outcome: m.Outcome, Sample: []tasker.ID{}, Reason: m.Text}
			refused[m.Outcome] = f
		}
		f.Items++
		if len(f.Sample) < dryRunSample {
			f.Sample = append(f.Sample, d.tasks[m.Ordinal])
		}
	}
}

// redactDryRun removes everything from a dry run that may contain payloads.
func redactDryRun(r *tasker.DryRun) {
	r.Results = nil
	for i := range r.Refused {
		r.Refused[i].Reason = ""
	}
}

func toDryRunResult(a engine.StepActionResult) tasker.DryRunResult {
	r := tasker.DryRunResult{TaskUUID: a.TaskUUID, StepUUID: a.StepUUID, Bytes: len(a.Result)}
	if r.Bytes <= dryRunResultBytes {
		r.Result = a.Result
	}
	return r
}
