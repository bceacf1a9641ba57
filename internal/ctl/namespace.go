package ctl

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

var namespaceCommand = group(help{
	use: "namespace", short: "Manage namespace weights",
	long: `Manage the shares of worker capacity that namespaces get.

Workers that serve several namespaces take turns among them. While both have work, a namespace
with weight 3 gets three steps for each step of a namespace with weight 1.`,
	example: "  tasker-ctl namespace list\n  tasker-ctl namespace weight payments 3",
},
	list(endpoint.ListNamespaces, help{
		use: "list", short: "List namespaces with custom weights",
		example: "  tasker-ctl namespace list -o json | jq '.namespaces[].weight'",
	}, "All namespaces have the weight 1.", "namespace, weight, set by, set at", func(n apiv1.Namespace) []any {
		return []any{n.Namespace, formatWeight(n.Weight), n.SetBy, n.SetAt}
	}),
	plain(endpoint.SetNamespace, help{
		use: "weight NAMESPACE WEIGHT", short: "Set the weight of a namespace",
		example: "  tasker-ctl namespace weight payments 3",
	}, func(p *program, n apiv1.Namespace) {
		p.printDone("Weight set!")
		p.printFields("  ", field{"Namespace", n.Namespace}, field{"Weight", formatWeight(n.Weight)})
	}, func(_ *program, n *apiv1.SetNamespace, a arguments) (err error) {
		if n.Weight, err = strconv.ParseFloat(a.text[1], 64); err != nil {
			return cli.Usagef("WEIGHT must be a number from 0.01 to 1000, not %q", a.text[1])
		}
		return nil
	}),
	(*program).newNamespaceResetCommand,
)

func formatWeight(weight float64) string { return strconv.FormatFloat(weight, 'f', -1, 64) }

func (p *program) newNamespaceResetCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use: "reset NAMESPACE", short: "Reset a namespace to the default weight",
		example: "  tasker-ctl namespace reset payments",
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.SetNamespace, error) {
		return apiv1.SetNamespace{Weight: 1}, api.DeleteNamespace(ctx, a.text[0])
	}, func(apiv1.SetNamespace) { p.printDone("The namespace has the weight 1.") })
}
