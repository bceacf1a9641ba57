// Package web serves the operator UI at /ui. Every view is a link, every action is a form, and all
// pages work without JavaScript.
//
// Each page is a template and a handler, which reads from the store and acts through the engine and
// package dlq, as the API does. The script refreshes open pages and handles keyboard shortcuts.
// [server.routes] lists all paths.
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

// Root is the path prefix of all pages.
const Root = "/ui"

// Options configures the pages. The database and the services are required.
type Options struct {
	DB         *postgres.DB
	Engine     *engine.Engine
	DLQ        *dlq.Service
	Cases      *cases.Service
	Operations *operation.Service
	Holds      *hold.Service
	Explain    *explain.Service

	Log   *slog.Logger        // default: discard
	Guard *hostguard.Guard    // rejects cross-site requests; default: any host
	Gate  *overload.Gate      // limits requests; nil admits all
	Feed  *feed.Feed          // event stream for open pages; nil makes them poll every 10 s
	Auth  *auth.Authenticator // nil disables authentication and grants every permission

	Version        string
	TemplateFaults []string // errors of template files that this server did not register
	Sinks          []string // sinks to which this server delivers events
	ReadOnly       bool     // hides and rejects all actions
	PublicURL      string   // base URL of answer links; default: the origin of the request

	Timeout time.Duration // of a request; default 30 s
	// PartTimeout limits how long a page waits for an optional part. The default is 1 s for
	// explanations and 250 ms for the changes before a case.
	PartTimeout time.Duration
}

const (
	defaultTimeout = 30 * time.Second
	maxForm        = 6 << 20 // a 1 MiB result takes up to three times its size in a form
	writeTimeout   = 2 * time.Minute
)

// New returns the handler of all pages below [Root]. It redirects / to Root. The handler is safe
// for concurrent use. When stopping is done, event streams end; other requests are still served.
func New(stopping context.Context, o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Guard == nil {
		o.Guard = &hostguard.Guard{}
	}

	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	s := &server{
		Options: o, stopping: stopping, mux: http.NewServeMux(), pages: parsedPages(), assets: hashedAssets(),
		needs: map[string]access.Permission{}, signIns: signInFailures{most: maxSignIns},
		callbacks: signInFailures{most: maxSignIns},
	}
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
	assets map[string]string            // hashes by name
	needs  map[string]access.Permission // by path

	failures  signInFailures // failed sign-ins
	links     signInFailures // invalid answer links
	signIns   signInFailures // sign-ins started at the provider
	callbacks signInFailures // failed callbacks from the provider
}

// route describes a path below [Root]. A read-only server rejects POST routes that need a
// permission.
type route struct {
	method, path string
	rule         access.Rule
	serve        func(req *request) (*view, error) // nil for static files
	streams      bool                              // has no timeout
	most         int64                             // maximum bytes of the form; default by rule
}

