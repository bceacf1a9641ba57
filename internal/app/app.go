// Package app assembles a server from its components, starts them and shuts them down in order.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/feed"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/hostguard"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
	"tasker.example/tasker/internal/web"
)

// Options configures a server.
type Options struct {
	Config  config.Config
	Version string
	Log     *slog.Logger
	Out     io.Writer // receives the line with the address of the server

	// Beside runs while the server runs, after its address was printed. If it returns an error, the
	// server stops. Optional.
	Beside func(ctx context.Context, url string, e *engine.Engine) error

	// Mount contains additional handlers by path.
	Mount map[string]http.Handler

	// StrictTemplates makes the start fail if a template file is invalid.
	StrictTemplates bool

	// ClockSchema is the schema of a test clock, see [postgres.Options]. By default the server uses
	// the clock of PostgreSQL.
	ClockSchema string

	// Listener is a listener from [Listen]. By default the server listens on server.listen.
	Listener net.Listener
}

// Run serves until ctx ends, then shuts down in order: it accepts no new requests, lets waiting
// claims return, lets running requests and passes finish within the shutdown timeout, and finally
// closes the database connections. It returns nil after a graceful stop.
func Run(ctx context.Context, o Options) (err error) {
	listener := o.Listener
	if listener == nil {
		if listener, err = Listen(ctx, o.Config.Server.Listen); err != nil {
			return err
		}
	}
	defer listener.Close() // for errors before the server takes it over
	listener = boundListener(listener, o.Config.Limits.Connections, o.Config.Server.ProxyNetworks(), o.Log)
	if listener, err = listenTLS(ctx, listener, o.Config.Server, o.Log); err != nil {
		return err
	}
	s := newStarter(o)
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer closeDatabase(ctx, o, db)
	c := o.Config
	line, err := newBrokerLine(o)
	if err != nil {
		return err
	}
	m, err := startMetrics(ctx, o, db, line)
	if err != nil {
		return err
	}
	defer m.stop(ctx)
	groups := cases.New(db, cases.Options{Log: o.Log})
	hooks := &engineHooks{Metrics: m.Metrics, line: line, cases: groups}
	e := engine.New(db, line.configure(newEngineOptions(o, hooks)))
	line.attach(o, db, e, m.Metrics)
	d := newDLQ(o, db, e, m.Metrics)
	if err := s.prepare(ctx, db, e); err != nil {
		return err
	}
	relay, teller, err := newSenders(o, db, m.Metrics)
	if err != nil {
		return err
	}
	hooks.relay = relay
	callers, err := newAuth(o, db, listener.Addr())
	if err != nil {
		return err
	}
	ops := operation.New(db, e, d, operation.Options{Metrics: m.Metrics, Log: o.Log})
	holds := hold.New(db, e, hold.Options{Breaker: toBreaker(c.Breaker), Log: o.Log})
	hooks.holds = holds
	why := explain.New(db, explain.Options{Log: o.Log, Unknown: m.NotExplained})
	p := components{db: db, engine: e, explain: why, dlq: d, operations: ops, holds: holds, cases: groups, line: line, relay: relay, teller: teller, auth: callers, gate: newGate(o.Config), metrics: m.Handler(), templates: templatefile.NewFaultsError(c.Server.Templates, s.templateFaults), faults: s.faults(),
		loops: slices.Concat(e.Loops(), d.Loops(), ops.Loops(), holds.Loops(), groups.Loops(), relay.Loops(), teller.Loops())}
	if p.auth != nil && p.auth.Provider == nil {
		if err := s.warnWithoutKeys(ctx, db); err != nil {
			return err
		}
	}
	if err := errors.Join(m.observe(c, p), m.ObserveTemplates(s.countBrokenFiles())); err != nil {
		return err
	}
	return serve(ctx, o, listener, p)
}

