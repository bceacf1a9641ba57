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

// ConnClass selects a share of the connections, so that urgent work never waits behind other
// requests.
type ConnClass int

// The connection classes.
const (
	General    ConnClass = iota // reads and repairs
	Heartbeats                  // lease extensions
	Work                        // claims and reports
	Creates                     // new tasks and templates
	Timers                      // background work of the server
	connClasses
)

// minShared is the number of connections from which on the classes have separate pools.
const minShared = 8

type connClassKey struct{}

// WithConnClass returns a context whose statements use connections of a class. If ctx already has a
// class, it is unchanged.
func WithConnClass(ctx context.Context, c ConnClass) context.Context {
	if _, set := ctx.Value(connClassKey{}).(ConnClass); set {
		return ctx
	}
	return context.WithValue(ctx, connClassKey{}, c)
}

// splitConns divides connections among the classes. For example, 20 connections become General 5,
// Heartbeats 2, Work 7, Creates 3 and Timers 3.
func splitConns(all int) [connClasses]int {
	var s [connClasses]int
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

// MaxCreateConns returns the maximum number of connections for storing new tasks.
func (db *DB) MaxCreateConns() int { return db.pool.forCreates() }

// RequestConns returns how many of all connections are used for reads and repairs.
func RequestConns(all int) int { return splitConns(all)[General] }

// connections provides connections with the settings of this package.
type connections interface {
	querier
	Ping(ctx context.Context) error
	Begin(ctx context.Context) (pgx.Tx, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Acquire(ctx context.Context) (*pooledConn, error)
	Reset()
	Close()
	connect(ctx context.Context) (*pgx.Conn, error) // the caller must close it
	general() *pgxpool.Pool
	forCreates() int
}

// pooledConn is a connection of a pool. The caller must release it.
type pooledConn struct {
	*poolConn
	release func()
}

type poolConn = pgxpool.Conn

// Release returns the connection to its pool.
func (c *pooledConn) Release() { c.release() }

// pools contains a connection pool per class. Each method uses the pool for the class of its
// context.
type pools struct{ of [connClasses]*pgxpool.Pool }

func openPools(ctx context.Context, cfg *pgxpool.Config) (*pools, error) {
	p := &pools{}
	for class, share := range splitConns(int(cfg.MaxConns)) {
		if share == 0 {
			p.of[class] = p.of[General]
			continue
		}
		c := cfg.Copy()
		c.MaxConns = int32(share)
		pool, err := pgxpool.NewWithConfig(ctx, c)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.of[class] = pool
	}
	return p, nil
}

func (p *pools) poolFor(ctx context.Context) *pgxpool.Pool {
	c, _ := ctx.Value(connClassKey{}).(ConnClass)
	return p.of[c]
}

// Close closes all connections. It waits for running statements.
func (p *pools) Close() {
	for class, pool := range p.of {
		if pool != nil && (ConnClass(class) == General || pool != p.of[General]) {
			pool.Close()
		}
	}
}

// Reset closes all connections. Those in use are closed when they are released.
func (p *pools) Reset() {
	for _, pool := range p.of {
		pool.Reset()
	}
}

func (p *pools) Ping(ctx context.Context) error { return classifyError(p.poolFor(ctx).Ping(ctx)) }

func (p *pools) connect(ctx context.Context) (*pgx.Conn, error) {
	c, err := p.of[General].Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return c.Hijack(), nil
}

func (p *pools) general() *pgxpool.Pool { return p.of[General] }

func (p *pools) forCreates() int { return int(p.of[Creates].Config().MaxConns) }

func (p *pools) Acquire(ctx context.Context) (*pooledConn, error) {
	c, err := p.poolFor(ctx).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &pooledConn{poolConn: c, release: c.Release}, nil
}

func (p *pools) Begin(ctx context.Context) (pgx.Tx, error) { return p.poolFor(ctx).Begin(ctx) }

func (p *pools) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := p.poolFor(ctx).Query(ctx, sql, args...)
	return rows, classifyError(err)
}

func (p *pools) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return scannedRow{p.poolFor(ctx).QueryRow(ctx, sql, args...)}
}

func (p *pools) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := p.poolFor(ctx).Exec(ctx, sql, args...)
	return tag, classifyError(err)
}

func (p *pools) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return p.poolFor(ctx).SendBatch(ctx, b)
}

// requireReadWrite discards read-only connections, so that the pools find the primary after a
// failover.
func requireReadWrite(cfg *pgxpool.Config) {
	// AfterRelease is not suitable: pgxpool starts a goroutine for each call of it.
	cfg.PrepareConn = func(_ context.Context, c *pgx.Conn) (bool, error) { return isUsable(c), nil }
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return needsPing(p.Conn.PgConn().Conn(), p.IdleDuration)
	}
	cfg.ConnConfig.OnPgError = func(_ *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Severity != "FATAL" && err.SeverityUnlocalized != "FATAL" && err.Code != readOnly
	}
	preferWritable(cfg.ConnConfig)
}

// isUsable reports whether a connection can be used: it is new, or not known to be read-only.
func isUsable(c *pgx.Conn) bool {
	const used = "tasker.used"
	if data := c.PgConn().CustomData(); data[used] == nil {
		data[used] = true
		return true // another connection would be no better
	}
	status := c.PgConn().ParameterStatus // PostgreSQL reports changes of these parameters
	return status("in_hot_standby") != "on" && status("default_transaction_read_only") != "on"
}

// preferWritable makes a connection to several hosts select a writable one, unless the URL sets
// target_session_attrs.
func preferWritable(cfg *pgx.ConnConfig) {
	several := slices.ContainsFunc(cfg.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.Host != cfg.Host || f.Port != cfg.Port
	})
	if several && cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// Connect opens a single connection with the settings of [Open].
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	preferWritable(cfg)
	return pgx.ConnectConfig(ctx, cfg)
}

// readOnly is the SQLSTATE of a write in a read-only transaction.
const readOnly = "25006"

// Connections that have been idle for some time are tested before use.
const (
	idleAfter = time.Second // test of the socket
	pingAfter = time.Minute // test by a round trip
)

// needsPing reports whether an idle connection must be tested by a round trip before use.
func needsPing(c net.Conn, idle time.Duration) bool {
	return idle > pingAfter || idle > idleAfter && !isSilent(c)
}
