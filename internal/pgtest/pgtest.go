// Package pgtest provides each test with its own PostgreSQL database.
//
// [New] creates it in about ten milliseconds, as a copy of a migrated template, so tests run in
// parallel and do not see each other's data. A package that uses it needs a TestMain that calls
// [Main]:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// The schema belongs to the migrating role. The tested code connects with [DB.URL] as the role of a
// server, so that missing privileges fail tests. Tests prepare and inspect data with [DB.Pool] as a
// superuser.
//
// The first test starts a private server, in memory if possible, and the test binary stops it. If
// TASKER_TEST_DATABASE_URL names a server, that one is used, and failed tests leave their databases
// behind and print the URLs. A server that cannot be reached fails the tests instead of skipping
// them.
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

// patience is the timeout of one operation. It suffices for a busy machine.
const patience = time.Minute

// startPatience is the timeout for starting the server, which may include a download of PostgreSQL.
const startPatience = 5 * time.Minute

// Roles of the test databases. They belong to the whole server, so they differ from those of an
// installation.
const (
	RolePrefix  = "tasker_test"
	MigrateRole = RolePrefix + "_migrate"
	ServerRole  = RolePrefix + "_server"
	ReaderRole  = RolePrefix + "_reader"
)

// DB is a migrated database that belongs to one test.
type DB struct {
	URL      string // for the server's role, with its password
	AdminURL string // for a superuser
	name     string
	clock    bool // has a [Clock]
}

// AdminURL converts the URL of a database for the server's role to a URL for a superuser.
func AdminURL(databaseURL string) string { return withRole(databaseURL, "") }

// As returns the URL of the database for a role.
func (db *DB) As(role string) string { return withRole(db.AdminURL, role) }

// New creates a database for the test and drops it afterwards. Call it before checking for leaked
// goroutines, because it may start the server.
func New(t testing.TB) *DB {
	t.Helper()
	s := sharedServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name := databaseName(t.Name())
	// file_copy takes half the time of wal_log, which is for large servers.
	if err := s.exec(ctx, "CREATE DATABASE "+quoteIdentifier(name)+" TEMPLATE "+quoteIdentifier(s.template)+" STRATEGY file_copy"); err != nil {
		t.Fatalf("make a database for the test: %v", err)
	}
	db := &DB{AdminURL: withDatabase(s.url, name), name: name}
	db.URL = db.As(ServerRole)
	t.Cleanup(func() { db.drop(t, s) })
	return db
}

// drop drops the database or logs its URL.
func (db *DB) drop(t testing.TB, s *testServer) {
	t.Helper()
	if t.Failed() && s.external {
		t.Logf("the test's database is kept: %s", db.AdminURL)
		return
	}
	if t.Failed() {
		t.Logf("the test's database is dropped with its server; name a server with %s to keep it", urlEnv)
	}
	// The context of the test has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := s.exec(ctx, "DROP DATABASE IF EXISTS "+quoteIdentifier(db.name)+" WITH (FORCE)"); err != nil {
		t.Errorf("drop the test's database: %v", err)
	}
}

// Pool connects to the database as a superuser and closes the pool after the test. Its sessions
// resemble those of a server: the search path is tasker, and times are in UTC.
func (db *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Admin(t, db.AdminURL)
}

// Admin is like [DB.Pool] for the database at a URL. All calls of one test return the same pool.
func Admin(t testing.TB, databaseURL string) *pgxpool.Pool {
	t.Helper()
	admins.Lock()
	defer admins.Unlock()
	databaseURL = withRole(databaseURL, "")
	key := adminPool{t.Name(), databaseURL}
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
	config.ConnConfig.RuntimeParams["tasker_test.follow"] = "on" // see follow.sql
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

// admins contains the pools of running tests.
var admins = struct {
	sync.Mutex
	pools map[adminPool]*pgxpool.Pool
}{pools: map[adminPool]*pgxpool.Pool{}}

type adminPool struct{ test, url string }

// Server returns the URL of the shared server, for a test that creates databases itself or starts a
// real program. Such a test must use unique names.
func Server(t testing.TB) string {
	t.Helper()
	return sharedServer(t).url
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// databaseName returns a unique name that contains the name of the test. It is short, because
// PostgreSQL truncates names to 63 bytes.
func databaseName(test string) string {
	test = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(test), "_"), "_")
	return fmt.Sprintf("t_%.40s_%s", test, strings.ToLower(rand.Text()[:10]))
}

func quoteIdentifier(name string) string { return pgx.Identifier{name}.Sanitize() }

// withDatabase returns the URL of another database on the same server.
func withDatabase(server, database string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err) // impossible: connect has parsed it
	}
	u.Path = "/" + database
	return u.String()
}

// withRole returns the URL for sessions that assume a role, or for a superuser if role is empty.
func withRole(database, role string) string {
	u, err := url.Parse(database)
	if err != nil {
		panic(err) // impossible: connect has parsed it
	}
	q := u.Query()
	if q.Del("options"); role != "" {
		q.Set("options", "-crole="+role) // psql supports this form, and it needs no encoded space
	}
	u.RawQuery = q.Encode()
	return u.String()
}
