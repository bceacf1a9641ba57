package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker"
	"tasker/internal/loop"
	"tasker/internal/postgres"
)

const (
	expiryBatch     = 100 // each opens an investigation
	redispatchEvery = time.Second
)

// queueLoops return what keeps the limits of the queue: a step that no worker
// takes in time fails, and comes back when a worker for it is alive.
func (e *Engine) queueLoops() []*loop.Loop {
	list := []*loop.Loop{{Name: "queue limits", Every: timerEvery, Timeout: timerDeadline, Pass: e.expiryPass(), Log: e.log}}
	if e.autoRecover {
		list = append(list, &loop.Loop{Name: "redispatch", Every: redispatchEvery, Timeout: timerDeadline, Pass: e.Redispatch, Log: e.log})
	}
	return list
}

// expiryPass fails steps that no worker took in time. When this server has not
// looked for a while, because it has just started or could not reach the
// database, workers get a moment first: they could take nothing meanwhile.
func (e *Engine) expiryPass() func(context.Context) (time.Duration, error) {
	var looked, begin time.Time
	return func(ctx context.Context) (time.Duration, error) {
		now := e.now()
		if now.Sub(looked) > e.returnGrace {
			begin = now.Add(e.returnGrace)
		}
		if now.Before(begin) {
			if err := e.db.Ping(ctx); err != nil {
				return 0, err
			}
			looked = now
			return 0, nil
		}
		n, err := e.ExpireSteps(ctx)
		if err == nil {
			looked = now
		}
		if n >= expiryBatch {
			return loop.AtOnce, err
		}
		return 0, err
	}
}

// ExpireSteps fails steps that no worker took in time, up to a batch, and opens
// their investigations. It returns how many it found.
func (e *Engine) ExpireSteps(ctx context.Context) (int, error) {
	due, err := e.db.ExpiredSteps(ctx, e.sweepGrace(), expiryBatch)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	return len(due), together(ctx, due, func(some []tasker.StepRef) error {
		_, err := e.expire(ctx, some, nil, lockFree)
		return err
	})
}

// expire fails those of the steps that are still enqueued past their limit, with
// an investigation of each task, all in one transaction. Evidence of a step goes
// into the metadata of its investigation.
func (e *Engine) expire(
	ctx context.Context, steps []tasker.StepRef, evidence map[tasker.ID]json.RawMessage, lock locking,
) ([]postgres.ExpiredStep, error) {
	var expired []postgres.ExpiredStep
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		expired = nil
		locked, err := lock(ctx, tx, tasksOfSteps(steps))
		if err != nil || len(locked) == 0 {
			return err
		}
		mine := stepsOf(locked, steps)
		if expired, err = tx.ExpireSteps(ctx, mine, e.maxExpiries); err != nil || len(expired) == 0 {
			return err
		}
		return e.investigateExpired(ctx, tx, expired, evidence)
	})
	if err != nil {
		return nil, err
	}
	for _, x := range expired {
		e.log.WarnContext(ctx, "worker queue TTL expired", "task_uuid", x.TaskUUID, "step_uuid", x.StepUUID,
			"namespace", x.Namespace, "handler", x.Handler, "live_workers", x.Workers)
	}
	return expired, nil
}

// locking is a way to lock tasks; it returns those that it locked.
type locking func(context.Context, *postgres.Tx, []tasker.ID) ([]tasker.ID, error)

// lockFree leaves out the tasks that somebody works on.
func lockFree(ctx context.Context, tx *postgres.Tx, tasks []tasker.ID) ([]tasker.ID, error) {
	return tx.LockFreeTasks(ctx, tasks)
}

func tasksOfSteps(steps []tasker.StepRef) []tasker.ID {
	tasks := make([]tasker.ID, len(steps))
	for i, s := range steps {
		tasks[i] = s.TaskUUID
	}
	return tasks
}

