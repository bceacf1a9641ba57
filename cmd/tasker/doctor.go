package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/doctor"
)

func newDoctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the integrity of a database",
		Long: `Check that a database is sound, and change nothing:

  schema         it is that of this program, and roles have their privileges
  objects        no index is invalid, and no constraint is left unchecked
  transactions   none has been open for an hour, which keeps the rows of ended work from being
                 removed; roles without pg_read_all_stats see only their own
  invariants     the histories have no gap and no illegal move, every open task has a way
                 forward, every failed one an investigation, and counts are right
  work           nothing that servers do by themselves is set aside because it failed

Run it after a restore or an upgrade, or when something looks impossible. It works beside
servers and on a standby, in one read-only transaction. The invariants read the whole
database, with memory and temporary files of the database server: on a large one, take a
standby or a quiet hour. --timeout bounds each check.

The exit code is 0 when everything is as it must be, else 1. A violation is a defect:
report it with its line. Work that is set aside is tried again by itself; its error says
what to repair.`,
		Example: "  tasker doctor --database-url postgres://tasker@db/tasker\n" +
			"  tasker doctor --database-url postgres://tasker@standby/tasker --timeout 1h",
		Args: cli.Args,
	}
	timeout := new(time.Duration)
	c.Flags().Var(cli.Duration(timeout, 10*time.Minute), "timeout", "how long one check may take")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *timeout < time.Second {
			return cli.Usagef("--timeout must be at least 1s, not %s", *timeout)
		}
		return nil
	}
	withConnection(c, pgx.Connect, func(ctx context.Context, conn *pgx.Conn) error {
		sound, err := doctor.Examine(ctx, conn, doctor.Options{
			Timeout: *timeout,
			Begins:  func(what string) { _, _ = fmt.Fprintln(c.ErrOrStderr(), what) },
			Tell:    func(f doctor.Finding) error { return tell(c, f) },
		})
		if err == nil && !sound {
			err = cli.Exit(cli.ExitError)
		}
		return err
	})
	return c
}

// tell writes what one check has found.
func tell(c *cobra.Command, f doctor.Finding) error {
	if len(f.Faults) == 0 {
		return say(c, fmt.Sprintf("%-11s ok      %s", f.Check, f.Sound))
	}
	for _, fault := range f.Faults {
		if err := say(c, fmt.Sprintf("%-11s FAULT   %s", f.Check, fault)); err != nil {
			return err
		}
	}
	return nil
}
