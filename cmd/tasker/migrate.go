package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/schema"
)

func newMigrate() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "migrate",
		Short: "Migrate a database to the schema of this program, or show its state",
		Example: "  tasker migrate status --database-url postgres://tasker@db/tasker\n" +
			"  tasker migrate up --database-url postgres://tasker@db/tasker",
	}, newMigrateUp(), newMigrateStatus())
}

func newMigrateUp() *cobra.Command {
	c := &cobra.Command{
		Use:   "up",
		Short: "Apply what is missing",
		Long: `Apply what is missing, each migration in a transaction of its own; functions and
views are replaced when they have changed.

Servers of the previous version keep working during and after it. No lock is waited
for longer than two seconds, because every statement of every server would wait
behind it: while something long holds one, such as pg_dump, the migration is rolled
back and retried, until --wait is over. What was applied before stays, and the
next migrate up continues from there.

Several may run at once: one works, the others wait. A database that a newer
program has migrated is refused. There is no migration down: restore a backup.`,
		Example: "  tasker migrate up --database-url postgres://tasker@db/tasker",
		Args:    cli.Args,
	}
	wait := c.Flags().Duration("wait", schema.DefaultWait, "how long to retry while other transactions hold locks that are needed")
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

func newMigrateStatus() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations are applied",
		Long: "Show which migrations are applied, and change nothing. The exit code is 0 when the\n" +
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
			t.AppendRow(table.Row{fmt.Sprintf("%04d", m.Version), m.Name, appliedAt(m.AppliedAt)})
		}
		state := appliedAt(report.ObjectsAt)
		if report.ObjectsAt != nil && !report.ObjectsCurrent {
			state += ", by another version"
		}
		t.AppendRow(table.Row{"", "functions and views", state})
		t.Render()
		if err := report.Err(); err != nil {
			return errors.Join(cli.Exit(cli.ExitError), say(c, err.Error()))
		}
		return say(c, "the schema is current")
	})
	return c
}

func say(c *cobra.Command, text string) error {
	_, err := fmt.Fprintln(c.OutOrStdout(), text)
	return err
}

func appliedAt(at *time.Time) string {
	if at == nil {
		return "pending"
	}
	return at.UTC().Format(time.RFC3339)
}

// connectTimeout bounds connecting to the database, not the work on it.
const connectTimeout = 15 * time.Second

// withDatabase makes a command run on a connection to the database.
func withDatabase(c *cobra.Command, run func(context.Context, *pgx.Conn) error) {
	s := newSettings(c)
	s.flag(c, "database-url", "database.url", "PostgreSQL to use (also DATABASE_URL)")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		cfg, err := s.load()
		if err != nil {
			return err
		}
		if cfg.Database.URL == "" {
			return cli.Usagef("no database: give --database-url postgres://user@host/name, or set DATABASE_URL")
		}
		ctx, cancel := context.WithTimeout(c.Context(), connectTimeout)
		defer cancel()
		conn, err := pgx.Connect(ctx, cfg.Database.URL)
		if err != nil {
			return app.Unreachable(err)
		}
		defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(c.Context()))) }()
		return run(c.Context(), conn)
	}
}