// stepsOf returns those of the steps that are of the tasks.
func stepsOf(tasks []tasker.ID, steps []tasker.StepRef) []tasker.StepRef {
	of := make(map[tasker.ID]bool, len(tasks))
	for _, id := range tasks {
		of[id] = true
	}
	var out []tasker.StepRef
	for _, s := range steps {
		if of[s.TaskUUID] {
			out = append(out, s)
		}
	}
	return out
}

func (e *Engine) investigateExpired(
	ctx context.Context, tx *postgres.Tx, expired []postgres.ExpiredStep, evidence map[tasker.ID]json.RawMessage,
) error {
	var tasks []tasker.ID
	seen := map[tasker.ID]bool{}
	for _, x := range expired {
		if !seen[x.TaskUUID] {
			seen[x.TaskUUID] = true
			tasks = append(tasks, x.TaskUUID)
		}
	}
	settled, err := tx.SettleTasks(ctx, tasks, postgres.Operator{})
	if err != nil {
		return err
	}
	was := make(map[tasker.ID]postgres.Settled, len(settled))
	for _, s := range settled {
		was[s.TaskUUID] = s
	}
	for _, x := range expired {
		metadata, err := e.dispatchEvidence(x, evidence[x.StepUUID])
		if err != nil {
			return err
		}
		s, step, code := was[x.TaskUUID], x.StepUUID, tasker.DispatchExpired
		if x.Workers == 0 {
			code = tasker.NoWorkers
		}
		_, err = tx.OpenEntry(ctx, postgres.NewEntry{
			TaskUUID: x.TaskUUID, StepUUID: &step, Reason: tasker.WorkerUnavailable, DetailCode: code,
			DetectedBy: detector(evidence[x.StepUUID]), OriginalState: s.Was, Since: s.Since, Actor: systemActor, Metadata: metadata,
		})
		if err != nil {
			return fmt.Errorf("investigate step %s that no worker took: %w", x.StepUUID, err)
		}
	}
	return nil
}

func detector(evidence json.RawMessage) string {
	if evidence != nil {
		return tasker.DetectedBroker
	}
	return tasker.DetectedSweep
}

// dispatchEvidence is what an investigation keeps of a step that no worker took.
func (e *Engine) dispatchEvidence(x postgres.ExpiredStep, deadLetter json.RawMessage) (json.RawMessage, error) {
	transport := "postgres"
	if e.dispatch != nil {
		transport = "rabbitmq"
	}
	return json.Marshal(map[string]any{"dispatch": struct {
		Transport   string          `json:"transport"`
		Namespace   string          `json:"namespace"`
		Handler     string          `json:"handler"`
		QueuedAt    time.Time       `json:"queued_at"`
		ExpiresAt   time.Time       `json:"expires_at"`
		TTL         int64           `json:"worker_queue_ttl_ms"`
		LiveWorkers int64           `json:"live_workers"`
		Expiries    int             `json:"expiries_with_live_workers"`
		Returns     bool            `json:"returns_when_a_worker_lives"`
		DeadLetter  json.RawMessage `json:"dead_letter,omitempty"`
	}{
		Transport: transport, Namespace: x.Namespace, Handler: x.Handler, QueuedAt: x.QueuedAt, ExpiresAt: x.ExpiresAt,
		TTL: x.ExpiresAt.Sub(x.QueuedAt).Milliseconds(), LiveWorkers: x.Workers, Expiries: x.QueueExpiries, Returns: x.Returns,
		DeadLetter: deadLetter,
	}})
}

// Redispatch puts steps back into the queue that no worker took in time, and for
// which one is alive now; only these. It asks to run again at once when there are
// more.
func (e *Engine) Redispatch(ctx context.Context) (time.Duration, error) {
	tasks, err := e.db.TasksWithServedSteps(ctx, timerBatch)
	if err != nil || len(tasks) == 0 {
		return 0, err
	}
	var next time.Duration
	if len(tasks) >= timerBatch {
		next = loop.AtOnce
	}
	return next, together(ctx, tasks, func(some []tasker.ID) error { return e.move(ctx, some, (*postgres.Tx).Redispatch) })
}
