package main

import (
	"os"

	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/ctl"
)

// newDrillCommand returns `tasker-ctl drill` as a command of the server program.
func newDrillCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "drill",
		Short:              "Practice incident response in a sandbox",
		Long:               "Practice incident response in a sandbox namespace of a running server. Same as tasker-ctl drill.",
		Example:            "  tasker drill run\n  tasker drill run --server https://tasker.example --tasks 100\n  tasker drill clean",
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			code := ctl.Main(append([]string{"tasker-ctl", "drill"}, args...), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr(), os.Environ())
			if code != cli.ExitOK {
				return cli.Exit(code)
			}
			return nil
		},
	}
}
