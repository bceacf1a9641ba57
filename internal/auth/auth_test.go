package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A bench is an authenticator on a database of its own.
type bench struct {
	*enginetest.Harness
	auth *auth.Authenticator
}

func newBench(t *testing.T) *bench {
	t.Helper()
	h := enginetest.New(t)
	return &bench{h, auth.New(auth.Options{DB: h.DB, SessionLife: time.Hour, SessionIdle: 10 * time.Minute})}
}

// key makes a key and returns it with its token.
func (b *bench) key(name string, grants ...string) (access.Key, string) {
	b.Helper()
	k, token, err := auth.CreateKey(b.Context(), b.DB, auth.NewKey{Name: name, Grants: grants, Actor: "test"})
	b.Must(err)
	return k, token
}

func (b *bench) refused(token string) {
	b.Helper()
	if c, err := b.auth.AuthenticateToken(b.Context(), token); tasker.CodeOf(err) != tasker.Unauthorized {
		b.Errorf("%.14s is %+v, %v", token, c, err)
	}
}

func (b *bench) known(token, subject string) *auth.Caller {
	b.Helper()
	c, err := b.auth.AuthenticateToken(b.Context(), token)
	b.Must(err)
	if c.Subject != subject {
		b.Errorf("%.14s is %s, want %s", token, c.Subject, subject)
	}
	return c
}

func TestTokensOfKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k, token := b.key("deploy", "operator@shop")
	c := b.known(token, "key:deploy")
	if !c.HasPermission(access.OperateSteps, "shop") || c.HasPermission(access.OperateSteps, "attic") || c.IsSession() {
		t.Errorf("it may %+v", c.Identity)
	}
	other := access.NewToken()
	b.refused(other.Text)
	b.refused(token[:15] + other.Text[15:]) // its prefix with another secret
	b.refused("")
	b.refused("tsk_")
	b.refused(strings.Repeat("x", 1<<20))
	// The token is stored nowhere.
	for _, table := range []string{"api_keys", "api_key_secrets", "audit_events"} {
		if n := b.Count(`SELECT count(*) FROM `+pgx.Identifier{"tasker", table}.Sanitize()+` t WHERE t::text LIKE '%' || $1 || '%'`, token[15:]); n > 0 {
			t.Errorf("%s has the token", table)
		}
	}
	if _, _, err := auth.CreateKey(t.Context(), b.DB, auth.NewKey{Name: "deploy", Grants: []string{"viewer@*"}}); tasker.CodeOf(err) != tasker.Conflict {
		t.Errorf("a second key of the name: %v", err)
	}
	for _, n := range []auth.NewKey{{Name: "a b", Grants: []string{"viewer@*"}}, {Name: "none"}, {Name: "root", Grants: []string{"root@*"}}} {
		if _, _, err := auth.CreateKey(t.Context(), b.DB, n); tasker.CodeOf(err) != tasker.Invalid {
			t.Errorf("%+v: %v", n, err)
		}
	}
	// A revoked key leaves its name free, and stays as it was.
	_, err := b.DB.RevokeKey(t.Context(), k.UUID, "test")
	b.Must(err)
	b.key("deploy", "viewer@*")
	list, more, err := b.DB.Keys(t.Context(), postgres.KeyFilter{Search: "deploy", Revoked: true, Limit: 10})
	if err != nil || more || len(list) != 2 {
		t.Errorf("keys of the name: %+v, %v, %v", list, more, err)
	}
	list, _, err = b.DB.Keys(t.Context(), postgres.KeyFilter{Search: k.Prefixes[0], Revoked: true, Limit: 10})
	if err != nil || len(list) != 1 || list[0].UUID != k.UUID || list[0].RevokedBy == nil {
		t.Errorf("by its prefix: %+v, %v", list, err)
	}
	if n := b.Count(`SELECT count(*) FROM tasker.audit_events WHERE action IN ('key.created', 'key.revoked') AND actor <> ''`); n != 3 {
		t.Errorf("%d lines in the audit log, want 3", n)
	}
}

