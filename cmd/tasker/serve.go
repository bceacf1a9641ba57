package main

import (
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/cli"
)

func newServe() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a server",
		Long: `Serve on a PostgreSQL of your own. Any number of servers may share one database.

The database must have the schema of this program: tasker migrate up. One that is
just starting is waited for. The server prints one line with its address when it
is ready, and stops in order on SIGTERM or Ctrl-C; a second signal ends it at once.

On a loopback address it asks nobody who they are, unless auth.mode is required. On any
other it asks every caller for an API key; tasker key bootstrap makes the first one.

Flags override the environment (TASKER_…, DATABASE_URL), which overrides the file;
tasker config keys lists every setting. The exit code is 0 after an orderly stop,
2 when the command line is wrong, else 1.`,
		Example: "  tasker serve --database-url postgres://tasker@db/tasker --templates ./templates\n" +
			"  DATABASE_URL=postgres://… tasker serve --config tasker.toml --listen 127.0.0.1:8080",
		Args: cli.Args,
	}
	s := newSettings(c)
	s.flag(c, "database-url", "database.url", "PostgreSQL to use (also DATABASE_URL)")
	s.flag(c, "listen", "server.listen", "address to listen on (default 127.0.0.1:8080)")
	s.flag(c, "templates", "server.templates", "directory of templates to register at start")
	s.flag(c, "log-format", "log.format", "text or json")
	s.flag(c, "log-level", "log.level", "debug, info, warn or error")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := s.load()
		if err != nil {
			return err
		}
		if err := cfg.Validate(); err != nil {
			return err
		}
		return served(c.Context(), app.Run(c.Context(), app.Options{
			Config: cfg, Version: cli.Version(), Log: cfg.Logger(c.ErrOrStderr()), Out: c.OutOrStdout(),
		}))
	}
	return c
}
