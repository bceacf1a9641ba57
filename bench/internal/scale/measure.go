package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
)

// A subject is a statement of the product: how to run it, how to find it among the prepared
// statements of the connection, and the arguments for explaining it.
type subject struct {
	run  func(context.Context) error
	from string
	args string
}

func (s *scale) subject(name string) subject {
	switch name {
	case queuePage:
		return subject{from: "tasker.v_dlq_investigation_queue", args: fmt.Sprintf("(%d, 0)", pageSize+1), run: func(ctx context.Context) error {
			list, _, err := s.db.InvestigationQueue(ctx, tasker.InvestigationFilter{Limit: pageSize})
			return filled(len(list), min(pageSize, s.Pending), err)
		}}
	case stats, endedStats:
		return subject{from: "tasker.v_dlq_dashboard", run: func(ctx context.Context) error {
			_, err := s.db.EntryStats(ctx)
			return err
		}}
	case taskPage:
		args := fmt.Sprintf("(%d, 0, '%s')", pageSize+1, tasker.TaskStepsInProcess)
		return subject{from: "FROM tasker.tasks t WHERE t.state", args: args, run: func(ctx context.Context) error {
			list, _, err := s.db.Tasks(ctx, tasker.TaskFilter{State: tasker.TaskStepsInProcess, Limit: pageSize})
			return filled(len(list), min(pageSize, s.tasks), err)
		}}
	case stepList:
		args := fmt.Sprintf("('%s', NULL)", s.large)
		return subject{from: "tasker.get_step_readiness_status", args: args, run: func(ctx context.Context) error {
			list, err := s.db.Steps(ctx, s.large)
			return filled(len(list), manySteps, err)
		}}
	case quietMonitor, dueMonitor:
		return subject{from: "tasker.get_task_staleness", args: fmt.Sprintf("(%d, 0, NULL, '', '', '')", pageSize), run: func(ctx context.Context) error {
			list, err := s.db.Staleness(ctx, tasker.StalenessFilter{Limit: pageSize})
			return filled(len(list), min(pageSize, s.tasks), err)
		}}
	case quietSweep:
		return subject{from: "tasker.detect_and_transition_stale_tasks", args: fmt.Sprintf("(false, %d, 0)", batchSize), run: func(ctx context.Context) error {
			list, err := s.db.SweepStale(ctx, false, batchSize, 0)
			return filled(len(list), 0, err)
		}}
	default:
		return subject{from: "tasker.detect_and_transition_stale_tasks", args: fmt.Sprintf("(false, %d, 0)", batchSize), run: func(ctx context.Context) error {
			_, err := s.db.SweepStale(ctx, true, batchSize, 0) // a dry run uses the same statement
			return err
		}}
	}
}

func filled(got, want int, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("%d rows instead of %d: the database is not as it was filled", got, want)
	}
	return err
}

// read measures a read-only request as the API performs it.
func (s *scale) read(ctx context.Context, name string) error {
	sub := s.subject(name)
	if err := sub.run(ctx); err != nil { // warm the caches
		return err
	}
	var took []time.Duration
	for range s.Runs * readsPerRun {
		start := time.Now()
		if err := sub.run(ctx); err != nil {
			return err
		}
		took = append(took, time.Since(start))
	}
	return s.product(ctx, func(c *pgxpool.Conn) error {
		p, err := prepared(ctx, c.Conn(), sub)
		if err != nil {
			return err
		}
		spent, err := explain(ctx, c.Conn(), p, sub.args)
		if err == nil {
			s.point(name, took, spent.Buffers)
		}
		return err
	})
}