// What takes access away holds after the next look, on every server, whoever does it.
func TestAccessThatIsTakenAway(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(b *bench, k access.Key){
		"revoked": func(b *bench, k access.Key) {
			_, err := b.DB.RevokeKey(b.Context(), k.UUID, "test")
			b.Must(err)
		},
		"expired by hand": func(b *bench, k access.Key) {
			b.Exec(`UPDATE tasker.api_keys SET expires_at = clock_timestamp() - interval '1 s' WHERE key_uuid = $1`, k.UUID)
		},
		"fewer grants by hand": func(b *bench, k access.Key) {
			b.Exec(`UPDATE tasker.api_keys SET grants = '{}' WHERE key_uuid = $1`, k.UUID)
		},
		"rotated without grace": func(b *bench, k access.Key) {
			b.Must(b.DB.RotateKey(b.Context(), k.UUID, access.NewToken(), 0, "test"))
		},
		"secret removed by hand": func(b *bench, k access.Key) {
			b.Exec(`DELETE FROM tasker.api_key_secrets WHERE key_uuid = $1`, k.UUID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			k, token := b.key("deploy", "operator@shop")
			_, other := b.key("other", "operator@shop")
			b.look()
			c, bystander := b.known(token, "key:deploy"), b.known(other, "key:other")
			ended := make(chan struct{})
			c.OnEnd(func() { close(ended) })
			defer bystander.OnEnd(func() { t.Error("another caller was ended as well") })()
			take(b, k)
			b.known(token, "key:deploy") // it is remembered
			b.look()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Error("what the caller does was not ended")
			}
			if again, err := b.auth.AuthenticateToken(t.Context(), token); err == nil &&
				again.HasPermission(access.OperateSteps, "shop") {
				t.Error("it may still operate steps")
			}
			if again := b.known(other, "key:other"); again != bystander {
				t.Error("another caller was forgotten")
			}
		})
	}
}

// Somebody who has revoked a key in psql and not committed keeps nobody from revoking
// another one. Both are noticed once they are committed, in whatever order.
func TestARevocationThatIsNotCommittedBlocksNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	slow, slowToken := b.key("slow", "viewer@shop")
	quick, quickToken := b.key("quick", "viewer@shop")
	b.known(slowToken, "key:slow")
	b.known(quickToken, "key:quick")
	b.auth.PollRevocations(t.Context())
	tx, err := b.Admin().Begin(t.Context())
	b.Must(err)
	_, err = tx.Exec(t.Context(), `UPDATE tasker.api_keys SET revoked_at = now(), revoked_by = 'psql' WHERE key_uuid = $1`, slow.UUID)
	b.Must(err)
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = b.DB.RevokeKey(limited, quick.UUID, "test")
	b.Must(err)
	b.auth.PollRevocations(t.Context())
	b.refused(quickToken)
	b.known(slowToken, "key:slow")
	b.Must(tx.Commit(t.Context()))
	b.auth.PollRevocations(t.Context()) // what was written first is seen last
	b.refused(slowToken)
}

// The changes of the last hour are kept, and a new one removes some of those before.
func TestAccessChangesAreRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k, token := b.key("deploy", "viewer@shop")
	b.Exec(`INSERT INTO tasker.access_changes (changed_at) SELECT now() - interval '2 h' FROM generate_series(1, 15)`)
	b.Exec(`INSERT INTO tasker.access_changes (changed_at) SELECT now() - interval '2 min' FROM generate_series(1, 3)`)
	b.known(token, "key:deploy")
	b.auth.PollRevocations(t.Context())
	_, err := b.DB.RevokeKey(t.Context(), k.UUID, "test")
	b.Must(err)
	if n := b.Count(`SELECT count(*) FROM tasker.access_changes`); n != 4 {
		t.Errorf("%d changes are kept, want those of the last hour, which are 4", n)
	}
	b.auth.PollRevocations(t.Context())
	b.refused(token)
}

