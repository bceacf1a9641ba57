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

// devOptions has the flags of tasker dev.
type devOptions struct {
	dataDir  string
	printURL bool
	logLevel *string
	demo     demoOptions
}

// logLevelIsSet reports whether a flag or the environment sets the log level. A file
// does not count: it is meant for servers.
func (o devOptions) logLevelIsSet() bool {
	return *o.logLevel != "" || os.Getenv("TASKER_LOG_LEVEL") != ""
}

func newDev() *cobra.Command {
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a development server with its own PostgreSQL",
		Long: `Serve on this machine, with a private PostgreSQL.

PostgreSQL 15 or newer is found on the machine, or fetched once. Its data is in the
data directory and survives restarts; as root it runs as an unprivileged user,
whose other processes can read its password: an ordinary user is safer.
Ctrl-C ends everything.

--demo runs a small shop: orders that finish, and orders that need an operator. It
prints what to try in a second terminal.`,
		Example: "  tasker dev --demo\n  tasker dev --templates ./templates --data-dir ./data --listen 127.0.0.1:9000",
		Args:    cli.Args,
	}
	s := newSettings(c)
	var o devOptions
	s.flag(c, "listen", "server.listen", "address to listen on (default 127.0.0.1:8080; port 0 takes any free one)")
	s.flag(c, "templates", "server.templates", "directory of templates to register at start")
	s.flag(c, "log-level", "log.level", "debug, info, warn or error (default warn)")
	o.logLevel = s.flags["log.level"]
	shared, err := devpg.DefaultDataDir()
	if err != nil {
		shared = "none: there is no home directory"
	}
	c.Flags().StringVar(&o.dataDir, "data-dir", "", "directory of PostgreSQL's data (default, one for all of your projects: "+shared+")")
	c.Flags().BoolVar(&o.printURL, "print-url", false, "print the URL of the private PostgreSQL and exit")
	o.demo.flags(c)
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
		return served(c.Context(), dev(c, cfg, o))
	}
	return c
}

// check returns what is wrong before anything is started.
func (o devOptions) check(c *cobra.Command, cfg config.Config) error {
	cfg.Database.URL = "postgres://127.0.0.1/" // the private one has an address only once it runs
	if err := cfg.Validate(); err != nil {
		return err
	}
	return o.demo.check(c)
}

// stopPatience bounds the end of the private PostgreSQL.
const stopPatience = time.Minute

// dev runs a server on a private PostgreSQL, and stops both.
func dev(c *cobra.Command, cfg config.Config, o devOptions) (err error) {
	// The start may take long, and says why; a line for every request would bury
	// what a person wants to see.
	start := cfg.Logger(c.ErrOrStderr())
	if !o.logLevelIsSet() {
		cfg.Log.Level = "warn"
	}
	log := cfg.Logger(c.ErrOrStderr())
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	// First, so that an address in use is reported before PostgreSQL is started.
	listener, err := app.Listen(ctx, cfg.Server.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // the server closes it; this is for the errors before
	if o.demo.on && (app.AsksCallers(cfg.Auth, listener.Addr()) || cfg.Server.TLSCertFile != "") {
		return cli.Usagef("--demo is for this machine alone: leave out auth.mode and server.tls_cert_file, and listen on 127.0.0.1")
	}
	pg, err := devpg.Start(ctx, devpg.Options{DataDir: o.dataDir, Log: start})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPostgres(ctx, pg)) }()
	watch := loop.NewGroup(ctx)
	watch.Go("private PostgreSQL", func(ctx context.Context) error {
		select {
		case <-pg.Done():
			cancel(errPostgresEnded)
		case <-ctx.Done():
		}
		return nil
	})
	defer func() {
		cancel(nil)
		err = errors.Join(err, watch.Wait())
	}()
	cfg.Database.URL = pg.StrictURL()
	if err := migrate(ctx, cfg.Database.URL, start); err != nil {
		return err
	}
	server := app.Options{Config: cfg, Version: cli.Version(), Log: log, Out: c.OutOrStdout(), Listener: listener, StrictTemplates: true}
	if o.demo.on {
		o.demo.prepare(&server)
	}
	err = app.Run(ctx, server)
	if cause := context.Cause(ctx); errors.Is(cause, errPostgresEnded) {
		return errors.Join(cause, err)
	}
	return err
}

var errPostgresEnded = errors.New("the private PostgreSQL ended by itself; its log is postgres.log in the data directory")

func stopPostgres(ctx context.Context, pg *devpg.Server) error {
	if errors.Is(context.Cause(ctx), errPostgresEnded) {
		return nil // it has been reported
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	return pg.Stop(ctx)
}

func migrate(ctx context.Context, url string, log *slog.Logger) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("the private PostgreSQL: %w", app.Unreachable(err))
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	applied, err := schema.Up(ctx, conn)
	for _, name := range applied {
		log.InfoContext(ctx, "migrated", "file", name)
	}
	return err
}