// sweep measures several consecutive batches, on tasks that are due again each time.
func (s *scale) sweep(ctx context.Context, name string, batches int) error {
	sub := s.subject(name)
	if err := sub.run(ctx); err != nil {
		return err
	}
	var took []time.Duration
	for range s.Runs {
		var one time.Duration
		err := s.undone(ctx, func(tx pgx.Tx) error {
			return s.sweepBatches(ctx, batches, func() (int, error) {
				p, err := prepared(ctx, tx.Conn(), sub)
				if err != nil {
					return 0, err
				}
				start := time.Now()
				n, err := swept(ctx, tx.Conn(), p.Statement)
				one += time.Since(start)
				return n, err
			})
		})
		if err != nil {
			return err
		}
		took = append(took, one)
	}
	var buffers int64
	err := s.undone(ctx, func(tx pgx.Tx) error {
		return s.sweepBatches(ctx, batches, func() (int, error) {
			p, err := prepared(ctx, tx.Conn(), sub)
			if err != nil {
				return 0, err
			}
			spent, err := explain(ctx, tx.Conn(), p, sub.args)
			buffers += spent.Buffers
			return spent.Rows, err
		})
	})
	if err == nil {
		s.point(name, took, buffers)
	}
	return err
}

// sweepBatches checks that each batch is full until nothing is due.
func (s *scale) sweepBatches(ctx context.Context, batches int, batch func() (int, error)) error {
	left := s.Due
	for range batches {
		n, err := batch()
		if err := filled(n, min(batchSize, left), err); err != nil {
			return err
		}
		left -= n
	}
	return ctx.Err()
}

// undone runs f in a transaction of the product's connection and rolls it back. It warms up the
// plans first, which VACUUM invalidates.
func (s *scale) undone(ctx context.Context, f func(pgx.Tx) error) error {
	if err := s.vacuum(ctx); err != nil {
		return err
	}
	return s.product(ctx, func(c *pgxpool.Conn) error {
		p, err := prepared(ctx, c.Conn(), s.subject(sweepBatch))
		if err != nil {
			return err
		}
		warm := func(tx pgx.Tx) error {
			_, err := swept(ctx, tx.Conn(), p.Statement)
			return err
		}
		for _, run := range []func(pgx.Tx) error{warm, f} {
			if err := rolledBack(ctx, c.Conn(), run); err != nil {
				return err
			}
		}
		return nil
	})
}

func rolledBack(ctx context.Context, conn *pgx.Conn, f func(pgx.Tx) error) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if err := f(tx); err != nil {
		return err
	}
	return tx.Rollback(ctx)
}

// swept runs one batch of the sweep and counts its tasks.
func swept(ctx context.Context, conn *pgx.Conn, statement string) (int, error) {
	rows, err := conn.Query(ctx, statement, false, batchSize, 0)
	if err != nil {
		return 0, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		return 0, err
	}
	for _, row := range list {
		if row["moved_to_dlq"] != true {
			return 0, fmt.Errorf("the sweep says %v of task %v", row["action_taken"], row["task_uuid"])
		}
	}
	return len(list), nil
}

// A statement is a prepared statement of a connection.
type statement struct {
	Name, Statement string
}

// prepared returns the statement that the product prepared for a subject, so that the same
// statement is explained.
func prepared(ctx context.Context, conn *pgx.Conn, sub subject) (statement, error) {
	rows, err := conn.Query(ctx, `SELECT name, statement FROM pg_prepared_statements WHERE strpos(statement, $1) > 0`, sub.from)
	if err != nil {
		return statement{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[statement])
	if err != nil {
		return p, fmt.Errorf("find the prepared statement on %s: %w", sub.from, err)
	}
	return p, nil
}

// spent is the cost of a statement, including the statements in its functions.
type spent struct {
	Rows    int
	Buffers int64
}

func explain(ctx context.Context, conn *pgx.Conn, p statement, args string) (spent, error) {
	execute := `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE ` + pgx.Identifier{p.Name}.Sanitize() + args
	var text string
	if err := conn.QueryRow(ctx, execute, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		return spent{}, fmt.Errorf("%s: %w", execute, err)
	}
	var plans []struct {
		Plan struct {
			Rows int   `json:"Actual Rows"`
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&plans); err != nil || len(plans) != 1 {
		return spent{}, fmt.Errorf("a plan that is not one: %w\n%s", err, text)
	}
	top := plans[0].Plan
	return spent{Rows: top.Rows, Buffers: top.Hit + top.Read}, nil
}
