package engine

import (
	"context"
	"errors"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

const requestChunk = 20 // requested tasks in one call of createRequested

// createRequested creates tasks that were requested with tasker.create_task, each in its own
// transaction. It records why a request is refused. Other errors are retried later.
func (e *Engine) createRequested(ctx context.Context, rows []tasker.StepRef) error {
	var failed []error
	for _, id := range uniqueTasks(rows) {
		err := e.createRequest(ctx, id)
		for n := 1; n < 3 && isKeyOrTemplateRace(err); n++ {
			err = e.createRequest(ctx, id)
		}
		switch tasker.CodeOf(err) {
		case tasker.NotFound, tasker.Invalid, tasker.TooLarge, tasker.Conflict:
			e.log.WarnContext(ctx, "refused a task that was requested in SQL", "task_uuid", id, "err", err)
			err = e.db.RefuseTaskRequest(ctx, id, tasker.CodeOf(err), err.Error())
		default: // created, or retried later
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (e *Engine) createRequest(ctx context.Context, id tasker.ID) error {
	var c creation
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		c = e.newCreation(tx, templatefile.NewTimerBudget())
		c.asked, c.uuid = true, id
		r, err := tx.TakeTaskRequest(ctx, id)
		if err != nil || r == nil {
			return err
		}
		out, err := c.addAll(ctx, []tasker.NewTask{r.ToNewTask()}, tx.KeyHolders)
		if err != nil || len(c.tasks) == 0 {
			return err
		}
		err = c.reject(ctx, tx)
		c.addMerged(out)
		return err
	})
	if err != nil {
		return err
	}
	e.notify(c.listNamespaces())
	if slices.ContainsFunc(c.tasks, (*postgres.CreatedTask).HasDecisions) {
		e.decideNow()
	}
	return nil
}
