package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/devpg"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/schema"
)

// devOptions contains the flags of tasker dev.
type devOptions struct {
	dataDir  string
	printURL bool
	logLevel *string
	demo     demoOptions

	testClock bool
}

// isLogLevelSet reports whether a flag or the environment sets the log level. It ignores the
// configuration file, which is meant for servers.
func (o devOptions) isLogLevelSet() bool {
	return *o.logLevel != "" || os.Getenv("TASKER_LOG_LEVEL") != ""
}

func newDevCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a development server with its own PostgreSQL",
		Long: `Run a development server with its own PostgreSQL.

PostgreSQL 15 or newer is used if installed, or downloaded once. Its data is in the data
directory and survives restarts. As root, PostgreSQL runs as an unprivileged user, whose
other processes can read its password; prefer to run as an ordinary user. Ctrl-C stops
everything.

--demo runs a sample shop, with orders that finish and orders that need an operator. It
prints commands to try in a second terminal.

--test-clock is for tests in any language: POST /test/clock with {"advance_ms": 60000}
advances the clock of the database, so that retries, waits and timeouts become due.`,
		Example: "  tasker dev --demo\n  tasker dev --templates ./templates --data-dir ./data --listen 127.0.0.1:9000",
		Args:    cli.Args,
	}
	s := newConfigFlags(c)
	var o devOptions
	s.add(c, "listen", "server.listen", "address to listen on (default 127.0.0.1:8080; port 0 selects a free port)")
	s.add(c, "templates", "server.templates", "directory of templates to register at start")
	s.add(c, "log-level", "log.level", "debug, info, warn or error (default warn)")
	o.logLevel = s.flags["log.level"]
	shared, err := devpg.DefaultDataDir()
	if err != nil {
		shared = "none: no home directory found"
	}
	c.Flags().StringVar(&o.dataDir, "data-dir", "", "data directory of PostgreSQL (default, shared by all your projects: "+shared+")")
	c.Flags().BoolVar(&o.printURL, "print-url", false, "print the URL of the private PostgreSQL and exit")
	c.Flags().BoolVar(&o.testClock, "test-clock", false, "use a new, empty database with a clock that tests advance")
	o.demo.addFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.printURL {
			url, err := devpg.RunningURL(o.dataDir)
			if err == nil {
				_, err = fmt.Fprintln(c.OutOrStdout(), url)
			}
			return err
		}
		cfg, err := s.load()
		if err != nil {
			return err
		}
		if err := o.check(c, cfg); err != nil {
			return err
		}
		return serveError(c.Context(), runDev(c, cfg, o))
	}
	return c
}

// check validates the configuration and the flags.
func (o devOptions) check(c *cobra.Command, cfg config.Config) error {
	cfg.Database.URL = "postgres://127.0.0.1/" // the private server has a URL once it runs
	if err := cfg.Validate(); err != nil {
		return err
	}
	return o.demo.check(c)
}

// stopTimeout is the timeout for the shutdown of the private PostgreSQL.
const stopTimeout = time.Minute

// runDev runs a server on a private PostgreSQL until it is stopped, and then stops PostgreSQL too.
func runDev(c *cobra.Command, cfg config.Config, o devOptions) (err error) {
	// The start may take long and reports its progress. Afterwards a line per request would hide the
	// output for the user.
	start := cfg.Logger(c.ErrOrStderr())
	if !o.isLogLevelSet() {
		cfg.Log.Level = "warn"
	}
	log := cfg.Logger(c.ErrOrStderr())
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	// Detect an address in use before PostgreSQL starts.
	listener, err := app.Listen(ctx, cfg.Server.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // for errors before the server takes it over
	if o.demo.on && (app.AsksCallers(cfg.Auth, listener.Addr()) || cfg.Server.TLSCertFile != "") {
		return cli.Usagef("--demo is only for this machine: remove auth.mode and server.tls_cert_file, and listen on 127.0.0.1")
	}
	if o.testClock {
		if err := checkTestClock(listener.Addr()); err != nil {
			return err
		}
	}
	pg, err := devpg.Start(ctx, devpg.Options{DataDir: o.dataDir, Log: start})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPostgres(ctx, pg)) }()
	watch := watchPostgres(ctx, pg, cancel)
	defer func() {
		cancel(nil)
		err = errors.Join(err, watch.Wait())
	}()
	cfg.Database.URL = pg.StrictURL()
	if o.testClock {
		if cfg.Database.URL, err = freshDatabase(ctx, cfg.Database.URL); err != nil {
			return err
		}
	}
	if err := migrateDatabase(ctx, cfg.Database.URL, start); err != nil {
		return err
	}
	server := app.Options{Config: cfg, Version: cli.Version(), Log: log, Out: c.OutOrStdout(), Listener: listener, StrictTemplates: true}
	if o.demo.on {
		o.demo.prepare(&server)
	}
	if o.testClock {
		clock, err := startTestClock(ctx, &server)
		if err != nil {
			return err
		}
		defer func() { _ = clock.close(ctx) }()
	}
	err = app.Run(ctx, server)
	if cause := context.Cause(ctx); errors.Is(cause, errPostgresEnded) {
		return errors.Join(cause, err)
	}
	return err
}

// watchPostgres calls cancel when the private PostgreSQL exits before ctx ends.
func watchPostgres(ctx context.Context, pg *devpg.Server, cancel context.CancelCauseFunc) *loop.Group {
	watch := loop.NewGroup(ctx)
	watch.Go("private PostgreSQL", func(ctx context.Context) error {
		select {
		case <-pg.Done():
			cancel(errPostgresEnded)
		case <-ctx.Done():
		}
		return nil
	})
	return watch
}

var errPostgresEnded = errors.New("the private PostgreSQL exited unexpectedly: see postgres.log in the data directory")

func stopPostgres(ctx context.Context, pg *devpg.Server) error {
	if errors.Is(context.Cause(ctx), errPostgresEnded) {
		return nil // already reported
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return pg.Stop(ctx)
}

func migrateDatabase(ctx context.Context, url string, log *slog.Logger) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the private PostgreSQL: %w", app.WrapUnreachable(err))
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	applied, err := schema.Up(ctx, conn)
	for _, name := range applied {
		log.InfoContext(ctx, "migrated", "file", name)
	}
	return err
}
