package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/overload"
)

func needs(p access.Permission) access.Rule { return access.Rule{Needs: p} }

var (
	anyone = access.Rule{Anyone: true}
	public = access.Rule{Public: true}
)

// parameters are those of paths; name is of a file that everybody may have, and whoever
// serves a namespace of a path asks [access.Identity.MayUse].
var parameters = access.Parameters{
	Resources: map[string]access.Kind{
		"task": access.TaskKind, "investigation": access.InvestigationKind, "case": access.CaseKind, "operation": access.OperationKind, "hold": access.HoldKind, "schedule": access.ScheduleKind, "worker": access.WorkerKind, "event": access.EventKind,
	},
	Within: []string{"step", "name", "namespace", "handler", "template", "version", "token"},
}

// check panics for a route that does not say who may use it: no server starts with one.
func (rt *route) check() {
	rule, err := rt.rule.For(rt.path, parameters)
	if err != nil {
		panic(fmt.Sprintf("%s %v", rt.method, err))
	}
	rt.rule = rule
}

// errSignIn is the answer to requests of browsers that have not signed in.
var errSignIn = tasker.Errorf(tasker.Unauthorized, "you are not signed in, or your session has ended: sign in, and open the page again")

// authenticate finds out who sends a request; nobody without a session. Where callers are not
// asked who they are, everybody is [access.Local].
func (s *server) authenticate(req *request) error {
	secret := req.cookie(sessionCookie)
	if s.Auth == nil || secret == "" {
		return nil
	}
	find := s.Auth.Session
	if req.refreshes() {
		find = s.Auth.Refresh
	}
	caller, err := find(auth.From(req.Context(), req.address()), secret)
	if err != nil {
		if tasker.CodeOf(err) == tasker.Unauthorized {
			if tooMany := s.Auth.Strangers.Address(req.address()); tooMany != nil {
				return tooMany
			}
			return nil
		}
		return err
	}
	req.caller, req.actor, req.whenEnded = caller.Identity, caller.Actor(""), caller.WhenEnded
	return nil
}

// authorize refuses what the caller may not do, and has that recorded. The context of the
// request has then what the caller may see.
func (s *server) authorize(req *request, rt *route) error {
	if err := s.authenticate(req); err != nil && !rt.rule.Public {
		return err
	}
	switch {
	case rt.rule.Public:
		return nil
	case req.caller == nil:
		return errSignIn
	case rt.rule.Anyone:
		return nil
	}
	err := s.permit(req, rt)
	if tasker.CodeOf(err) == tasker.Forbidden {
		s.auditForbidden(req, rt)
	}
	return err
}

// permit refuses what the caller has no permission for. A form is read before the request takes its
// turn, so that nobody takes one by sending slowly.
func (s *server) permit(req *request, rt *route) error {
	if err := rt.rule.Refusal(req.caller); err != nil {
		return err
	}
	if err := s.Gate.Admit(rt.class(), req.subject()); err != nil {
		return err
	}
	if err := req.readForm(rt); err != nil {
		return err
	}
	leave, err := s.Gate.Wait(req.Context(), rt.class(), req.subject())
	if err != nil {
		return err
	}
	req.leave = leave
	ctx, err := rt.rule.Admit(req.Context(), req.caller, s.DB.NamespacesOf, req.id)
	if err != nil {
		return err
	}
	req.Request, req.admitted = req.WithContext(ctx), true
	return nil
}

// class returns the requests that those of a route are limited with.
func (rt *route) class() overload.Class {
	switch {
	case rt.streams:
		return overload.Streams
	case rt.method == http.MethodPost:
		return overload.Operations
	default:
		return overload.Reads
	}
}

// auditForbidden records that somebody who has signed in may not do what they asked for.
func (s *server) auditForbidden(req *request, rt *route) {
	data := map[string]string{"method": rt.method, "route": Root + rt.path, "from": req.address().String()}
	if _, id := rt.rule.Names(); id != "" {
		data[id] = req.PathValue(id)
	}
	s.Auth.AuditRefusal(req.Context(), req.subject(), data)
}

// within returns a request for what a page shows beside its own subject, which needs
// another permission.
func (req *request) within(needs access.Permission) *request {
	other := *req
	other.Request = req.WithContext(access.Within(req.Context(), req.caller, needs))
	return &other
}

// sees reports whether the caller may see something at all that needs a permission.
func (req *request) sees(needs access.Permission) bool {
	return req.caller != nil && !req.caller.Scope(needs).Empty()
}

