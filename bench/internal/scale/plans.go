package scale

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Plan contains the plans of one statement at the last size: first those of statements in its
// functions, then its own.
type Plan struct {
	Name  string   `json:"name"`
	Plans []string `json:"plans"`
}

// explained lists the statements whose plans are reported, for one batch or one page.
var explained = []struct {
	name, sql string
}{
	{"get_stale_tasks_for_dlq", fmt.Sprintf(`SELECT * FROM tasker.get_stale_tasks_for_dlq(%d)`, batchSize*10)},
	{"get_unattended_tasks_for_dlq", fmt.Sprintf(`SELECT * FROM tasker.get_unattended_tasks_for_dlq(%d)`, batchSize*10)},
	{"get_task_staleness", fmt.Sprintf(`SELECT * FROM tasker.get_task_staleness(%d)`, pageSize)},
	{"v_dlq_investigation_queue", fmt.Sprintf(`SELECT * FROM tasker.v_dlq_investigation_queue LIMIT %d`, pageSize)},
	{"v_dlq_dashboard", `SELECT * FROM tasker.v_dlq_dashboard`},
	{"detect_and_transition_stale_tasks", fmt.Sprintf(`SELECT * FROM tasker.detect_and_transition_stale_tasks(false, %d)`, batchSize)},
}

// explainAll collects the plans of all statements on a connection with the product's settings.
func (s *scale) explainAll(ctx context.Context) error {
	config := s.db.Pool().Config().ConnConfig.Copy()
	var told []string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if _, plan, ok := strings.Cut(n.Message, "plan:\n"); ok {
			told = append(told, plan)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, `
		LOAD 'auto_explain';
		SET auto_explain.log_min_duration = 0;
		SET auto_explain.log_nested_statements = on;
		SET auto_explain.log_analyze = on;
		SET auto_explain.log_buffers = on;
		SET auto_explain.log_level = 'notice'`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("plans need a superuser, and auto_explain of PostgreSQL's contrib: %w", err)
	}
	for _, e := range explained {
		run := func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, e.sql)
			return err
		}
		if err := rolledBack(ctx, conn, run); err != nil { // warm the caches
			return err
		}
		told = nil
		if err := rolledBack(ctx, conn, run); err != nil {
			return err
		}
		s.report.Plans = append(s.report.Plans, Plan{Name: e.name, Plans: distinct(told)})
	}
	return nil
}

var digits = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// distinct returns one of the plans that differ only in numbers, with their count.
func distinct(plans []string) []string {
	count := map[string]int{}
	var order []string
	first := map[string]string{}
	for _, p := range plans {
		key := digits.ReplaceAllString(p, "")
		if count[key]++; count[key] == 1 {
			order, first[key] = append(order, key), p
		}
	}
	out := make([]string, len(order))
	for i, key := range order {
		out[i] = strings.TrimRight(first[key], "\n")
		if n := count[key]; n > 1 {
			out[i] = fmt.Sprintf("-- the first of %d\n%s", n, out[i])
		}
	}
	return out
}
