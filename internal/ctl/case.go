package ctl

import (
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/cli"
)

func (p *program) caseCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "case",
		Short:   "Tell which failures have one cause",
		Example: `  echo '{"message": "gateway answered 503"}' | tasker-ctl case fingerprint`,
	}, p.fingerprintCommand())
}
