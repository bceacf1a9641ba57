// Package web serves the operator UI at /ui. Every view is a link, every action is a form, and all
// pages work without JavaScript.
//
// A page is one template and one handler, which reads through the store and acts
// through the engine and package dlq, as the API does. Every view is a link, and every
// action has a page with a form that says what will happen (form.go), so all of it
// works without a script; the script keeps a page up to date and handles the keys.
// html/template escapes everything that a page shows.
//
// [server.routes] lists every path.
package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/feed"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/hostguard"
	"tasker.example/tasker/internal/idp"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

// Root is the path under which all pages lie.
const Root = "/ui"

// Options of the pages. DB, Engine and DLQ are needed; zero works for the others.
type Options struct {
	DB     *postgres.DB
	Engine *engine.Engine
	DLQ    *dlq.Service
	Cases  *cases.Service // nil: one of its own, whose loop does not run

	Operations *operation.Service // the same
	Holds      *hold.Service      // the same
	Explain    *explain.Service   // nil: one of its own, which counts nothing

	Log   *slog.Logger
	Guard *hostguard.Guard // refuses what others make a browser send

	Gate *overload.Gate // decides about requests of too many; nil takes all

	Feed *feed.Feed          // of events, for pages that are open; nil: they ask every ten seconds
	Auth *auth.Authenticator // nil: nobody is asked who they are, and everybody may do everything

	Version string
	// TemplateFaults are the faults of template files that this server did not register.
	TemplateFaults []string

	Sinks    []string // those to which this server sends events
	ReadOnly bool     // shows everything and changes nothing
	Timeout  time.Duration
	// PartTimeout bounds how long a page waits for a part without which it can be shown; 0: a second for why
	// something is where it is, a quarter of one for what changed before a case.
	PartTimeout time.Duration

	PublicURL string // where browsers reach the server; empty: as the browser that asks knows it
}

const (
	defaultTimeout = 30 * time.Second
	maxForm        = 6 << 20 // a result of 1 MiB takes three times that in a form, and there are notes
	answerTime     = 2 * time.Minute
)

// New returns the pages as a handler for [Root] and what lies below it, and for the
// path / of a browser, which it sends there. It is safe for concurrent use. When stopping
// ends, streams end; all else is served as before.
func New(stopping context.Context, o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Guard == nil {
		o.Guard = &hostguard.Guard{}
	}
	if o.Cases == nil {
		o.Cases = cases.New(o.DB, cases.Options{Log: o.Log})
	}
	if o.Operations == nil {
		o.Operations = operation.New(o.DB, o.Engine, o.DLQ, operation.Options{Log: o.Log})
	}
	if o.Holds == nil {
		o.Holds = hold.New(o.DB, o.Engine, hold.Options{Log: o.Log})
	}
	if o.Explain == nil {
		o.Explain = explain.New(o.DB, explain.Options{Log: o.Log})
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	s := &server{Options: o, stopping: stopping, mux: http.NewServeMux(), pages: parsedPages(), assets: loadedAssets(), needs: map[string]access.Permission{}, begun: failures{most: maxSignIns}, returned: failures{most: maxSignIns}}
	for _, rt := range s.routes() {
		rt.check()
		s.needs[rt.path] = rt.rule.Needs
		s.mux.HandleFunc(rt.method+" "+Root+rt.path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, &rt) })
	}
	for _, path := range []string{Root, "/{$}"} {
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, Root+"/", http.StatusSeeOther)
		})
	}
	return s
}

type server struct {
	Options
	stopping context.Context

	mux    *http.ServeMux
	pages  pages
	assets map[string]asset
	needs  map[string]access.Permission // of each path

	failures failures // to sign in
	links    failures // tokens of answer links that are worth nothing
	begun    failures // sign-ins at the provider, whether they come to an end or not
	returned failures // browsers from the provider that could not be signed in
}

// A route is a path below [Root]. What needs a permission and has the method POST changes
// something; a read-only server refuses it.
type route struct {
	method, path string
	rule         access.Rule
	serve        func(req *request) (*view, error) // nil for a file
	streams      bool                              // it goes on for as long as the browser listens
	most         int64                             // bytes of a form that is sent; 0: as many as fit the rule
}

// A view is what a handler answers: a page, or where to go on. A handler that has answered
// by itself returns none.
type view struct {
	page  string // name of its template
	title string
	nav   string // the link of the navigation that it belongs to
	body  any    // what the template shows

	status int  // of a page; 0 means 200
	live   bool // it is kept up to date
	alone  bool // nothing of the server is around it

	next string // a path to go on to, in place of a page
	note string // what was done, to be shown there
	warn string // what whoever did it may have overlooked
}