// readsPayloads reports whether the caller may read payloads of a namespace.
func (req *request) readsPayloads(namespace string) bool {
	return req.caller != nil && req.caller.May(access.ReadPayloads, namespace)
}

// showsAction reports whether a page shows an action that needs a permission in namespaces.
func (s *server) showsAction(req *request, needs access.Permission, namespaces ...string) bool {
	if s.ReadOnly || req.caller == nil || len(namespaces) == 0 {
		return false
	}
	return !slices.ContainsFunc(namespaces, func(n string) bool { return !req.caller.May(needs, n) })
}

// refreshes reports whether a page asks by itself for what is new, which nobody has to be
// there for. Its script says so with a header, browsers do where they use HTTPS, and a
// stream says what it accepts.
func (req *request) refreshes() bool {
	mode := req.Header.Get("Sec-Fetch-Mode")
	return req.Method == http.MethodGet && (req.Header.Get(refreshHeader) != "" || req.Header.Get("Accept") == "text/event-stream" || mode != "" && mode != "navigate")
}

const refreshHeader = "Tasker-Refresh"

// asksToSignIn reports whether a refusal is answered by the page to sign in: only to
// somebody who opens a page. A script or a form could not go on from there.
func (req *request) asksToSignIn() bool {
	return (req.Method == http.MethodGet || req.Method == http.MethodHead) && !req.refreshes()
}

const (
	signInPath  = "/sign-in"
	signOutPath = "/sign-out"

	// maxSignIn bounds the form to sign in, which also strangers send.
	maxSignIn = 16 << 10
)

// A signInPage asks for an API key, or leads to the identity provider.
type signInPage struct {
	Back     string // the page to go on to
	Provider bool   // people come from one
	Ended    bool   // the browser had a session
	Problem  string
}

func (p signInPage) view(status int) *view {
	return &view{page: "sign-in", title: "Sign in", status: status, body: p}
}

// signInTo returns the address of the page to sign in, from which a browser comes back.
func signInTo(back string) string {
	return Root + signInPath + "?" + url.Values{"back": {back}}.Encode()
}

// showSignIn shows the form to sign in to whoever has not.
func (s *server) showSignIn(req *request) (*view, error) {
	back := req.backTo()
	if req.caller != nil {
		return &view{next: back}, nil
	}
	return signInPage{Back: back, Provider: s.Auth.HasProvider(), Ended: req.cookie(sessionCookie) != ""}.view(http.StatusOK), nil
}

// signIn begins a session of the browser. Failures are counted by address. A valid key is accepted
// from every address.
func (s *server) signIn(req *request) (*view, error) {
	p := signInPage{Back: req.backTo(), Provider: s.Auth.HasProvider()}
	if s.Auth == nil {
		return &view{next: p.Back}, nil
	}
	from := req.address()
	secret, err := s.Auth.SignIn(auth.From(req.Context(), from), strings.TrimSpace(req.PostFormValue("key")), from.String())
	switch {
	case err == nil:
		return s.signedIn(req, secret, p.Back)
	case tasker.CodeOf(err) != tasker.Unauthorized:
		return nil, err
	}
	_ = s.Auth.Strangers.Address(from) // counts the wrong key
	if wait, ok := s.failures.take(from, time.Now()); !ok {
		req.retryAfter(wait)
		p.Problem = "Signing in has failed too often from your address: try again in a minute."
		return p.view(http.StatusTooManyRequests), nil
	}
	s.auditRefusal(req.Context(), from)
	p.Problem = messageOf(err) + "."
	return p.view(http.StatusUnauthorized), nil
}

// signedIn gives the browser a session that has begun, in place of the one before, and
// sends it on.
func (s *server) signedIn(req *request, secret, back string) (*view, error) {
	if before := req.cookie(sessionCookie); before != "" {
		if err := s.Auth.SignOut(req.Context(), before); err != nil {
			return nil, err
		}
	}
	req.newToken()
	req.setCookie(sessionCookie, secret, s.Auth.SessionLife)
	return &view{next: back}, nil
}

const (
	providerPath = signInPath + "/provider"
	// signInCookie has the secret of a sign-in that is at the provider. Without it nobody
	// can finish that, so no other site can sign a browser in as somebody else.
	signInCookie = "tasker_sign_in"
	signInTime   = 10 * time.Minute
)

