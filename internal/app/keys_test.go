package app_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// effects has a test for each key of the configuration. It gives the key another
// value than its default, starts a server, and sees what the key does there.
var effects = func() map[string]func(*keyTest) {
	all := map[string]func(*keyTest){}
	for _, part := range []map[string]func(*keyTest){serverEffects, tlsEffects, accessEffects, providerEffects, queueEffects, sweepEffects, emissionEffects, messageEffects, limitEffects, breakerEffects} {
		maps.Copy(all, part)
	}
	return all
}()

// A key that never reaches what it configures is worse than one that does not exist:
// its author believes that it works.
func TestEveryKeyHasItsEffectInAServer(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, key := range config.Keys() {
		keys = append(keys, key.Name)
		see := effects[key.Name]
		if see == nil {
			t.Errorf("no test sees the effect of %s; add a row to the effects", key.Name)
			continue
		}
		t.Run(key.Name, func(t *testing.T) {
			t.Parallel()
			k := &keyTest{T: t, key: key, database: pgtest.New(t)}
			k.options = options(k.database.URL)
			see(k)
			if !k.isSet {
				t.Errorf("the test of %s does not set it", key.Name)
			}
		})
	}
	for name := range effects {
		if !slices.Contains(keys, name) {
			t.Errorf("%s is tested, and missing key", name)
		}
	}
}

// A keyTest sees the effect of one key.
type keyTest struct {
	*testing.T
	key      config.Key
	database *pgtest.DB
	options  app.Options
	isSet    bool
	context  []byte // of the tasks; optional
	blocked  string // the table that requests wait for

	pool  *pgxpool.Pool
	db    *postgres.DB
	tasks *engine.Engine
}

// set gives the key its value, which must not be the default.
func (k *keyTest) set(value string) {
	k.Helper()
	if value == k.key.Default {
		k.Fatalf("%s is the default of %s: no effect could be seen", value, k.key.Name)
	}
	k.isSet = true
	k.also(k.key.Name, value)
}

// also sets another key, which the effect needs.
func (k *keyTest) also(name, value string) {
	k.Helper()
	k.must(k.options.Config.Set(name, value))
}

func (k *keyTest) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (k *keyTest) start() *server {
	k.Helper()
	return start(k.T, k.options)
}

// open prepares for statements and tasks of the test itself, beside the server.
func (k *keyTest) open() {
	k.Helper()
	if k.db != nil {
		return
	}
	k.pool = k.database.Pool(k.T)
	db, err := postgres.Open(k.Context(), k.database.URL, postgres.Options{ApplicationName: "test"})
	k.must(err)
	k.Cleanup(db.Close)
	k.db, k.tasks = db, engine.New(db, engine.Options{})
}

func (k *keyTest) exec(sql string, args ...any) {
	k.Helper()
	k.open()
	_, err := k.pool.Exec(k.Context(), sql, args...)
	k.must(err)
}

// one returns the one value that a query gives, as text.
func (k *keyTest) one(sql string, args ...any) (text string) {
	k.Helper()
	k.open()
	k.must(k.pool.QueryRow(k.Context(), `SELECT coalesce((`+sql+`)::text, 'null')`, args...).Scan(&text))
	return text
}

// expect fails unless a query gives what is wanted.
func (k *keyTest) expect(want, sql string, args ...any) {
	k.Helper()
	if got := k.one(sql, args...); got != want {
		k.Errorf("%s gives %s, want %s", sql, got, want)
	}
}

// until waits until a query gives what is wanted.
func (k *keyTest) until(want, sql string, args ...any) {
	k.Helper()
	await(k.T, sql+" to give "+want, func() bool { return k.one(sql, args...) == want })
}

// create makes tasks of one step, in the namespace n.
func (k *keyTest) create(count int) []tasker.ID {
	k.Helper()
	k.open()
	_, _, err := k.tasks.RegisterTemplate(k.Context(), tasker.Template{
		Namespace: "n", Name: "greet", Version: "1.0.0",
		Steps: []tasker.StepTemplate{{Name: "one", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "h"}, Retry: tasker.DefaultRetry()}},
	}, "")
	k.must(err)
	list := make([]tasker.NewTask, count)
	for i := range list {
		list[i] = tasker.NewTask{Namespace: "n", Name: "greet", Context: []byte(`{"colour": "crimson", "mail": "a@example.com"}`)}
		if k.context != nil {
			list[i].Context = k.context
		}
	}
	created, err := k.tasks.CreateTasks(k.Context(), list)
	k.must(err)
	ids := make([]tasker.ID, count)
	for i, c := range created {
		ids[i] = c.TaskUUID
	}
	return ids
}

// age makes it so that all tasks have been in their state for an hour.
func (k *keyTest) age() {
	k.Helper()
	k.exec(`UPDATE tasker.tasks SET state_since = state_since - interval '1 hour', warn_at = warn_at - interval '1 hour',
		stale_at = stale_at - interval '1 hour', created_at = created_at - interval '1 hour'`)
}

// expire makes it so that the steps in the queue have waited too long. The message
// broker does not know.
func (k *keyTest) expire() {
	k.Helper()
	k.exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() WHERE state = 'enqueued'`)
}

// An answer is what the server says to a request.
type answer struct {
	status int
	text   string
	header http.Header
}

// ask sends a request to the server; host is its Host, if that is not the server's.
func (k *keyTest) ask(s *server, method, path, body, host string) answer {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	k.must(err)
	r.Header.Set("Content-Type", "application/json")
	r.Host = host
	if body != "" {
		// The body is sent when the server asks for it: a client that is held up while it
		// sends one that is refused finds the connection closed.
		r.Header.Set("Expect", "100-continue")
	}
	transport := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: patience}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
	k.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	k.must(err)
	return answer{resp.StatusCode, string(text), resp.Header}
}

// expectAnswer fails unless the server answers a request with the status.
func (k *keyTest) expectAnswer(s *server, method, path, body string, status int) answer {
	k.Helper()
	a := k.ask(s, method, path, body, "")
	if a.status != status {
		k.Errorf("%s %s: %d %s, want %d", method, path, a.status, a.text, status)
	}
	return a
}

// soon is less than the default of what is waited for, and enough for a busy machine.
const soon = 15 * time.Second
