package postgres

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A ConnClass is a share of the connections, so that urgent work never waits behind a flood of requests.
type ConnClass int

// The lanes.
const (
	General    ConnClass = iota // requests: read, repair
	Heartbeats                  // extend leases; a heartbeat that waits too long loses them
	Work                        // hand out steps and take their results
	Creates                     // store new tasks and templates
	Timers                      // what the server does by itself
	lanes
)

// minShared is the number of connections below which there are no lanes.
const minShared = 8

type laneKey struct{}

// WithConnClass returns a context whose statements run in a lane, unless one is already set.
func WithConnClass(ctx context.Context, l ConnClass) context.Context {
	if _, set := ctx.Value(laneKey{}).(ConnClass); set {
		return ctx
	}
	return context.WithValue(ctx, laneKey{}, l)
}

// splitConns divides connections among the lanes: of 20, 5 are for requests, 3 for creates,
// 2 for heartbeats, 7 for work and 3 for timers. With fewer than 8 all share all.
func splitConns(all int) [lanes]int {
	var s [lanes]int
	if all < minShared {
		s[General] = all
		return s
	}
	s[Heartbeats] = max(1, all/10)
	s[Creates] = max(1, all*3/20)
	s[Timers] = max(2, all*3/20)
	s[Work] = max(2, all*7/20)
	s[General] = all - s[Heartbeats] - s[Creates] - s[Timers] - s[Work]
	return s
}

// ForCreates returns how many connections store new tasks at most.
func (db *DB) ForCreates() int { return int(db.pool.of[Creates].Config().MaxConns) }

// ForRequests returns how many of all connections are for requests that read and repair.
func ForRequests(all int) int { return splitConns(all)[General] }

// pools are the connections by lane. Each method uses the lane of the context.
type pools struct{ of [lanes]*pgxpool.Pool }

func openPools(ctx context.Context, cfg *pgxpool.Config) (*pools, error) {
	p := &pools{}
	for lane, share := range splitConns(int(cfg.MaxConns)) {
		if share == 0 {
			p.of[lane] = p.of[General]
			continue
		}
		c := cfg.Copy()
		c.MaxConns = int32(share)
		pool, err := pgxpool.NewWithConfig(ctx, c)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.of[lane] = pool
	}
	return p, nil
}

func (p *pools) poolFor(ctx context.Context) *pgxpool.Pool {
	l, _ := ctx.Value(laneKey{}).(ConnClass)
	return p.of[l]
}

// Close waits for running statements and closes all connections.
func (p *pools) Close() {
	for lane, pool := range p.of {
		if pool != nil && (ConnClass(lane) == General || pool != p.of[General]) {
			pool.Close()
		}
	}
}

// Reset closes all connections, those in use on return.
func (p *pools) Reset() {
	for _, pool := range p.of {
		pool.Reset()
	}
}

// Ping reports whether the database answers.
func (p *pools) Ping(ctx context.Context) error { return classifyError(p.poolFor(ctx).Ping(ctx)) }

// Acquire takes a connection.
func (p *pools) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	return p.poolFor(ctx).Acquire(ctx)
}

// Begin begins a transaction.
func (p *pools) Begin(ctx context.Context) (pgx.Tx, error) { return p.poolFor(ctx).Begin(ctx) }

// Query runs a query.
func (p *pools) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := p.poolFor(ctx).Query(ctx, sql, args...)
	return rows, classifyError(err)
}

// QueryRow runs a query for one row.
func (p *pools) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return scannedRow{p.poolFor(ctx).QueryRow(ctx, sql, args...)}
}

// Exec runs a statement.
func (p *pools) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := p.poolFor(ctx).Exec(ctx, sql, args...)
	return tag, classifyError(err)
}

// SendBatch runs statements in one round trip.
func (p *pools) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return p.poolFor(ctx).SendBatch(ctx, b)
}

// requireReadWrite drops read-only connections, so that the pools find the primary after a failover.
func requireReadWrite(cfg *pgxpool.Config) {
	// Not when a connection is given back: pgxpool starts a goroutine for that each time.
	cfg.PrepareConn = func(_ context.Context, c *pgx.Conn) (bool, error) {
		const used = "tasker.used"
		if data := c.PgConn().CustomData(); data[used] == nil {
			data[used] = true
			return true, nil // it is new: there is no better one now
		}
		status := c.PgConn().ParameterStatus // PostgreSQL tells of a change by itself
		return status("in_hot_standby") != "on" && status("default_transaction_read_only") != "on", nil
	}
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return needsPing(p.Conn.PgConn().Conn(), p.IdleDuration)
	}
	cfg.ConnConfig.OnPgError = func(_ *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Severity != "FATAL" && err.SeverityUnlocalized != "FATAL" && err.Code != readOnly
	}
	toWritable(cfg.ConnConfig)
}

// toWritable makes a connection choose the writable host of several, unless the URL differs.
func toWritable(cfg *pgx.ConnConfig) {
	several := slices.ContainsFunc(cfg.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.Host != cfg.Host || f.Port != cfg.Port
	})
	if several && cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// Connect opens one connection, like those of [Open].
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	toWritable(cfg)
	return pgx.ConnectConfig(ctx, cfg)
}

// readOnly is the code of a statement that would have to write and may not.
const readOnly = "25006"

// Idle connections are tested before use: by a socket check, and after long by a round trip.
const (
	idleAfter = time.Second
	pingAfter = time.Minute
)

// needsPing reports whether a connection idle for so long needs a round trip before use.
func needsPing(c net.Conn, idle time.Duration) bool {
	return idle > pingAfter || idle > idleAfter && !silent(c)
}
