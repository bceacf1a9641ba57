// Package pgtest provides each test with its own PostgreSQL database.
//
// [New] makes it in about ten milliseconds, as a copy of a template that was
// migrated once, so tests run in parallel and none sees what another wrote. A
// package that uses it has a TestMain that calls [Main]:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// The schema belongs to the role that migrates, and what a test runs connects with
// [DB.URL] as the role of a server: a privilege that is missing, or a table without
// one, fails tests. A test prepares and examines with [DB.Pool] as a superuser.
//
// The server is a private one, in memory where the machine allows it, started
// with the first test that asks and stopped with the test binary. If
// TASKER_TEST_DATABASE_URL names a server, that one is used instead; a test that
// fails then leaves its database behind and prints where it is. A server that
// cannot be reached fails the tests, and never skips them: a skipped test is one
// that nobody knows is not running.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"
)

// patience is how long any one thing that pgtest does may take on a machine
// that has much else to do.
const patience = time.Minute

// startPatience is how long the server may take to start: where the machine has
// no PostgreSQL, it is downloaded first.
const startPatience = 5 * time.Minute

// The roles of the test databases. They belong to the whole server, so they are not
// those of an installation that may be there as well.
const (
	RolePrefix  = "tasker_test"
	MigrateRole = RolePrefix + "_migrate"
	ServerRole  = RolePrefix + "_server"
	ReaderRole  = RolePrefix + "_reader"
)

// DB is a migrated database that belongs to one test.
type DB struct {
	URL      string // for a server, with its password
	AdminURL string // for a superuser
	name     string
	clock    bool // it has a [Clock]
}

// AdminURL returns the URL of a database for a superuser, by that for a server.
func AdminURL(databaseURL string) string { return withRole(databaseURL, "") }

// As returns the URL of the database for a role.
func (db *DB) As(role string) string { return withRole(db.AdminURL, role) }

// New makes a database for the test and drops it when the test has ended. To
// look for leaked goroutines, call New first: it may start the server.
func New(t testing.TB) *DB {
	t.Helper()
	s := server(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name := databaseName(t.Name())
	// The copy of files takes half of what the copy through the write-ahead log does, which is for large servers.
	if err := s.exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(s.template)+" STRATEGY file_copy"); err != nil {
		t.Fatalf("make a database for the test: %v", err)
	}
	db := &DB{AdminURL: withDatabase(s.url, name), name: name}
	db.URL = db.As(ServerRole)
	t.Cleanup(func() { db.end(t, s) })
	return db
}

// end drops the database, or says where it is.
func (db *DB) end(t testing.TB, s *testServer) {
	t.Helper()
	if t.Failed() && s.external {
		t.Logf("the test's database is kept: %s", db.AdminURL)
		return
	}
	if t.Failed() {
		t.Logf("the test's database is dropped with its server; name a server with %s to keep it", urlEnv)
	}
	// The context of the test has ended by now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := s.exec(ctx, "DROP DATABASE IF EXISTS "+quote(db.name)+" WITH (FORCE)"); err != nil {
		t.Errorf("drop the test's database: %v", err)
	}
}

// Pool connects to the database as a superuser, for what a test prepares and
// examines; it is closed when the test has ended. Its sessions are like those of a
// server: names are found in the schema tasker, and instants come back in UTC.
func (db *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Admin(t, db.AdminURL)
}

// Admin is [DB.Pool] for the database that a test knows by the URL of a server. All
// calls of a test with one URL return one pool.
func Admin(t testing.TB, databaseURL string) *pgxpool.Pool {
	t.Helper()
	admins.Lock()
	defer admins.Unlock()
	databaseURL = withRole(databaseURL, "")
	key := adminOf{t.Name(), databaseURL}
	if pool := admins.pools[key]; pool != nil {
		return pool
	}
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		t.Fatalf("connect to the test's database: %v", err)
	}
	config.MaxConns = 10
	config.ConnConfig.RuntimeParams["search_path"] = "tasker"
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		pgxuuid.Register(conn.TypeMap())
		conn.TypeMap().RegisterType(&pgtype.Type{
			Name: "timestamptz", OID: pgtype.TimestamptzOID,
			Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
		})
		return nil
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatalf("connect to the test's database: %v", err)
	}
	admins.pools[key] = pool
	t.Cleanup(func() {
		admins.Lock()
		delete(admins.pools, key)
		admins.Unlock()
		pool.Close()
	})
	return pool
}

// admins has the pool of each running test.
var admins = struct {
	sync.Mutex
	pools map[adminOf]*pgxpool.Pool
}{pools: map[adminOf]*pgxpool.Pool{}}

type adminOf struct{ test, url string }

// Server returns the URL of the server, for a test that brings its own
// databases or starts a real program. The server is shared by all tests of the
// package, so such a test names its databases after itself.
func Server(t testing.TB) string {
	t.Helper()
	return server(t).url
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// databaseName names a database after its test, so that one that is found later
// tells where it came from. PostgreSQL cuts names after 63 bytes.
func databaseName(test string) string {
	test = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(test), "_"), "_")
	return fmt.Sprintf("t_%.40s_%s", test, strings.ToLower(rand.Text()[:10]))
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// withDatabase returns the URL of another database on the same server.
func withDatabase(server, database string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err) // connect has parsed it
	}
	u.Path = "/" + database
	return u.String()
}

// withRole returns the URL for sessions that have a role from their start, or none.
func withRole(database, role string) string {
	u, err := url.Parse(database)
	if err != nil {
		panic(err) // connect has parsed it
	}
	q := u.Query()
	if q.Del("options"); role != "" {
		q.Set("options", "-crole="+role) // which psql understands as well, and which has no space to be encoded
	}
	u.RawQuery = q.Encode()
	return u.String()
}