// view is the result of a handler: a page or a redirect. A handler that has written the response
// itself returns nil.
type view struct {
	page  string // template name
	title string
	nav   string // active navigation link
	body  any    // data of the template

	status int  // default 200
	live   bool // refreshed while it is open
	alone  bool // shown without navigation and caller

	next string // redirect target
	note string // message on the redirect target
	warn string // warning on the redirect target
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // unsupported by httptest recorders
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
		setTokenHeaders(h, r)
	}
	req := s.newRequest(w, r)
	if req.isSecure() {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if status, err := s.Guard.Check(r); err != nil {
		s.respondError(req, status, err)
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		req.beginSession()
		_ = s.authenticate(req) // the frame shows the caller
		s.respondError(req, 0, tasker.Errorf(tasker.NotFound, "page not found: %s", r.URL.Path))
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *server) newRequest(w http.ResponseWriter, r *http.Request) *request {
	req := &request{
		Request: r, server: s, failed: new(error), w: w, read: map[string]bool{}, now: time.Now(), leave: func() {},
		whenEnded: func(func()) func() bool { return func() bool { return false } },
	}
	if s.Auth == nil {
		req.caller = access.Local()
	}
	return req
}

func (s *server) serve(w http.ResponseWriter, r *http.Request, rt *route) {
	if rt.serve == nil {
		s.serveStatic(w, r)
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
	req.beginSession()
	var v *view
	err := s.admit(req, rt)
	if err == nil {
		v, err = rt.serve(req)
		err = cmp.Or(req.err(), err)
	}
	if err == nil && v != nil && v.next == "" && rt.method == http.MethodGet && !rt.rule.Public {
		err = req.checkQuery() // identity providers and mail programs add parameters to the public ones
	}
	req.leave() // a slow reader must not occupy a slot
	level, text := slog.LevelDebug, ""
	switch {
	case err == nil && v == nil:
	case err == nil:
		s.respond(req, v)
	case errors.Is(err, errSignIn) && req.isPageView():
		s.respond(req, &view{next: buildSignInPath(req.currentPath())})
	default:
		level, text = slog.LevelInfo, err.Error()
		if tasker.CodeOf(err) == tasker.Internal && !req.isDisconnected() {
			level = slog.LevelError
		}
		s.respondError(req, 0, err)
	}
	s.Log.LogAttrs(ctx, level, "page", slog.String("method", rt.method), slog.String("path", Root+rt.path), slog.String("subject", req.callerSubject()),
		slog.Duration("took", time.Since(req.now)), slog.String("err", text))
}

// admit checks the permission of the caller and the token of the form.
func (s *server) admit(req *request, rt *route) error {
	if err := s.authorize(req, rt); err != nil || rt.method != http.MethodPost {
		return err
	}
	if err := req.readForm(rt); err != nil {
		return err
	}
	if !req.hasToken() {
		return tasker.Errorf(tasker.Forbidden, "this form belongs to another session, or cookies are disabled: reload the page and submit it again")
	}
	if rt.rule.Needs == "" {
		return nil
	}
	return s.checkMayChange()
}

func (s *server) checkMayChange() error {
	if s.ReadOnly {
		return tasker.Errorf(tasker.Forbidden, "the pages are read-only: the server was started with ui.read_only")
	}
	return nil
}

func (s *server) recoverPanic(req *request, rt *route) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares by identity
		panic(p)
	}
	s.respondError(req, 0, fmt.Errorf("panic: %v", p))
	s.Log.ErrorContext(req.Context(), "page panicked", "path", Root+rt.path, "panic", p, "stack", string(debug.Stack()))
}

// respond shows a page or redirects the browser.
func (s *server) respond(req *request, v *view) {
	if v.next != "" {
		if v.note != "" {
			req.setNote(v.note, v.warn)
		}
		http.Redirect(req.w, req.Request, v.next, http.StatusSeeOther)
		return
	}
	s.writeView(req, v)
}

// respondError shows an error page. Internal errors are only logged.
func (s *server) respondError(req *request, status int, err error) {
	code := tasker.CodeOf(err)
	if code == tasker.Internal && req.isDisconnected() {
		return
	}
	if code == tasker.Internal && errors.Is(context.Cause(req.Context()), context.DeadlineExceeded) {
		code = tasker.Unavailable
		err = tasker.Errorf(code, "the database did not answer within %s: try again in a moment", s.Timeout)
	}
	status = cmp.Or(status, apiv1.Status(code))
	if code == tasker.Unavailable {
		req.w.Header().Set("Retry-After", apiv1.RetryAfter(err, usualRetryAfter))
		if overloaded, ok := errors.AsType[overload.Refusal](err); ok {
			status = overloaded.Status()
		}
	}
	body := failure{Status: status, Code: string(code), Message: errorMessage(err)}
	if errors.Is(err, errSignIn) {
		body.SignIn = buildSignInPath(Root + "/")
	}
	s.writeView(req, &view{page: "failure", title: statusTitle(status), body: body, status: status})
}

const usualRetryAfter = 5 * time.Second

// failure is the data of an error page.
type failure struct {
	Status        int
	Code, Message string
	SignIn        string // link to sign in
}

func statusTitle(status int) string {
	return cmp.Or(map[int]string{
		http.StatusUnauthorized: "Not signed in", http.StatusNotFound: "Not found", http.StatusForbidden: "Not allowed",
		http.StatusMisdirectedRequest: "Not allowed", http.StatusConflict: "Not possible now",
		http.StatusBadRequest:            "Invalid request",
		http.StatusRequestEntityTooLarge: "Invalid request", http.StatusServiceUnavailable: "Try again in a moment",
		http.StatusTooManyRequests: "Try again in a moment",
	}[status], "Something went wrong")
}