func newDLQ(o Options, db *postgres.DB, e *engine.Engine, m *metrics.Metrics) *dlq.Service {
	c := o.Config.StalenessDetection
	every := c.DetectionInterval()
	if !c.Enabled {
		every = -1
	}
	return dlq.New(db, dlq.Options{SweepEvery: every, BatchSize: c.BatchSize, DryRun: c.DryRun, Undo: e.CompensateTaskTx, Metrics: m, Log: o.Log})
}

func toBreaker(c config.Breaker) hold.Breaker {
	if !c.Enabled {
		return hold.Breaker{}
	}
	return hold.Breaker{Failures: c.Failures, Tasks: c.Tasks, Share: c.SharePercent, Window: c.Window()}
}

// components contains the components of a server.
type components struct {
	db         *postgres.DB
	engine     *engine.Engine
	dlq        *dlq.Service
	operations *operation.Service
	holds      *hold.Service
	cases      *cases.Service
	explain    *explain.Service
	line       *brokerLine
	relay      *emission.Relay
	teller     *emission.Notifier
	auth       *auth.Authenticator // nil without authentication
	gate       *overload.Gate
	metrics    http.Handler
	loops      []*loop.Loop
	templates  error    // the errors in template files, if any
	faults     []string // the same, one per element
}

func (p components) loopStatuses() []loop.Status {
	list := make([]loop.Status, len(p.loops))
	for i, l := range p.loops {
		list[i] = l.Status()
	}
	return list
}

// closeDatabase closes the connections. It waits up to lastMoment for those in use.
func closeDatabase(ctx context.Context, o Options, db *postgres.DB) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		db.Close()
	}()
	select {
	case <-closed:
	case <-time.After(lastMoment):
		o.Log.WarnContext(ctx, "database connections still in use after shutdown")
	}
}

// serve runs the HTTP server and the background work until ctx ends or one of them fails.
func serve(ctx context.Context, o Options, listener net.Listener, p components) error {
	// Shut down requests first, then loops: they are separate groups.
	limit, end := context.WithCancel(context.WithoutCancel(ctx)) // limits running passes
	defer end()
	loopsCtx, stopLoops := context.WithCancel(loop.WithLimit(context.WithoutCancel(ctx), limit))
	defer stopLoops()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	loops := p.start(loop.NewGroup(loopsCtx), stop)

	url := baseURL(listener.Addr(), o.Config.Server)
	front := loop.NewGroup(ctx)
	front.Go("http", func(ctx context.Context) error { return serveHTTP(ctx, o, listener, p) })
	_, err := fmt.Fprintf(o.Out, "tasker is ready at %s\n", url)
	switch {
	case err != nil: // the address could not be printed
		stop()
	case o.Beside != nil:
		front.Go("beside", func(ctx context.Context) error { return o.Beside(ctx, url, p.engine) })
	}
	err = errors.Join(err, front.Wait())
	o.Log.InfoContext(ctx, "stopping", "url", url)
	stopLoops()
	return errors.Join(err, stopLoopGroup(context.WithoutCancel(ctx), o, loops, end))
}

// lastMoment is the time within which cancelled passes must return.
const lastMoment = 5 * time.Second

// stopLoopGroup waits until the loops have ended. It cancels running passes after the shutdown
// timeout. Its error names the loops that do not return.
func stopLoopGroup(ctx context.Context, o Options, loops *loop.Group, end func()) error {
	timer := time.AfterFunc(o.Config.Server.ShutdownTimeout(), end)
	defer timer.Stop()
	limit, cancel := context.WithTimeout(ctx, o.Config.Server.ShutdownTimeout()+lastMoment)
	defer cancel()
	return loops.WaitUntil(limit)
}

