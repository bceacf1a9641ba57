package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schema"
)

func newKey() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "key",
		Short: "Create the first API key",
		Example: "  tasker key bootstrap --database-url postgres://tasker@db/tasker\n" +
			"  tasker-ctl key create deploy --grant developer@payments    # all others",
	}, newKeyBootstrap())
}

// bootstrapConnections are enough for one command.
const bootstrapConnections = 2

func newKeyBootstrap() *cobra.Command {
	c := &cobra.Command{
		Use:   "bootstrap",
		Short: "Create the first administrator key",
		Long: `Create the first API key, an administrator's (admin@*), and print its token once, on
standard output. It is stored nowhere in a readable form: keep it.

It needs the database, and no server. The exit code is 1 when there ever was a key: an
administrator creates all others with tasker-ctl key create.`,
		Example: "  tasker key bootstrap --database-url postgres://tasker@db/tasker\n" +
			"  (umask 077; tasker key bootstrap --config tasker.toml --name root > admin.token)",
		Args: cli.Args,
	}
	name := c.Flags().String("name", "admin", "name of the key; what it does is recorded as done by key:NAME")
	c.PreRunE = func(c *cobra.Command, _ []string) error { return cli.RefuseEmpty(c) }
	withDatabase(c, func(ctx context.Context, conn *pgx.Conn) error {
		if err := schema.Check(ctx, conn); err != nil {
			return err
		}
		db, err := postgres.Open(ctx, conn.Config().ConnString(), postgres.Options{MaxConns: bootstrapConnections})
		if err != nil {
			return app.Unreachable(err)
		}
		defer db.Close()
		token, err := auth.BootstrapKey(ctx, db, *name)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "Created the API key %s, which may do everything. Its token is shown only now:\n", *name)
		if _, err := fmt.Fprintln(c.OutOrStdout(), token); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(c.ErrOrStderr(), "Next: TASKER_TOKEN=… tasker-ctl whoami, and tasker-ctl key create for everybody else")
		return nil
	})
	return c
}