// Strangers whose sign-ins fail, from however many addresses, write some lines a minute, and
// leave room for the refusals of those who are known.
func TestStrangersDoNotFillTheAuditLog(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	slow := 0 // of them, which are not recorded if they take two seconds
	for i := range 3 * auth.MaxRefusals {
		begun := time.Now()
		b.auth.AuditSignIn(t.Context(), fmt.Sprintf("192.0.2.%d", i))
		if time.Since(begun) > time.Second {
			slow++
		}
	}
	refusals := 0
	b.Eventually("a refusal of somebody who is known is recorded", func() bool {
		refusals++
		b.auth.AuditRefusal(t.Context(), "key:deploy", map[string]string{"route": "/v1/tasks"})
		return b.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'access.refused'`) > 0
	})
	if n := b.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'access.refused'`); n > refusals {
		t.Errorf("%d lines of %d refusals", n, refusals)
	}
	// A minute may have begun in between.
	if n := b.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'sign_in.refused'`); n < auth.MaxRefusals-slow || n > 2*auth.MaxRefusals {
		t.Errorf("%d lines of strangers, want %d", n, auth.MaxRefusals)
	}
}

// Of somebody who is read while they lose their access, nothing is remembered.
func TestReadWhileAccessIsTakenAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k, token := b.key("deploy", "viewer@*")
	b.auth.PollRevocations(t.Context())
	_, err := b.auth.TokenWhile(t.Context(), token, func() {
		_, err := b.DB.RevokeKey(t.Context(), k.UUID, "test")
		b.Must(err)
		b.auth.PollRevocations(t.Context())
	})
	b.Must(err)
	b.refused(token)
}

// Access that was just taken away is looked for anew, and not by a look that had asked before.
func TestOlderLookupIsNotShared(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k, token := b.key("deploy", "viewer@*")
	b.look()
	b.known(token, "key:deploy")
	looked := make(chan struct{})
	b.auth.LookWhile(func() {
		_, err := b.DB.RevokeKey(t.Context(), k.UUID, "test")
		b.Must(err)
		go func() {
			defer close(looked)
			b.look()
		}()
		select {
		case <-looked:
		case <-time.After(time.Minute):
			t.Error("the look waits for the one that had asked before")
		}
	})
	<-looked
	b.refused(token)
}

// Of two requests of somebody who is not remembered yet neither ends what the other does.
func TestLookedUpTwiceAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, token := b.key("deploy", "worker@shop")
	b.auth.PollRevocations(t.Context())
	var first *auth.Caller
	second, err := b.auth.TokenWhile(t.Context(), token, func() { first = b.known(token, "key:deploy") })
	b.Must(err)
	if second != first {
		t.Error("the second lookup took the place of the first")
	}
	if !first.OnEnd(func() {})() {
		t.Error("what the first one does was ended")
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k, first := b.key("deploy", "viewer@*")
	second := access.NewToken()
	b.Must(b.DB.RotateKey(t.Context(), k.UUID, second, time.Hour, "test"))
	b.auth.PollRevocations(t.Context())
	b.known(first, "key:deploy")
	b.known(second.Text, "key:deploy")
	third := access.NewToken()
	b.Must(b.DB.RotateKey(t.Context(), k.UUID, third, 2*time.Hour, "test"))
	// The first one's time is not made longer.
	if n := b.Count(`SELECT count(*) FROM tasker.api_key_secrets WHERE ends_at > clock_timestamp() + interval '61 min'`); n != 1 {
		t.Errorf("%d secrets are valid for longer than an hour, want the second", n)
	}
	b.Must(b.DB.RotateKey(t.Context(), k.UUID, access.NewToken(), 0, "test"))
	b.auth.PollRevocations(t.Context())
	for _, token := range []string{first, second.Text, third.Text} {
		b.refused(token)
	}
	b.WantCode(b.DB.RotateKey(t.Context(), tasker.NewID(), access.NewToken(), 0, "test"), tasker.NotFound)
	_, err := b.DB.RevokeKey(t.Context(), k.UUID, "test")
	b.Must(err)
	b.WantCode(b.DB.RotateKey(t.Context(), k.UUID, access.NewToken(), 0, "test"), tasker.Conflict, "create a new one")
	_, err = b.DB.RevokeKey(t.Context(), tasker.NewID(), "test")
	b.WantCode(err, tasker.NotFound)
}

// look looks for what has changed; what is remembered counts until the next look, however slow the machine is.
func (b *bench) look() {
	b.Helper()
	b.auth.PollRevocations(b.Context())
	b.auth.Age(-time.Hour)
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var token string
	tries := 0
	b.Eventually("a key is known while it is valid", func() bool { // a slow machine takes longer than the first ones are valid
		tries++
		life, name := time.Duration(tries)*300*time.Millisecond, fmt.Sprint("short", tries)
		var err error
		_, token, err = auth.CreateKey(t.Context(), b.DB, auth.NewKey{Name: name, Grants: []string{"viewer@*"}, ValidFor: &life})
		b.Must(err)
		c, err := b.auth.AuthenticateToken(t.Context(), token)
		return err == nil && c.Subject == "key:"+name
	})
	b.Eventually("the key has expired", func() bool { // without a look
		_, err := b.auth.AuthenticateToken(t.Context(), token)
		return tasker.CodeOf(err) == tasker.Unauthorized
	})
}

func TestSessions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k, token := b.key("alice", "operator@shop")
	secret, err := b.auth.SignIn(t.Context(), token, "192.0.2.1")
	b.Must(err)
	again, err := b.auth.SignIn(t.Context(), token, "192.0.2.1")
	b.Must(err)
	if secret == again {
		t.Error("two sessions have one secret")
	}
	c, err := b.auth.AuthenticateSession(t.Context(), secret)
	b.Must(err)
	if c.Subject != "key:alice" || !c.IsSession() || !c.HasPermission(access.OperateSteps, "shop") {
		t.Errorf("the session is of %+v", c.Identity)
	}
	b.refused(secret) // a session is no key, and a key no session
	for _, text := range []string{"", token, strings.Repeat("A", 32), secret + "A"} {
		if _, err := b.auth.AuthenticateSession(t.Context(), text); tasker.CodeOf(err) != tasker.Unauthorized {
			t.Errorf("%q is a session: %v", text, err)
		}
	}
	b.Must(b.auth.SignOut(t.Context(), secret))
	b.Must(b.auth.SignOut(t.Context(), secret))
	if _, err := b.auth.AuthenticateSession(t.Context(), secret); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("after signing out: %v", err)
	}
	if _, err = b.auth.AuthenticateSession(t.Context(), again); err != nil {
		t.Errorf("the other session: %v", err)
	}
	_, err = b.DB.RevokeKey(t.Context(), k.UUID, "test")
	b.Must(err)
	b.auth.PollRevocations(t.Context())
	if _, err := b.auth.AuthenticateSession(t.Context(), again); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("after its key was revoked: %v", err)
	}
	if _, err := b.auth.SignIn(t.Context(), token, "192.0.2.1"); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("a session of a revoked key: %v", err)
	}
	if n := b.Count(`SELECT count(*) FROM tasker.audit_events WHERE action IN ('session.created', 'session.ended') AND actor = 'key:alice'`); n != 3 {
		t.Errorf("%d lines in the audit log, want 3", n)
	}
}

func TestSessionsThatAreNotUsedEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, token := b.key("alice", "viewer@*")
	secret, err := b.auth.SignIn(t.Context(), token, "")
	b.Must(err)
	other := auth.New(auth.Options{DB: b.DB, SessionLife: time.Hour, SessionIdle: 10 * time.Minute}) // another server
	b.Exec(`UPDATE tasker.sessions SET seen_at = clock_timestamp() - interval '9 min'`)
	if _, err := other.AuthenticateSession(t.Context(), secret); err != nil {
		t.Errorf("after nine minutes: %v", err)
	}
	b.Exec(`UPDATE tasker.sessions SET seen_at = clock_timestamp() - interval '11 min'`)
	if _, err := b.auth.AuthenticateSession(t.Context(), secret); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("after eleven minutes: %v", err)
	}
	b.Exec(`UPDATE tasker.sessions SET seen_at = clock_timestamp(), ends_at = clock_timestamp() - interval '1 s'`)
	another := auth.New(auth.Options{DB: b.DB, SessionLife: time.Hour, SessionIdle: 10 * time.Minute}) // which remembers nothing
	if _, err := another.AuthenticateSession(t.Context(), secret); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("after its life: %v", err)
	}
}

// An administrator ends a session, or all of somebody who has no key here that could be revoked.
func TestSessionsThatAnAdministratorEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := auth.New(auth.Options{DB: b.DB, SessionLife: time.Hour, SessionIdle: 10 * time.Minute}) // another server
	signIn := func(name string) (secret string) {
		t.Helper()
		_, token := b.key(name, "viewer@*")
		secret, err := b.auth.SignIn(t.Context(), token, "")
		b.Must(err)
		return secret
	}
	open := func(a *auth.Authenticator, secret string) bool {
		t.Helper()
		_, err := a.AuthenticateSession(t.Context(), secret)
		if err != nil && tasker.CodeOf(err) != tasker.Unauthorized {
			t.Error(err)
		}
		return err == nil
	}
	ann, bob := signIn("ann"), signIn("bob")
	b.Exec(`UPDATE tasker.sessions SET subject = 'user:bob', key_uuid = NULL, groups = '{ops}' WHERE subject = 'key:bob'`)
	caller, err := other.AuthenticateSession(t.Context(), bob)
	b.Must(err)
	var ended atomic.Bool
	defer caller.OnEnd(func() { ended.Store(true) })()
	list, more, err := b.DB.OpenSessions(t.Context(), postgres.SessionFilter{Subject: "user:bob", Idle: other.Idle(), Limit: 10})
	b.Must(err)
	if len(list) != 1 || more || list[0].KeyUUID != nil || len(list[0].Groups) != 1 || time.Until(list[0].EndsAt) > 10*time.Minute {
		t.Errorf("the sessions of one are %+v", list)
	}
	n, err := b.DB.EndSessions(t.Context(), tasker.ID{}, "user:bob", "key:admin")
	b.Must(err)
	other.PollRevocations(t.Context())
	if n != 1 || open(other, bob) || !open(other, ann) {
		t.Errorf("%d sessions ended", n)
	}
	b.Eventually("what the session had open ends", ended.Load)
	list, more, err = b.DB.OpenSessions(t.Context(), postgres.SessionFilter{Idle: other.Idle(), Limit: 10})
	b.Must(err)
	if len(list) != 1 || more || list[0].Subject != "key:ann" {
		t.Errorf("the open sessions are %+v", list)
	}
	n, err = b.DB.EndSessions(t.Context(), list[0].UUID, "", "key:admin")
	b.Must(err)
	again, err := b.DB.EndSessions(t.Context(), list[0].UUID, "", "key:admin")
	b.Must(err)
	b.auth.PollRevocations(t.Context())
	if n != 1 || again != 0 || open(b.auth, ann) {
		t.Errorf("%d sessions ended, and %d the second time", n, again)
	}
	if n := b.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'session.ended' AND actor = 'key:admin' AND data ->> 'of' IN ('user:bob', 'key:ann')`); n != 2 {
		t.Errorf("%d lines in the audit log, want 2", n)
	}
}