// start starts the background work. If any of it ends, the server stops, because tasks would get
// stuck without its timers.
func (p components) start(loops *loop.Group, stop func()) *loop.Group {
	runs := func(name string, f func(context.Context) error) {
		loops.Go(name, func(ctx context.Context) error {
			defer stop()
			return f(ctx)
		})
	}
	run := func(name string, f func(context.Context) error) {
		runs(name, func(ctx context.Context) error { return f(postgres.WithConnClass(ctx, postgres.Timers)) })
	}
	loop.ShareSlot(p.loops)
	for _, l := range p.loops {
		run(l.Name, l.Run)
	}
	run("listen for work", p.engine.Listen)
	run("announce steps", p.line.run)
	run("send events", p.relay.Run)
	if p.auth != nil {
		runs("poll for changes of access", p.auth.Run) // it selects its own connection class, because requests wait for it
	}
	return loops
}

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	readTimeout   = time.Minute
	writeTimeout  = 2 * time.Minute // more than the longest claim waits
	maxHeader     = 64 << 10
)

func serveHTTP(ctx context.Context, o Options, listener net.Listener, p components) error {
	guard := &hostguard.Guard{LoopbackOnly: isLoopback(listener.Addr()), AllowedHosts: o.Config.Server.Hosts()}
	sinks := slices.Concat(o.Config.Emission.SinkNames(), o.Config.Emission.ReceiverNames())
	live := feed.New(p.db, feed.Options{Log: o.Log})
	handler := api.New(ctx, api.Options{
		DB: p.db, Engine: p.engine, DLQ: p.dlq, Operations: p.operations, Holds: p.holds, Cases: p.cases, Explain: p.explain, Broker: p.line.healthCheck(), Metrics: p.metrics, Log: o.Log, MaxBodyBytes: int64(o.Config.Server.MaxBodyBytes), MaxInflightBytes: int64(o.Config.Server.MaxInflightBytes), Version: o.Version,
		Feed: api.FeedOptions{Feed: live, Source: o.Config.Emission.Source}, Guard: guard, Sinks: sinks, PublicURL: o.Config.LinkBase(), Teller: p.teller, Loops: p.loopStatuses, Templates: p.templates,
		Auth: p.auth, Gate: p.gate, WorkerCertificates: o.Config.Server.TLSClientCAFile != "",
	})
	mounted := maps.Clone(o.Mount)
	if o.Config.UI.Enabled {
		if mounted == nil {
			mounted = map[string]http.Handler{}
		}
		pages := web.New(ctx, web.Options{
			Feed: live, DB: p.db, Engine: p.engine, DLQ: p.dlq, Cases: p.cases, Operations: p.operations, Holds: p.holds, Explain: p.explain, Auth: p.auth, Gate: p.gate, Log: o.Log, Guard: guard, Version: o.Version, Sinks: sinks, ReadOnly: o.Config.UI.ReadOnly, PublicURL: o.Config.LinkBase(),
			TemplateFaults: p.faults,
		})
		mounted[web.Root] = pages
		handler = redirectRoot(handler, pages)
	}
	server := &http.Server{
		Handler: behindProxies(closeChunked(mountHandlers(handler, mounted)), o.Config.Server.ProxyNetworks()), ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Config.Server.ShutdownTimeout())
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		o.Log.WarnContext(ctx, "requests aborted after the shutdown timeout", "err", err)
		return errors.Join(server.Close(), ignoreClosed(<-served))
	}
	return ignoreClosed(<-served)
}

// closeChunked closes the connection after a chunked request. If the request also had a Content-Length,
// which net/http hides, a proxy may disagree about where the next request begins (RFC 9112, 6.1).
func closeChunked(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

// redirectRoot serves the UI to browsers that open the root path.
func redirectRoot(handler, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
			pages.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// mountHandlers returns a handler that serves the paths in more with their handlers, and all other
// paths with handler.
func mountHandlers(handler http.Handler, more map[string]http.Handler) http.Handler {
	if len(more) == 0 {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for path, h := range more {
			if r.URL.Path == path || strings.HasPrefix(r.URL.Path, path+"/") {
				h.ServeHTTP(w, r)
				return
			}
		}
		handler.ServeHTTP(w, r)
	})
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