// ServeHTTP serves one request.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // an httptest recorder has none
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	if strings.HasPrefix(r.URL.Path, tasker.AnswerLinkPath) {
		guardToken(h, r)
	}
	req := s.newRequest(w, r)
	if req.secure() {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if status, err := s.Guard.Check(r); err != nil {
		s.fail(req, status, err)
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		req.begin()
		_ = s.authenticate(req) // the page is not there for anybody
		s.fail(req, 0, tasker.Errorf(tasker.NotFound, "there is no such page: %s", r.URL.Path))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// newRequest returns a request whose caller is not known yet, unless nobody is asked.
func (s *server) newRequest(w http.ResponseWriter, r *http.Request) *request {
	req := &request{Request: r, w: w, read: map[string]bool{}, now: time.Now(), whenEnded: func(func()) func() bool { return func() bool { return false } }, leave: func() {}}
	if s.Auth == nil {
		req.caller = access.Local()
	}
	return req
}

// serve answers a request of a known path.
func (s *server) serve(w http.ResponseWriter, r *http.Request, rt *route) {
	if rt.serve == nil {
		s.static(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	if !rt.streams {
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
	}
	defer cancel()
	req := s.newRequest(w, r.WithContext(ctx))
	defer s.recoverPanic(req, rt)
	defer func() { req.leave() }()
	req.begin()
	var v *view
	err := s.admit(req, rt)
	if err == nil {
		v, err = rt.serve(req)
	}
	if err == nil && v != nil && v.next == "" && rt.method == http.MethodGet && !rt.rule.Public {
		err = req.checkQuery() // identity providers and mail programs add parameters to the public ones
	}
	req.leave() // whoever reads the page slowly takes no other's turn
	level, text := slog.LevelDebug, ""
	switch {
	case err == nil && v == nil:
	case err == nil:
		s.answer(req, v)
	case errors.Is(err, errSignIn) && req.asksToSignIn():
		s.answer(req, &view{next: signInTo(req.self())})
	default:
		level, text = slog.LevelInfo, err.Error()
		if tasker.CodeOf(err) == tasker.Internal && !req.gone() {
			level = slog.LevelError
		}
		s.fail(req, 0, err)
	}
	s.Log.LogAttrs(ctx, level, "page", slog.String("method", rt.method), slog.String("path", Root+rt.path), slog.String("subject", req.subject()),
		slog.Duration("took", time.Since(req.now)), slog.String("err", text))
}

// admit refuses what the caller may not do, and forms that are not ours, before a handler
// sees them.
func (s *server) admit(req *request, rt *route) error {
	if err := s.authorize(req, rt); err != nil || rt.method != http.MethodPost {
		return err
	}
	if err := req.readForm(rt); err != nil {
		return err
	}
	if !req.hasToken() {
		return tasker.Errorf(tasker.Forbidden, "this form was opened in another session, or cookies are off: open the page again, and send it from there")
	}
	if rt.rule.Needs == "" {
		return nil
	}
	return s.mayChange()
}

// mayChange refuses what a read-only server does not offer.
func (s *server) mayChange() error {
	if s.ReadOnly {
		return tasker.Errorf(tasker.Forbidden, "this page shows, and changes nothing: the server was started with ui.read_only")
	}
	return nil
}

// recoverPanic shows an error page for a handler that panicked.
func (s *server) recoverPanic(req *request, rt *route) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // the value itself is what net/http knows
		panic(p)
	}
	s.fail(req, 0, fmt.Errorf("panic: %v", p))
	s.Log.ErrorContext(req.Context(), "page panicked", "path", Root+rt.path, "panic", p, "stack", string(debug.Stack()))
}

// answer shows a page, or sends the browser on.
func (s *server) answer(req *request, v *view) {
	if v.next != "" {
		if v.note != "" {
			req.leaveNote(v.note, v.warn)
		}
		http.Redirect(req.w, req.Request, v.next, http.StatusSeeOther)
		return
	}
	s.show(req, v)
}

// fail shows what went wrong: in words for what somebody can act on, and for
// everything else that the log has more.
func (s *server) fail(req *request, status int, err error) {
	code := tasker.CodeOf(err)
	if code == tasker.Internal && req.gone() {
		return // nobody is there any more
	}
	if code == tasker.Internal && errors.Is(context.Cause(req.Context()), context.DeadlineExceeded) {
		err = tasker.Errorf(tasker.Unavailable, "the database does not answer: this took longer than %s; try again in a moment", s.Timeout)
		code = tasker.Unavailable
	}
	if status == 0 {
		status = apiv1.Status(code)
	}
	if code == tasker.Unavailable {
		req.w.Header().Set("Retry-After", apiv1.RetryAfter(err, usualRetryAfter))
		if overloaded, ok := errors.AsType[overload.Refusal](err); ok {
			status = overloaded.Status()
		}
	}
	body := failure{Status: status, Code: string(code), Message: messageOf(err)}
	if errors.Is(err, errSignIn) {
		body.SignIn = signInTo(Root + "/")
	}
	s.show(req, &view{page: "failure", title: titleOf(status), body: body, status: status})
}

// usualRetryAfter is how long a browser waits before the next try.
const usualRetryAfter = 5 * time.Second

// A failure is what the page of an error shows.
type failure struct {
	Status  int
	Code    string
	Message string
	SignIn  string // where to sign in, when that is missing
}

func titleOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "Not signed in"
	case http.StatusNotFound:
		return "Not found"
	case http.StatusForbidden, http.StatusMisdirectedRequest:
		return "Not allowed"
	case http.StatusConflict:
		return "Not possible now"
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return "Not understood"
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return "Try again in a moment"
	default:
		return "Something went wrong"
	}
}