// Use is noted now and then, and a session that is used lasts.
func TestUseIsNoted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k, token := b.key("deploy", "viewer@*")
	secret, err := b.auth.SignIn(t.Context(), token, "")
	b.Must(err)
	b.Exec(`UPDATE tasker.sessions SET seen_at = clock_timestamp() - interval '9 min'`)
	c, err := b.auth.AuthenticateSession(t.Context(), secret)
	b.Must(err)
	b.Must(b.auth.Note(t.Context()))
	if n := b.Count(`SELECT count(*) FROM tasker.sessions WHERE seen_at > clock_timestamp() - interval '1 min'`); n != 1 {
		t.Error("the use of the session was not noted")
	}
	if n := b.Count(`SELECT count(*) FROM tasker.api_keys WHERE key_uuid = $1 AND last_used_at > clock_timestamp() - interval '1 min'`, k.UUID); n != 1 {
		t.Error("the use of the key was not noted")
	}
	if left := auth.Left(c); left < 9*time.Minute {
		t.Errorf("how long the session lasts was not read again: it ends in %v", left)
	}
	ended := make(chan struct{})
	defer c.OnEnd(func() { close(ended) })()
	b.Must(b.auth.Note(t.Context()))
	b.key("other", "viewer@*")
	b.Exec(`UPDATE tasker.api_keys SET revoked_at = now(), revoked_by = 'test' WHERE name = 'other'`) // has all asked for anew
	b.auth.PollRevocations(t.Context())
	if again, err := b.auth.AuthenticateSession(t.Context(), secret); err != nil || again != c {
		t.Errorf("what the browser has open ends although the session goes on: %v", err)
	}
	select {
	case <-ended:
		t.Error("the session has ended for what the browser has open")
	default:
	}
}

