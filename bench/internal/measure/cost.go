package measure

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// costs measures what a step of a linear-4 drain costs, besides time.
func (b *bench) costs(ctx context.Context) error {
	for range b.Runs {
		if err := b.costOfDrain(ctx); err != nil {
			return err
		}
	}
	return b.roundTrips(ctx)
}

// per records the cost of all steps as cost per step.
func (b *bench) per(name, unit string, cost float64) {
	b.note(figure{name: name + " per step", unit: unit}, cost/float64(b.Workflows*linear.steps))
}

func (b *bench) costOfDrain(ctx context.Context) error {
	if err := b.fillQueue(ctx, b.direct(), linear, b.Workflows); err != nil {
		return err
	}
	before, err := b.spending(ctx)
	if err != nil {
		return err
	}
	cpu, servers := cpuTime(), serverTime(before.pids)
	var memory, memoryAfter runtime.MemStats
	runtime.ReadMemStats(&memory)
	if _, err := b.empty(ctx, b.direct(), b.Workflows*linear.steps); err != nil {
		return err
	}
	runtime.ReadMemStats(&memoryAfter)
	cpu = cpuTime() - cpu
	pids, err := b.backends(ctx)
	if err != nil {
		return err
	}
	servers = serverTime(pids) - servers
	after, err := b.spending(ctx)
	if err != nil {
		return err
	}
	b.per("CPU of this process", "µs", cpu.Seconds()*1e6)
	b.per("CPU of PostgreSQL", "µs", servers.Seconds()*1e6)
	b.per("allocations", "1", float64(memoryAfter.Mallocs-memory.Mallocs))
	b.per("allocated", "B", float64(memoryAfter.TotalAlloc-memory.TotalAlloc))
	b.per("WAL", "B", float64(after.WAL-before.WAL))
	b.per("rows inserted", "1", float64(after.Inserted-before.Inserted))
	b.per("rows updated", "1", float64(after.Updated-before.Updated))
	b.per("progress of tasks, at most,", "1", float64(after.Progress-before.Progress))
	b.per("rows updated in place (HOT)", "1", float64(after.Hot-before.Hot))
	b.per("rows deleted", "1", float64(after.Deleted-before.Deleted))
	b.per("dead rows left", "1", float64(after.Dead))
	b.per("disk, creation included", "B", float64(after.Size))
	b.per("disk of indexes, creation included", "B", float64(after.Indexes))
	return nil
}

// spending contains the cumulative statistics of PostgreSQL and the sizes of its tables.
type spending struct {
	WAL                             int64
	Inserted, Updated, Hot, Deleted int64
	Progress                        int64 // maximum number of updates for progress: one per task and second, except for the last step
	Dead                            int64
	Size, Indexes                   int64
	pids                            []int
}

// spending closes the connections of the engine first, because server processes report their
// statistics at exit.
func (b *bench) spending(ctx context.Context) (s spending, err error) {
	conn, err := pgx.Connect(ctx, b.DatabaseURL)
	if err != nil {
		return s, err
	}
	defer func() { _ = conn.Close(ctx) }()
	var idle []int
	if err := conn.QueryRow(ctx, `
		SELECT coalesce(array_agg(pid), '{}')
		FROM pg_stat_activity
		WHERE application_name = $1 AND datname = current_database() AND query NOT ILIKE 'listen%'`, applicationName).Scan(&idle); err != nil {
		return s, err
	}
	b.db.Reset()
	for ended := false; !ended; {
		sql := `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ANY ($1))`
		if err := conn.QueryRow(ctx, sql, idle).Scan(&ended); err != nil {
			return s, err
		}
		if err := rest(ctx, 5*time.Millisecond); err != nil {
			return s, err
		}
	}
	err = conn.QueryRow(ctx, `
		SELECT pg_current_wal_insert_lsn() - '0/0',
			sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_hot_upd), sum(n_tup_del), sum(n_dead_tup),
			sum(pg_total_relation_size(relid)), sum(pg_indexes_size(relid))
		FROM pg_stat_user_tables
		WHERE schemaname = 'tasker'`).Scan(&s.WAL, &s.Inserted, &s.Updated, &s.Hot, &s.Deleted, &s.Dead, &s.Size, &s.Indexes)
	if err != nil {
		return s, err
	}
	if err := conn.QueryRow(ctx, `
		SELECT coalesce(sum(least(floor(extract(epoch FROM completed_at - created_at)), $1 - 1)), 0)::bigint
		FROM tasker.tasks
		WHERE completed_at IS NOT NULL`, linear.steps).Scan(&s.Progress); err != nil {
		return s, err
	}
	s.pids, err = b.backends(ctx)
	return s, err
}

