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

func newKeyCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "key",
		Short: "Create the first API key",
		Example: "  tasker key bootstrap --database-url postgres://tasker@db/tasker\n" +
			"  tasker-ctl key create deploy --grant developer@payments    # all other keys",
	}, newKeyBootstrapCommand())
}

func newKeyBootstrapCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bootstrap",
		Short: "Create the first administrator key",
		Long: `Create the first API key, with the grant admin@*, and print its token once, on standard
output. The token cannot be shown again.

The command needs the database but no server. The exit code is 1 if any key was ever created:
administrators create other keys with tasker-ctl key create.`,
		Example: "  tasker key bootstrap --database-url postgres://tasker@db/tasker\n" +
			"  (umask 077; tasker key bootstrap --config tasker.toml --name root > admin.token)",
		Args: cli.Args,
	}
	name := c.Flags().String("name", "admin", "name of the key; the history records its actions as key:NAME")
	c.PreRunE = func(c *cobra.Command, _ []string) error { return cli.RejectEmpty(c) }
	withDatabase(c, func(ctx context.Context, conn *pgx.Conn) error {
		if err := schema.Check(ctx, conn); err != nil {
			return err
		}
		db, err := postgres.Open(ctx, conn.Config().ConnString(), postgres.Options{MaxConns: 2})
		if err != nil {
			return app.WrapUnreachable(err)
		}
		defer db.Close()
		token, err := auth.BootstrapKey(ctx, db, *name)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "Created the API key %s with all permissions. Its token is shown only once:\n", *name)
		if _, err := fmt.Fprintln(c.OutOrStdout(), token); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(c.ErrOrStderr(), "Next: TASKER_TOKEN=… tasker-ctl whoami, then tasker-ctl key create for other users")
		return nil
	})
	return c
}