// messageOf is what may be shown of an error.
func messageOf(err error) string {
	if e, ok := errors.AsType[*tasker.Error](err); ok && e.Code != tasker.Internal && e.Message != "" {
		return sentence(e.Message)
	}
	return "The server could not do this; its log says why."
}

// sentence begins a text with an upper-case letter.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 || first == utf8.RuneError {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}

// streamPath is where an open page learns that an investigation has changed.
const streamPath = "/events"

// errNoEvents is the answer to pages that ask for events where there are none, or none any more.
var errNoEvents = tasker.Errorf(tasker.Unavailable, "this server sends no events to pages now; they ask every ten seconds")

// followEvents sends an open page a line whenever an investigation that the caller may see
// has changed. The line says nothing more: the page asks for itself again. It ends with
// what the caller may do, and when the server stops.
func (s *server) followEvents(req *request) (*view, error) {
	if s.Feed == nil || s.stopping.Err() != nil {
		return nil, errNoEvents
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	defer req.whenEnded(cancel)()
	reader, err := s.readFromNow(ctx, req)
	switch {
	case err != nil && s.stopping.Err() != nil:
		return nil, errNoEvents
	case err != nil && ctx.Err() != nil && !req.gone():
		return nil, errSignIn // the session ended before the stream began
	case err != nil:
		return nil, err
	}
	defer reader.Close()
	feed.Begin(req.w)
	if req.Method == http.MethodHead {
		return nil, nil //nolint:nilnil // it was answered
	}
	st := &feed.Stream{Reader: reader, W: req.w, Idle: func() string { return ": still here\n\n" }, Encode: func(list []feed.Event) (string, error) {
		for _, e := range list {
			if _, ok := access.ShowEvent(ctx, e.Event); ok {
				return "event: change\ndata: {}\n\n", nil
			}
		}
		return "", nil
	}}
	if err := st.Run(ctx, ""); err != nil {
		s.Log.DebugContext(ctx, "the stream of a page ended", "subject", req.subject(), "err", err) // the page comes back
	}
	return nil, nil //nolint:nilnil // it was answered
}

// readFromNow begins to read the feed within the time of other requests.
func (s *server) readFromNow(ctx context.Context, req *request) (*feed.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	now, err := s.Feed.Now(ctx)
	if err != nil {
		return nil, err
	}
	return s.Feed.Read(ctx, now, req.address())
}

// routes returns the table of all pages.
func (s *server) routes() []route {
	const get, post = http.MethodGet, http.MethodPost
	list := []route{
		{method: get, path: "/{$}", rule: needs(access.ReadInvestigations), serve: s.queue},
		{method: get, path: "/investigations/{investigation}", rule: needs(access.ReadInvestigations), serve: s.investigation},
		{method: get, path: "/investigations/{investigation}/evidence.json", rule: access.Rule{Needs: access.ReadInvestigations, Also: access.ReadPayloads}, serve: s.evidenceFile},
		{method: get, path: "/cases/{case}/report.md", rule: needs(access.ReadInvestigations), serve: s.caseReport},
		{method: get, path: "/cases/{case}", rule: needs(access.ReadInvestigations), serve: s.onCase},
		{method: get, path: "/operations", rule: needs(access.ReadInvestigations), serve: s.operations},
		{method: get, path: "/operations/{operation}", rule: needs(access.ReadInvestigations), serve: s.onOperation},
		{method: get, path: "/holds", rule: needs(access.ReadTasks), serve: s.holds},
		{method: get, path: "/holds/{hold}", rule: needs(access.ReadTasks), serve: s.onHold},
		{method: get, path: "/tasks", rule: needs(access.ReadTasks), serve: s.tasks},
		{method: get, path: "/tasks/{task}", rule: needs(access.ReadTasks), serve: s.task},
		{method: get, path: "/tasks/{task}/steps/{step}/items", rule: needs(access.ReadTasks), serve: s.items},
		{method: get, path: "/staleness", rule: needs(access.ReadTasks), serve: s.staleness},
		{method: get, path: "/dashboard", rule: needs(access.ReadInvestigations), serve: s.dashboard},
		{method: get, path: "/workers", rule: needs(access.ReadWorkers), serve: s.workers},
		{method: get, path: "/queues/{namespace}/{handler}", rule: needs(access.ReadWorkers), serve: s.onQueue},
		{method: get, path: "/emissions", rule: needs(access.ReadEvents), serve: s.emissions},
		{method: get, path: "/emissions/{event}", rule: needs(access.ReadEvents), serve: s.emission},
		{method: get, path: "/audit", rule: needs(access.Administer), serve: s.audit},
		{method: get, path: streamPath, rule: needs(access.ReadEvents), serve: s.followEvents, streams: true},
		{method: post, path: namePath, rule: anyone, serve: s.setName},
		{method: get, path: signInPath, rule: public, serve: s.showSignIn},
		{method: post, path: signInPath, rule: public, serve: s.signIn},
		{method: get, path: providerPath, rule: public, serve: s.goToProvider},
		{method: get, path: strings.TrimPrefix(idp.CallbackPath, Root), rule: public, serve: s.fromProvider},
		{method: post, path: signOutPath, rule: anyone, serve: s.signOut},
		{method: get, path: "/static/{name}", rule: public},
	}
	for _, v := range stepVerbs {
		list = append(list, actionRoutes(s, "/tasks/{task}/steps/{step}/"+v.Word, access.OperateSteps,
			func(req *request) (*stepForm, error) { return s.stepForm(req, v) })...)
	}
	for _, v := range caseVerbs {
		list = append(list, actionRoutes(s, "/cases/{case}/"+v.Word, access.UpdateInvestigations,
			func(req *request) (*caseForm, error) { return s.caseForm(req, v) })...)
	}
	for _, v := range operationVerbs {
		list = append(list, actionRoutes(s, "/operations/{operation}/"+v.Word, access.OperateSteps,
			func(req *request) (*operationForm, error) { return s.operationForm(req, v) })...)
	}
	for _, v := range holdVerbs {
		list = append(list, actionRoutes(s, "/holds/{hold}/"+v.Word, access.OperateSteps,
			func(req *request) (*holdForm, error) { return s.holdForm(req, v) })...)
	}
	return slices.Concat(list,
		s.templateRoutes(), s.scheduleRoutes(), s.inboxRoutes(), s.answerLinkRoutes(), s.limitRoutes(), actionRoutes(s, weightPath, access.Administer, s.weightForm),
		actionRoutes(s, beginPath, access.OperateSteps, s.beginForm),
		actionRoutes(s, "/cases/{case}/run", access.OperateSteps, s.planForm),
		actionRoutes(s, "/plan", access.OperateSteps, s.selectionForm),
		actionRoutes(s, "/investigations/{investigation}/update", access.UpdateInvestigations, s.updateForm),
		actionRoutes(s, "/investigations/{investigation}/own", access.UpdateInvestigations, s.ownForm),
		actionRoutes(s, cancelAllPath, access.CancelTasks, s.cancelAllForm),
		actionRoutes(s, "/tasks/{task}/due", access.OperateSteps, s.dueForm), actionRoutes(s, "/tasks/{task}/cancel", access.CancelTasks, s.cancelForm),
		actionRoutes(s, "/tasks/{task}/version", access.OperateSteps, s.versionForm),
		actionRoutes(s, "/tasks/{task}/investigate", access.UpdateInvestigations, s.investigateForm),
		actionRoutes(s, "/workers/{worker}/drain", access.DrainWorkers, s.drainForm),
		actionRoutes(s, "/emissions/{event}/re-emit", access.ResendEvents, s.reEmitForm),
	)
}
