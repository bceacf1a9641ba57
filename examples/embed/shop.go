package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/embedded"
	"tasker.example/tasker/worker"
)

// shop accepts orders.
type shop struct {
	engine *embedded.Engine
	pool   *pgxpool.Pool
}

// order is the context of a task.
type order struct {
	ID   int    `json:"id"`
	Item string `json:"item"`
}

// accept stores an order together with the task that fulfils it.
func (s *shop) accept(ctx context.Context, item string) (task tasker.ID, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		o := order{Item: item}
		if err := tx.QueryRow(ctx, `INSERT INTO orders (item) VALUES ($1) RETURNING id`, item).Scan(&o.ID); err != nil {
			return err
		}
		doc, err := json.Marshal(o)
		if err != nil {
			return err
		}
		task, err = s.engine.CreateTaskTx(ctx, tx, tasker.NewTask{Namespace: "shop", Name: "order", Context: doc})
		return err
	})
	return task, err
}

// approve records who approved an order and answers the step that waits for it.
func (s *shop) approve(ctx context.Context, task tasker.ID, by string) error {
	step, err := s.engine.StepNamed(ctx, task, "approve")
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO approvals (task, by) VALUES ($1, $2)`, task.String(), by); err != nil {
			return err
		}
		answer := tasker.Outcome{Success: true, Result: json.RawMessage(`true`)}
		return s.engine.CompleteExternalTx(ctx, tx, tasker.StepRef{TaskUUID: task, StepUUID: step}, answer, by)
	})
}

func newWorker(engine *embedded.Engine, pool *pgxpool.Pool) *worker.Worker {
	w := worker.New(engine.Backend(), worker.Options{Namespaces: []string{"shop"}})
	worker.Handle(w, "reserve_stock", func(ctx context.Context, s *worker.Step[order]) (json.RawMessage, error) {
		result := json.RawMessage(`{"reserved": true}`)
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, `UPDATE stock SET free = free - 1 WHERE item = $1 AND free > 0`, s.Input.Item)
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return worker.Permanent(errors.New("out of stock"))
			}
			return engine.CompleteStepTx(ctx, tx, s.Lease(), result)
		})
		return result, err
	})
	worker.Handle(w, "ship_order", func(context.Context, *worker.Step[order]) (string, error) {
		return "shipped", nil
	})
	return w
}
