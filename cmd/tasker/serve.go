package main

import (
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/cli"
)

func newServeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a server",
		Long: `Run a server. Any number of servers can share a database.

The database must have the schema of this program: tasker migrate up. The server waits for a
database that is starting. It prints a line with its address when it is ready, and stops
gracefully on SIGTERM or Ctrl-C; a second signal stops it at once.

On a loopback address callers need no API key unless auth.mode is required. On other
addresses every caller needs one; tasker key bootstrap creates the first key.

Flags override the environment (TASKER_…, DATABASE_URL), which overrides the file; tasker
config keys lists all settings. The exit code is 0 after a graceful stop, 2 for a usage
error, else 1.`,
		Example: "  tasker serve --database-url postgres://tasker@db/tasker --templates ./templates\n" +
			"  DATABASE_URL=postgres://… tasker serve --config tasker.toml --listen 127.0.0.1:8080",
		Args: cli.Args,
	}
	s := newConfigFlags(c)
	s.add(c, "database-url", "database.url", "database URL (also DATABASE_URL)")
	s.add(c, "listen", "server.listen", "address to listen on (default 127.0.0.1:8080)")
	s.add(c, "templates", "server.templates", "directory of templates to register at start")
	s.add(c, "log-format", "log.format", "text or json")
	s.add(c, "log-level", "log.level", "debug, info, warn or error")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := s.load()
		if err != nil {
			return err
		}
		if err := cfg.Validate(); err != nil {
			return err
		}
		return serveError(c.Context(), app.Run(c.Context(), app.Options{
			Config: cfg, Version: cli.Version(), Log: cfg.Logger(c.ErrOrStderr()), Out: c.OutOrStdout(),
		}))
	}
	return c
}