// goToProvider sends the browser to the identity provider.
func (s *server) goToProvider(req *request) (*view, error) {
	if !s.Auth.HasProvider() {
		return nil, tasker.Errorf(tasker.NotFound, "people sign in with an API key here")
	}
	// Whoever begins is a stranger, and each beginning is stored, in the place of another
	// one when there are very many.
	from := req.address()
	if wait, ok := s.begun.take(from, time.Now()); !ok {
		return tooManySignIns(req, wait, req.backTo()), nil
	}
	leave, err := s.Gate.Acquire(req.Context(), overload.Reads, "sign-in:"+overload.Network(from).String())
	if err != nil {
		return nil, err
	}
	req.leave = leave
	address, secret, err := s.Auth.StartSignIn(req.Context(), req.backTo())
	if err != nil {
		return nil, err
	}
	req.setCookie(signInCookie, secret, signInTime)
	return &view{next: address}, nil
}

// retryAfter tells the client when it may come again, in whole seconds.
func (req *request) retryAfter(wait time.Duration) {
	req.w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
}

// tooManySignIns tells a browser to wait.
func tooManySignIns(req *request, wait time.Duration, back string) *view {
	req.retryAfter(wait)
	p := signInPage{Back: back, Provider: true, Problem: "Too many sign-ins were begun from your address: try again in a minute."}
	return p.view(http.StatusTooManyRequests)
}

// fromProvider begins the session of a browser that comes back from the provider.
func (s *server) fromProvider(req *request) (*view, error) {
	if !s.Auth.HasProvider() {
		return nil, tasker.Errorf(tasker.NotFound, "people sign in with an API key here")
	}
	// Unknown callers may come here too. Only failures are counted: the provider may be slow.
	from := req.address()
	kept := req.cookie(signInCookie)
	req.setCookie(signInCookie, "", -time.Second)
	session, back, err := s.Auth.FinishSignIn(auth.From(req.Context(), from), kept, req.URL.Query(), from.String())
	switch tasker.CodeOf(err) {
	case "":
		return s.signedIn(req, session, back)
	case tasker.Unauthorized, tasker.Forbidden:
		_ = s.Auth.Strangers.Address(from) // counts the failure
		if wait, ok := s.returned.take(from, time.Now()); !ok {
			return tooManySignIns(req, wait, Root+"/"), nil
		}
		if _, ok := s.failures.take(from, time.Now()); ok { // more of them are not recorded
			s.auditRefusal(req.Context(), from)
		}
		s.Log.InfoContext(req.Context(), "a sign-in at the identity provider failed", "from", from, "err", err)
		p := signInPage{Back: Root + "/", Provider: true, Problem: messageOf(err) + "."}
		return p.view(apiv1.Status(tasker.CodeOf(err))), nil
	default:
		return nil, err
	}
}

// auditRefusal records that somebody could not sign in.
func (s *server) auditRefusal(ctx context.Context, from netip.Addr) {
	s.Auth.AuditSignIn(ctx, from.String())
}

// signOut ends the session of the browser.
func (s *server) signOut(req *request) (*view, error) {
	if s.Auth == nil {
		return &view{next: Root + "/"}, nil
	}
	if err := s.Auth.SignOut(req.Context(), req.cookie(sessionCookie)); err != nil {
		return nil, err
	}
	req.setCookie(sessionCookie, "", -time.Second)
	return &view{next: Root + signInPath, note: "You have signed out."}, nil
}

// address returns where a request comes from.
func (req *request) address() netip.Addr { return auth.AddressOf(req.Request) }

const (
	maxFailures  = 10 // to sign in, a minute from one address
	maxSignIns   = 60 // begun at the provider, or failed after it, a minute from one address, which may be that of an office
	maxAddresses = 10_000
)

// failures counts failed attempts to sign in, or others, by address and for a minute at a time.
// When there are too many addresses, others wait as well.
type failures struct {
	most int // a minute from one address; 0 means maxFailures

	mu    sync.Mutex
	began time.Time
	of    map[netip.Prefix]int
}

// take counts a failure, or returns how long to wait if there were too many.
func (f *failures) take(from netip.Addr, now time.Time) (wait time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.began) >= time.Minute {
		f.began, f.of = now, map[netip.Prefix]int{}
	}
	n, known := f.of[overload.Network(from)]
	if n >= cmp.Or(f.most, maxFailures) || !known && len(f.of) >= maxAddresses {
		return f.began.Add(time.Minute).Sub(now), false
	}
	f.of[overload.Network(from)]++
	return 0, true
}