// errorMessage returns the message of an error as a sentence. It hides internal errors.
func errorMessage(err error) string {
	if e, ok := errors.AsType[*tasker.Error](err); ok && e.Code != tasker.Internal && e.Message != "" {
		return toSentence(e.Message)
	}
	return "The server failed. See its log."
}

// toSentence capitalizes the first letter of text.
func toSentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 || first == utf8.RuneError {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}

// streamPath is the event stream of open pages.
const streamPath = "/events"

var errNoEvents = tasker.Errorf(tasker.Unavailable, "this server has no event stream: pages poll every ten seconds")

// followEvents sends a line for every change of an investigation that the caller may read. The
// line contains no data: the page reloads itself. The stream ends when the session ends or the
// server stops.
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
	case err != nil && ctx.Err() != nil && !req.isDisconnected():
		return nil, errSignIn // the session ended before the stream began
	case err != nil:
		return nil, err
	}
	defer reader.Close()
	feed.WriteHeaders(req.w)
	if req.Method == http.MethodHead {
		return nil, nil //nolint:nilnil // the response is written
	}
	st := &feed.Stream{W: req.w, Idle: func() string { return ": still here\n\n" }, Next: feed.Encoded(reader, func(list []feed.Event) (string, error) {
		for _, e := range list {
			if e.EntryUUID == (tasker.ID{}) {
				continue // pages do not reload for events of tasks
			}
			if _, ok := access.RedactEvent(ctx, e.Event); ok {
				return "event: change\ndata: {}\n\n", nil
			}
		}
		return "", nil
	})}
	if err := st.Run(ctx, ""); err != nil {
		s.Log.DebugContext(ctx, "page stream ended", "subject", req.callerSubject(), "err", err) // the page reconnects
	}
	return nil, nil //nolint:nilnil // the response is written
}

// readFromNow opens a reader at the end of the feed.
func (s *server) readFromNow(ctx context.Context, req *request) (*feed.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	now, err := s.Feed.Now(ctx)
	if err != nil {
		return nil, err
	}
	return s.Feed.Read(ctx, now, req.remoteAddress())
}

const (
	stepRoute     = "/tasks/{task}/steps/{step}"
	templateRoute = "/templates/{namespace}/{template}/{version}"
)

// routes returns the table of all pages.
func (s *server) routes() []route {
	const get, post = http.MethodGet, http.MethodPost
	answerLink := strings.TrimPrefix(tasker.AnswerLinkPath, Root) + "{token}"
	page := func(path string, permission access.Permission, serve func(*request) (*view, error)) route {
		return route{method: get, path: path, rule: requires(permission), serve: serve}
	}
	list := []route{
		page("/{$}", access.ReadInvestigations, s.showQueue),
		page("/investigations/{investigation}", access.ReadInvestigations, s.showInvestigation),
		{method: get, path: "/investigations/{investigation}/evidence.json", rule: access.Rule{Needs: access.ReadInvestigations, Also: access.ReadPayloads}, serve: s.downloadEvidence},
		page("/cases/{case}/report.md", access.ReadInvestigations, s.showCaseReport),
		page("/cases/{case}", access.ReadInvestigations, s.showCase),
		page("/operations", access.ReadInvestigations, s.showOperations),
		page("/operations/{operation}", access.ReadInvestigations, s.showOperation),
		page("/holds", access.ReadTasks, s.showHolds),
		page("/holds/{hold}", access.ReadTasks, s.showHold),
		page("/tasks", access.ReadTasks, s.showTasks),
		page("/tasks/{task}", access.ReadTasks, s.showTask),
		page(stepRoute+"/items", access.ReadTasks, s.showItems),
		page(taskRequestsPath, access.ReadTasks, s.showTaskRequests),
		page("/inbox", access.ReadTasks, s.showInbox),
		page("/schedules", access.ReadTasks, s.showSchedules),
		page("/schedules/{schedule}", access.ReadTasks, s.showSchedule),
		page("/staleness", access.ReadTasks, s.showStaleness),
		page("/dashboard", access.ReadInvestigations, s.showDashboard),
		page("/workers", access.ReadWorkers, s.showWorkers),
		page("/queues/{namespace}/{handler}", access.ReadWorkers, s.showQueueExplanation),
		page("/limits", access.ReadWorkers, s.showLimits),
		page(limitPath, access.ReadWorkers, s.showLimit),
		page("/templates", access.ReadTemplates, s.showTemplates),
		page(templateRoute, access.ReadTemplates, s.showTemplate),
		page("/emissions", access.ReadEvents, s.showEmissions),
		page("/emissions/{event}", access.ReadEvents, s.showEmission),
		page("/audit", access.Administer, s.showAudit),
		{method: get, path: streamPath, rule: requires(access.ReadEvents), serve: s.followEvents, streams: true},
		{method: post, path: namePath, rule: anyone, serve: s.setName},
		{method: get, path: signInPath, rule: public, serve: s.showSignIn},
		{method: post, path: signInPath, rule: public, serve: s.signIn},
		{method: get, path: providerPath, rule: public, serve: s.redirectToProvider},
		{method: get, path: strings.TrimPrefix(idp.CallbackPath, Root), rule: public, serve: s.handleProviderCallback},
		{method: post, path: signOutPath, rule: anyone, serve: s.signOut},
		{method: get, path: answerLink, rule: public, serve: s.showQuestion},
		{method: post, path: answerLink, rule: public, serve: s.answerByLink, most: maxLinkForm},
		{method: get, path: "/static/{name}", rule: public},
	}
	return slices.Concat(list, s.formRoutes())
}

