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

func newDoctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the integrity of a database",
		Long: `Check the integrity of a database without changing it:

  schema         matches this program, and roles have their privileges
  objects        no index is invalid and every constraint is validated
  transactions   none has been open for an hour, which keeps dead rows from being removed;
                 roles without pg_read_all_stats see only their own
  invariants     histories are complete and legal, every open task can progress, every failed
                 task has an investigation, and counts are correct
  work           no background work is deferred because it failed

Run it after a restore or an upgrade, or when something looks impossible. It runs in one
read-only transaction, next to servers or on a standby. The invariants read the whole
database and use memory and temporary files of the database server: for a large database, use
a standby or a quiet hour. --timeout limits each check.

The exit code is 0 if all checks pass, else 1. A violation is a defect: report it with its
line. Deferred work is retried automatically; its error describes what to repair.`,
		Example: "  tasker doctor --database-url postgres://tasker@db/tasker\n" +
			"  tasker doctor --database-url postgres://tasker@standby/tasker --timeout 1h",
		Args: cli.Args,
	}
	timeout := new(time.Duration)
	c.Flags().Var(cli.Duration(timeout, 10*time.Minute), "timeout", "time limit of each check")
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
			Tell:    func(f doctor.Finding) error { return printFinding(c, f) },
		})
		if err == nil && !sound {
			err = cli.Exit(cli.ExitError)
		}
		return err
	})
	return c
}

// printFinding prints one line for a successful check, or a line for each problem that it found.
func printFinding(c *cobra.Command, f doctor.Finding) error {
	if len(f.Faults) == 0 {
		return printLine(c, fmt.Sprintf("%-11s ok      %s", f.Check, f.Sound))
	}
	for _, fault := range f.Faults {
		if err := printLine(c, fmt.Sprintf("%-11s FAULT   %s", f.Check, fault)); err != nil {
			return err
		}
	}
	return nil
}
