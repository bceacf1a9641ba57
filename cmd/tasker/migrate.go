package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schema"
)

func newMigrateCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "migrate",
		Short: "Manage the database schema",
		Example: "  tasker migrate status --database-url postgres://tasker@db/tasker\n" +
			"  tasker migrate up --database-url postgres://tasker@db/tasker\n" +
			"  tasker migrate roles | psql --dbname tasker",
	}, newMigrateUpCommand(), newMigrateStatusCommand(), newMigrateRolesCommand())
}

func newMigrateRolesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "roles",
		Short: "Print SQL to create the database roles",
		Long: `Print the SQL for a database administrator to create Tasker's database roles. The command does
not connect to a database, because roles belong to the whole cluster.

PREFIX_migrate owns the schema, PREFIX_server has the privileges of a server, and
PREFIX_reader reads the data of dashboards. With these roles, tasker migrate up acts as
PREFIX_migrate and grants the privileges of the other two. They are optional: without them,
the user of the server owns the schema.`,
		Example: "  tasker migrate roles | psql --set ON_ERROR_STOP=1 --dbname tasker\n" +
			"  tasker migrate roles --prefix staging",
		Args: cli.Args,
	}
	prefix := c.Flags().String("prefix", schema.DefaultRolePrefix, "prefix of the role names")
	c.RunE = func(c *cobra.Command, _ []string) error {
		sql, err := schema.RolesSQL(*prefix)
		if err != nil {
			return cli.Usagef("--prefix: %v", err)
		}
		_, err = fmt.Fprint(c.OutOrStdout(), sql)
		return err
	}
	return c
}

func newMigrateUpCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "up",
		Short: "Apply pending migrations",
		Long: `Apply pending migrations, each in its own transaction. Functions and views are replaced if
they changed, and dropped if this program does not define them.

Servers keep running. A migration waits at most two seconds for a lock, because all
statements of all servers would queue behind it. If another transaction holds the lock for
longer, such as pg_dump, the migration is rolled back and retried until --wait has passed.
Applied migrations stay applied; the next migrate up continues with the rest.

If the database has the roles of tasker migrate roles, the command acts as the role that owns
the schema, and grants the others their privileges, also on new objects.

Several may run at once: one migrates, the others report for whom they wait, until --wait has
passed. A database that a newer program has migrated is rejected. There is no migration down:
restore a backup.`,
		Example: "  tasker migrate up --database-url postgres://tasker@db/tasker",
		Args:    cli.Args,
	}
	wait := new(time.Duration)
	c.Flags().Var(cli.Duration(wait, schema.DefaultWait), "wait", "how long to wait for locks and concurrent migrations")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *wait <= 0 {
			return cli.Usagef("--wait must be more than 0, not %s", *wait)
		}
		return nil
	}
	withDatabase(c, func(ctx context.Context, conn *pgx.Conn) error {
		applied, err := schema.UpWith(ctx, conn, schema.Options{Wait: *wait, Progress: func(message string) {
			_, _ = fmt.Fprintln(c.ErrOrStderr(), message)
		}})
		if err != nil {
			return err
		}
		for _, name := range applied {
			if _, err := fmt.Fprintln(c.OutOrStdout(), "applied", name); err != nil {
				return err
			}
		}
		if len(applied) == 0 {
			_, err = fmt.Fprintln(c.OutOrStdout(), "the schema is current; nothing to do")
		}
		return err
	})
	return c
}

func newMigrateStatusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show applied and pending migrations",
		Long: "Show applied and pending migrations without changing anything. The exit code is 0 if the\n" +
			"database has the schema of this program, else 1.",
		Example: "  tasker migrate status --database-url postgres://tasker@db/tasker || echo not yet",
		Args:    cli.Args,
	}
	withDatabase(c, func(ctx context.Context, conn *pgx.Conn) error {
		report, err := schema.Status(ctx, conn)
		if err != nil {
			return err
		}
		t := table.NewWriter()
		t.SetOutputMirror(c.OutOrStdout())
		t.SetStyle(table.StyleLight)
		t.AppendHeader(table.Row{"version", "name", "applied at"})
		for _, m := range report.Migrations {
			t.AppendRow(table.Row{fmt.Sprintf("%04d", m.Version), m.Name, formatAppliedAt(m.AppliedAt)})
		}
		state := formatAppliedAt(report.ObjectsAt)
		if report.ObjectsAt != nil && !report.ObjectsCurrent {
			state += ", by another version"
		}
		t.AppendRow(table.Row{"", "functions and views", state})
		t.AppendRow(table.Row{"", "privileges of roles", formatPrivileges(report)})
		t.Render()
		if err := report.Err(); err != nil {
			return errors.Join(cli.Exit(cli.ExitError), printLine(c, err.Error()))
		}
		return printLine(c, "the schema is current")
	})
	return c
}

func formatPrivileges(r schema.Report) string {
	switch {
	case len(r.Roles) == 0:
		return "no roles: the user of the server owns the schema"
	case len(r.Ungranted) > 0:
		return "pending"
	}
	return "granted to " + strings.Join(r.Roles[1:], " and ")
}

func printLine(c *cobra.Command, text string) error {
	_, err := fmt.Fprintln(c.OutOrStdout(), text)
	return err
}

func formatAppliedAt(at *time.Time) string {
	if at == nil {
		return "pending"
	}
	return at.UTC().Format(time.RFC3339)
}

// connectTimeout limits how long connecting to the database may take, not the work on it.
const connectTimeout = 15 * time.Second

// withDatabase makes a command run on a connection to the primary.
func withDatabase(c *cobra.Command, run func(context.Context, *pgx.Conn) error) {
	withConnection(c, postgres.Connect, run)
}

// withConnection makes a command run on a connection to the database.
func withConnection(c *cobra.Command, connect func(context.Context, string) (*pgx.Conn, error), run func(context.Context, *pgx.Conn) error) {
	s := newConfigFlags(c)
	s.add(c, "database-url", "database.url", "database URL (also DATABASE_URL)")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		cfg, err := s.load()
		if err != nil {
			return err
		}
		if cfg.Database.URL == "" {
			return cli.Usagef("no database: set --database-url postgres://user@host/name or DATABASE_URL")
		}
		ctx, cancel := context.WithTimeout(c.Context(), connectTimeout)
		defer cancel()
		conn, err := connect(ctx, cfg.Database.URL)
		if err != nil {
			return app.WrapUnreachable(err)
		}
		defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(c.Context()))) }()
		return run(c.Context(), conn)
	}
}