// backends returns the process ids of the server.
func (b *bench) backends(ctx context.Context) ([]int, error) {
	rows, err := b.db.Pool().Query(ctx, `SELECT pid FROM pg_stat_activity`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// roundTrips counts the round trips of an engine to PostgreSQL through a relay.
func (b *bench) roundTrips(ctx context.Context) error {
	relay, err := startRelay(b.DatabaseURL)
	if err != nil {
		return err
	}
	defer relay.close()
	o := b.Options
	o.DatabaseURL = relay.url
	counted, err := open(ctx, o)
	if err != nil {
		return fmt.Errorf("count round trips (the server must accept connections without TLS): %w", err)
	}
	defer func() { _ = counted.close() }()
	counted.work, counted.report, counted.group = b.work, b.report, b.group
	if _, err := counted.drain(ctx, counted.direct(), linear, b.Workflows); err != nil { // prepare the statements
		return err
	}
	for range b.Runs {
		if err := counted.fillQueue(ctx, counted.direct(), linear, b.Workflows); err != nil {
			return err
		}
		trips, bytes := relay.trips.Load(), relay.bytes.Load()
		if _, err := counted.empty(ctx, counted.direct(), b.Workflows*linear.steps); err != nil {
			return err
		}
		b.per("database round trips", "1", float64(relay.trips.Load()-trips))
		b.per("bytes to and from the database", "B", float64(relay.bytes.Load()-bytes))
	}
	return nil
}

// serverTime returns the CPU time of server processes on this machine (Linux only).
func serverTime(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || !strings.HasPrefix(string(name), "postgres") {
			continue // on another machine
		}
		times, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		var running int64
		if err == nil {
			_, err = fmt.Sscan(string(times), &running)
		}
		if err == nil {
			sum += time.Duration(running)
		}
	}
	return sum
}

// historyTimes is the ratio of finished work to new work.
const historyTimes = 10

// history measures whether finished work slows down new work. It drains one-step tasks in process,
// on empty tables and after ten other drains with VACUUM. Each drain has half as many tasks as the
// group drain.
func (b *bench) history(ctx context.Context) error {
	n := max(b.Tasks/2, 1)
	empty := figure{name: "one-step tasks drained, empty tables", unit: "steps/s"}
	full := figure{name: fmt.Sprintf("one-step tasks drained, %d × as many finished", historyTimes), unit: "steps/s", baseline: empty.name}
	for range b.Runs {
		took, err := b.drain(ctx, b.direct(), single, n)
		if err != nil {
			return err
		}
		b.note(empty, float64(n)/took.Seconds())
	}
	for done := 1; done < historyTimes; done++ { // the last run above was the first
		if err := b.enqueue(ctx, b.direct(), single, n); err != nil {
			return err
		}
		if _, err := b.empty(ctx, b.direct(), n); err != nil {
			return err
		}
	}
	for range b.Runs {
		// In production, finished work has been vacuumed.
		if _, err := b.db.Pool().Exec(ctx, `VACUUM ANALYZE`, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		if err := b.enqueue(ctx, b.direct(), single, n); err != nil {
			return err
		}
		took, err := b.empty(ctx, b.direct(), n)
		if err != nil {
			return err
		}
		b.note(full, float64(n)/took.Seconds())
	}
	return nil
}
