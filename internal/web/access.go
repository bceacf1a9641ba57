package web

import (
	"cmp"
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

func requires(p access.Permission) access.Rule { return access.Rule{Needs: p} }

var (
	anyone = access.Rule{Anyone: true}
	public = access.Rule{Public: true}
)

// parameters describes the path parameters of all routes for access checks. Handlers check
// namespaces with [access.Identity.RequirePermission].
var parameters = access.Parameters{
	Resources: map[string]access.Kind{
		"task": access.TaskKind, "investigation": access.InvestigationKind, "case": access.CaseKind, "operation": access.OperationKind, "hold": access.HoldKind, "schedule": access.ScheduleKind, "worker": access.WorkerKind, "event": access.EventKind,
	},
	Within: []string{"step", "name", "namespace", "handler", "template", "version", "token"},
}

// check panics if a route has no access rule.
func (rt *route) check() {
	rule, err := rt.rule.For(rt.path, parameters)
	if err != nil {
		panic(fmt.Sprintf("%s %v", rt.method, err))
	}
	rt.rule = rule
}

// errSignIn rejects requests without a session.
var errSignIn = tasker.Errorf(tasker.Unauthorized, "you are not signed in or your session has ended: sign in and reload the page")

// authenticate sets the caller from the session cookie. If there is no session, the caller stays
// nil.
func (s *server) authenticate(req *request) error {
	secret := req.readCookie(sessionCookie)
	if s.Auth == nil || secret == "" {
		return nil
	}
	find := s.Auth.AuthenticateSession
	if req.isRefresh() {
		find = s.Auth.RefreshSession
	}
	caller, err := find(auth.WithAddress(req.Context(), req.remoteAddress()), secret)
	if err != nil {
		if tasker.CodeOf(err) == tasker.Unauthorized {
			if tooMany := s.Auth.Strangers.TakeAddress(req.remoteAddress()); tooMany != nil {
				return tooMany
			}
			return nil
		}
		return err
	}
	req.caller, req.actor, req.whenEnded = caller.Identity, caller.Actor(""), caller.OnEnd
	return nil
}

// authorize checks the rule of the route and audits refusals. It limits the context to what the
// caller may read.
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

// permit checks the permission and waits for admission. It reads the form first, so that a slow
// sender occupies no slot.
func (s *server) permit(req *request, rt *route) error {
	if err := rt.rule.CheckIdentity(req.caller); err != nil {
		return err
	}
	if err := s.Gate.Admit(rt.overloadClass(), req.callerSubject()); err != nil {
		return err
	}
	if err := req.readForm(rt); err != nil {
		return err
	}
	leave, err := s.Gate.Wait(req.Context(), rt.overloadClass(), req.callerSubject())
	if err != nil {
		return err
	}
	req.leave = leave
	ctx, err := rt.rule.Admit(req.Context(), req.caller, s.DB.FindNamespaces, req.parseID)
	if err != nil {
		return err
	}
	req.Request, req.admitted = req.WithContext(ctx), true
	return nil
}

func (rt *route) overloadClass() overload.Class {
	switch {
	case rt.streams:
		return overload.Streams
	case rt.method == http.MethodPost:
		return overload.Operations
	default:
		return overload.Reads
	}
}

func (s *server) auditForbidden(req *request, rt *route) {
	data := map[string]string{"method": rt.method, "route": Root + rt.path, "from": req.remoteAddress().String()}
	if _, id := rt.rule.ResourceParameter(); id != "" {
		data[id] = req.PathValue(id)
	}
	s.Auth.AuditRefusal(req.Context(), req.callerSubject(), data)
}

// withPermission returns a copy of the request whose context is limited to what the caller may
// access with another permission.
func (req *request) withPermission(needs access.Permission) *request {
	other := *req
	other.Request = req.WithContext(access.WithPermissionScope(req.Context(), req.caller, needs))
	return &other
}

// canSee reports whether the caller has a permission in any namespace.
func (req *request) canSee(needs access.Permission) bool {
	return req.caller != nil && !req.caller.Scope(needs).IsEmpty()
}

func (req *request) canReadPayloads(namespace string) bool {
	return req.caller != nil && req.caller.HasPermission(access.ReadPayloads, namespace)
}

// canShowAction reports whether a page offers an action that requires a permission in all of these
// namespaces. A read-only server offers none.
func (s *server) canShowAction(req *request, needs access.Permission, namespaces ...string) bool {
	if s.ReadOnly || req.caller == nil || len(namespaces) == 0 {
		return false
	}
	return !slices.ContainsFunc(namespaces, func(n string) bool { return !req.caller.HasPermission(needs, n) })
}

// isRefresh reports whether the script of an open page sent the request, without an action of the
// user. The script sets a header, and browsers set Sec-Fetch-Mode over HTTPS.
func (req *request) isRefresh() bool {
	mode := req.Header.Get("Sec-Fetch-Mode")
	return req.Method == http.MethodGet && (req.Header.Get(refreshHeader) != "" || req.Header.Get("Accept") == "text/event-stream" || mode != "" && mode != "navigate")
}

const refreshHeader = "Tasker-Refresh"

// isPageView reports whether a user opens a page, so that a redirect to the sign-in page works.
func (req *request) isPageView() bool {
	return (req.Method == http.MethodGet || req.Method == http.MethodHead) && !req.isRefresh()
}

const (
	signInPath  = "/sign-in"
	signOutPath = "/sign-out"

	// maxSignIn limits the forms of unauthenticated callers, in bytes.
	maxSignIn = 16 << 10
)

// signInPage asks for an API key or links to the identity provider.
type signInPage struct {
	Back     string // redirect target
	Provider bool
	Ended    bool // the browser had a session
	Problem  string
}

func (p signInPage) view(status int) *view {
	return &view{page: "sign-in", title: "Sign in", status: status, body: p}
}

// buildSignInPath returns the sign-in page that redirects to back.
func buildSignInPath(back string) string {
	return Root + signInPath + "?" + url.Values{"back": {back}}.Encode()
}

func (s *server) showSignIn(req *request) (*view, error) {
	back := req.returnPath()
	if req.caller != nil {
		return &view{next: back}, nil
	}
	return signInPage{Back: back, Provider: s.Auth.HasProvider(), Ended: req.readCookie(sessionCookie) != ""}.view(http.StatusOK), nil
}

// signIn starts a session with an API key. It limits failures by address, but accepts a valid key
// from any address.
func (s *server) signIn(req *request) (*view, error) {
	p := signInPage{Back: req.returnPath(), Provider: s.Auth.HasProvider()}
	if s.Auth == nil {
		return &view{next: p.Back}, nil
	}
	from := req.remoteAddress()
	secret, err := s.Auth.SignIn(auth.WithAddress(req.Context(), from), strings.TrimSpace(req.PostFormValue("key")), from.String())
	switch {
	case err == nil:
		return s.finishSignIn(req, secret, p.Back)
	case tasker.CodeOf(err) != tasker.Unauthorized:
		return nil, err
	}
	_ = s.Auth.Strangers.TakeAddress(from) // counts the wrong key
	if wait, ok := s.failures.take(from, time.Now()); !ok {
		req.setRetryAfter(wait)
		p.Problem = "Too many failed sign-ins from your address. Try again in a minute."
		return p.view(http.StatusTooManyRequests), nil
	}
	s.Auth.AuditSignIn(req.Context(), from.String())
	p.Problem = errorMessage(err) + "."
	return p.view(http.StatusUnauthorized), nil
}

// finishSignIn replaces the session of the browser.
func (s *server) finishSignIn(req *request, secret, back string) (*view, error) {
	if before := req.readCookie(sessionCookie); before != "" {
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
	// signInCookie holds the secret of a sign-in at the provider. It keeps other sites from
	// completing a sign-in in this browser.
	signInCookie = "tasker_sign_in"
	signInTime   = 10 * time.Minute
)

var errNoProvider = tasker.Errorf(tasker.NotFound, "this server has no identity provider: sign in with an API key")

// redirectToProvider redirects to the identity provider. It limits sign-ins by address, because
// each is stored.
func (s *server) redirectToProvider(req *request) (*view, error) {
	if !s.Auth.HasProvider() {
		return nil, errNoProvider
	}
	from := req.remoteAddress()
	if wait, ok := s.signIns.take(from, time.Now()); !ok {
		return newTooManySignInsView(req, wait, req.returnPath()), nil
	}
	leave, err := s.Gate.Acquire(req.Context(), overload.Reads, "sign-in:"+overload.Network(from).String())
	if err != nil {
		return nil, err
	}
	req.leave = leave
	address, secret, err := s.Auth.StartSignIn(req.Context(), req.returnPath())
	if err != nil {
		return nil, err
	}
	req.setCookie(signInCookie, secret, signInTime)
	return &view{next: address}, nil
}

// setRetryAfter sets the Retry-After header to wait, in whole seconds.
func (req *request) setRetryAfter(wait time.Duration) {
	req.w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
}

func newTooManySignInsView(req *request, wait time.Duration, back string) *view {
	req.setRetryAfter(wait)
	p := signInPage{Back: back, Provider: true, Problem: "Too many sign-ins from your address. Try again in a minute."}
	return p.view(http.StatusTooManyRequests)
}

// handleProviderCallback handles the callback of the provider. It limits only failures by address.
func (s *server) handleProviderCallback(req *request) (*view, error) {
	if !s.Auth.HasProvider() {
		return nil, errNoProvider
	}
	from := req.remoteAddress()
	secret := req.readCookie(signInCookie)
	req.setCookie(signInCookie, "", -time.Second)
	session, back, err := s.Auth.FinishSignIn(auth.WithAddress(req.Context(), from), secret, req.URL.Query(),
		from.String())
	switch tasker.CodeOf(err) {
	case "":
		return s.finishSignIn(req, session, back)
	case tasker.Unauthorized, tasker.Forbidden:
		_ = s.Auth.Strangers.TakeAddress(from) // counts the failure
		if wait, ok := s.callbacks.take(from, time.Now()); !ok {
			return newTooManySignInsView(req, wait, Root+"/"), nil
		}
		if _, ok := s.failures.take(from, time.Now()); ok { // limits the audit log
			s.Auth.AuditSignIn(req.Context(), from.String())
		}
		s.Log.InfoContext(req.Context(), "sign-in at the identity provider failed", "from", from, "err", err)
		p := signInPage{Back: Root + "/", Provider: true, Problem: errorMessage(err) + "."}
		return p.view(apiv1.Status(tasker.CodeOf(err))), nil
	default:
		return nil, err
	}
}

func (s *server) signOut(req *request) (*view, error) {
	if s.Auth == nil {
		return &view{next: Root + "/"}, nil
	}
	if err := s.Auth.SignOut(req.Context(), req.readCookie(sessionCookie)); err != nil {
		return nil, err
	}
	req.setCookie(sessionCookie, "", -time.Second)
	return &view{next: Root + signInPath, note: "Signed out."}, nil
}

func (req *request) remoteAddress() netip.Addr { return auth.RemoteAddress(req.Request) }

const (
	maxFailures  = 10 // failed sign-ins per minute and address
	maxSignIns   = 60 // sign-ins at the provider per minute and address, which an office may share
	maxAddresses = 10_000
)

// signInFailures limits failed attempts per network address and minute. It also rejects new
// addresses once it counts too many of them.
type signInFailures struct {
	most int // per minute and address; default maxFailures

	mu    sync.Mutex
	began time.Time
	of    map[netip.Prefix]int
}

// take counts a failure and returns true. If there were too many, it returns how long to wait, and
// false.
func (f *signInFailures) take(from netip.Addr, now time.Time) (wait time.Duration, ok bool) {
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