// formRoutes returns the routes of the forms for actions.
func (s *server) formRoutes() []route {
	return slices.Concat(
		newVerbRoutes(s, stepRoute, access.OperateSteps, stepVerbs, s.newStepForm),
		newVerbRoutes(s, "/cases/{case}", access.UpdateInvestigations, caseVerbs, s.newCaseForm),
		newVerbRoutes(s, "/operations/{operation}", access.OperateSteps, operationVerbs, s.newOperationForm),
		newVerbRoutes(s, "/holds/{hold}", access.OperateSteps, holdVerbs, s.newHoldForm),
		newVerbRoutes(s, "/schedules/{schedule}", access.OperateSchedules, scheduleVerbs, s.newScheduleVerbForm),
		newVerbRoutes(s, templateRoute, access.WriteTemplates, []verb{{Word: wordRetire}, {Word: wordUnretire}},
			s.newRetireForm),
		newActionRoutes(s, templateRoute+"/"+wordChange, access.OperateSteps, s.newChangeForm),
		newActionRoutes(s, stepRoute+"/answer", access.CompleteSteps, s.newAnswerForm),
		newActionRoutes(s, stepRoute+"/assign", access.OperateSteps, s.newAssignForm),
		newActionRoutes(s, stepRoute+"/links", access.OperateSteps, s.newLinkForm),
		newActionRoutes(s, newSchedulePath, access.WriteSchedules, s.newCreateScheduleForm),
		newActionRoutes(s, setLimitPath, access.OperateSteps, s.newSetLimitForm),
		newActionRoutes(s, deleteLimitPath, access.OperateSteps, s.newDeleteLimitForm),
		newActionRoutes(s, weightPath, access.Administer, s.newWeightForm),
		newActionRoutes(s, beginPath, access.OperateSteps, s.newBeginHoldForm),
		newActionRoutes(s, "/cases/{case}/run", access.OperateSteps, s.newPlanForm),
		newActionRoutes(s, "/plan", access.OperateSteps, s.newSelectionForm),
		newActionRoutes(s, "/investigations/{investigation}/update", access.UpdateInvestigations, s.newUpdateForm),
		newActionRoutes(s, "/investigations/{investigation}/own", access.UpdateInvestigations, s.newOwnForm),
		newActionRoutes(s, cancelAllPath, access.CancelTasks, s.newCancelAllForm),
		newActionRoutes(s, "/tasks/{task}/due", access.OperateSteps, s.newDueForm),
		newActionRoutes(s, "/tasks/{task}/cancel", access.CancelTasks, s.newCancelForm),
		newActionRoutes(s, "/tasks/{task}/version", access.OperateSteps, s.newVersionForm),
		newActionRoutes(s, "/tasks/{task}/investigate", access.UpdateInvestigations, s.newInvestigateForm),
		newActionRoutes(s, taskRequestsPath+"/{task}/dismiss", access.CancelTasks, s.newDismissForm),
		newActionRoutes(s, "/workers/{worker}/drain", access.DrainWorkers, s.newDrainForm),
		newActionRoutes(s, "/emissions/{event}/re-emit", access.ResendEvents, s.newReEmitForm),
	)
}