// What a page asks for by itself is answered, and is no use of the session.
func TestARefreshIsNoUse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, token := b.key("alice", "viewer@*")
	secret, err := b.auth.SignIn(t.Context(), token, "")
	b.Must(err)
	other := auth.New(auth.Options{DB: b.DB, SessionLife: time.Hour, SessionIdle: 10 * time.Minute}) // another server
	b.Exec(`UPDATE tasker.sessions SET seen_at = clock_timestamp() - interval '9 min'`)
	for range 2 { // read, and remembered
		if _, err := other.RefreshSession(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	b.Must(other.Note(t.Context()))
	const noted = `SELECT count(*) FROM tasker.sessions WHERE seen_at > clock_timestamp() - interval '1 min'`
	if n := b.Count(noted); n != 0 {
		t.Error("a refresh was noted as a use")
	}
	_, err = other.AuthenticateSession(t.Context(), secret)
	b.Must(err)
	_, err = other.RefreshSession(t.Context(), secret)
	b.Must(err)
	b.Must(other.Note(t.Context()))
	if n := b.Count(noted); n != 1 {
		t.Error("a use before a refresh was not noted")
	}
}

// A known caller costs no query.
func TestCallersAreCached(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	tracer := &counter{}
	h := enginetest.At(t, d.URL, postgres.Options{Tracer: tracer})
	b := &bench{h, auth.New(auth.Options{DB: h.DB})}
	_, token := b.key("deploy", "worker@shop")
	b.look()
	b.known(token, "key:deploy")
	before := tracer.n
	for range 1000 {
		b.known(token, "key:deploy")
	}
	if n := tracer.n - before; n > 0 {
		t.Errorf("%d queries for 1000 requests of a known caller", n)
	}
}

// Somebody who is not known costs a query now and then, however often they ask.
func TestUnknownTokensAreCached(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	tracer := &counter{}
	h := enginetest.At(t, d.URL, postgres.Options{Tracer: tracer})
	b := &bench{h, auth.New(auth.Options{DB: h.DB})}
	b.refused(access.NewToken().Text) // a connection is made
	token := access.NewToken().Text
	begun, before := time.Now(), tracer.n
	for range 1000 {
		b.refused(token)
	}
	if n, most := tracer.n-before, 1+int(time.Since(begun)/(2*time.Second)); n > most {
		t.Errorf("%d queries for one token, want %d at most", n, most)
	}
}

// Wrong credentials from an address cost it the budget for lookups, and the valid keys and
// sessions behind the same address still work, also on a server that has just started.
func TestWrongCredentialsDoNotLockOutValidOnes(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	tracer := &counter{}
	h := enginetest.At(t, d.URL, postgres.Options{Tracer: tracer})
	now := time.Unix(0, 0)
	b := &bench{h, auth.New(auth.Options{
		DB: h.DB, SessionLife: time.Hour, SessionIdle: time.Hour, Strangers: overload.NewRate(20, func() time.Time { return now }),
	})}
	const valid = 19
	tokens, secrets := make([]string, valid), make([]string, valid)
	for i := range valid {
		_, tokens[i] = b.key(fmt.Sprint("key", i), "worker@shop")
		var err error
		secrets[i], err = b.auth.SignIn(t.Context(), tokens[i], "")
		b.Must(err)
	}
	restarted := auth.New(b.auth.Options)
	b.auth = restarted
	wrong := func() error {
		now = now.Add(time.Second / 82)
		_, err := b.bearer(access.NewToken().Text)
		return err
	}
	from := auth.WithAddress(t.Context(), netip.MustParseAddr("192.0.2.1"))
	for range 100 {
		if err := wrong(); err == nil {
			t.Fatal("a wrong key is accepted")
		}
	}
	for i := range valid {
		for range 12 {
			if err := wrong(); err == nil {
				t.Fatal("a wrong key is accepted")
			}
		}
		if c, err := b.bearer(tokens[i]); err != nil || c.Subject != fmt.Sprint("key:key", i) {
			t.Errorf("valid key %d: %v", i, err)
		}
		if c, err := b.auth.AuthenticateSession(from, secrets[i]); err != nil || c.Subject != fmt.Sprint("key:key", i) {
			t.Errorf("session %d: %v", i, err)
		}
	}
	_, created := b.key("created", "worker@shop")
	b.auth.AgeValid(auth.RevocationInterval)
	if _, err := b.bearer(created); err != nil {
		t.Errorf("a key that was created %s ago: %v", auth.RevocationInterval, err)
	}
	// While the budget is spent, wrong keys share one query each RevocationInterval.
	for b.auth.Strangers.TakeAddress(netip.MustParseAddr("192.0.2.1")) == nil {
	}
	begun, before := time.Now(), tracer.n
	for range 500 {
		_, err := b.bearer(access.NewToken().Text)
		if _, refused := errors.AsType[overload.Refusal](err); !refused {
			t.Fatalf("a wrong key beyond the rate: %v", err)
		}
	}
	if n, most := tracer.n-before, 1+int(time.Since(begun)/auth.RevocationInterval); n > most {
		t.Errorf("%d queries for 500 wrong keys, want at most %d", n, most)
	}
}

// A counter counts statements.
type counter struct{ n int }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n++
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Without its database a server refuses nobody for good, and believes nobody for long.
func TestWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, token := b.key("deploy", "viewer@*")
	b.look()
	b.known(token, "key:deploy")
	_, stranger := b.key("stranger", "viewer@*")
	b.DB.Close()
	b.known(token, "key:deploy")
	if _, err := b.auth.AuthenticateToken(t.Context(), stranger); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("somebody who is not remembered: %v", err)
	}
	b.auth.Age(2 * time.Hour)
	if _, err := b.auth.AuthenticateToken(t.Context(), token); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("somebody who was looked for long ago: %v", err)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, token := b.key("deploy", "viewer@*")
	for header, want := range map[string]tasker.Code{
		"Bearer " + token: "", "bearer  " + token: "", token: tasker.Unauthorized, "Basic " + token: tasker.Unauthorized,
		"Bearer": tasker.Unauthorized, "Bearer " + token + "A": tasker.Unauthorized,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		_, err := b.auth.AuthenticateRequest(r)
		if tasker.CodeOf(err) != want {
			t.Errorf("%q: %v, want %s", header, err, want)
		}
		if err != nil && strings.Contains(err.Error(), token) {
			t.Errorf("the error tells the token: %v", err)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if _, err := b.auth.AuthenticateRequest(r); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("without a header: %v", err)
	}
	r.Header["Authorization"] = []string{"Bearer " + token, "Bearer " + token}
	if _, err := b.auth.AuthenticateRequest(r); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("with two headers: %v", err)
	}
	if c, err := (*auth.Authenticator)(nil).AuthenticateRequest(r); err != nil || c.Subject != "" || !c.Scope(access.Administer).IncludesAll() {
		t.Errorf("where nobody signs in: %+v, %v", c, err)
	}
}

func TestTheFirstKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token, err := auth.BootstrapKey(t.Context(), b.DB, "root")
	b.Must(err)
	if c := b.known(token, "key:root"); !c.Scope(access.Administer).IncludesAll() {
		t.Error("the first key is no administrator's")
	}
	_, err = auth.BootstrapKey(t.Context(), b.DB, "second")
	b.WantCode(err, tasker.Conflict, "tasker-ctl key create")
	list, _, err := b.DB.Keys(t.Context(), postgres.KeyFilter{Limit: 10})
	if err != nil || len(list) != 1 {
		t.Errorf("keys: %+v, %v", list, err)
	}
	_, err = b.DB.RevokeKey(t.Context(), list[0].UUID, "root")
	b.Must(err)
	_, err = auth.BootstrapKey(t.Context(), b.DB, "third")
	b.WantCode(err, tasker.Conflict)
}

// BenchmarkToken is what a request of a known caller costs.
func BenchmarkToken(b *testing.B) {
	db := enginetest.Open(b, pgtest.New(b).URL, postgres.Options{})
	_, token, err := auth.CreateKey(b.Context(), db, auth.NewKey{Name: "bench", Grants: []string{"worker@*"}})
	if err != nil {
		b.Fatal(err)
	}
	a := auth.New(auth.Options{DB: db})
	a.PollRevocations(b.Context())
	go func() { _ = a.Run(b.Context()) }()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	for b.Loop() {
		if _, err := a.AuthenticateRequest(r); err != nil {
			b.Fatal(err)
		}
	}
}
