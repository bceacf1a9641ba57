package ctl

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for a release.
var version string

// ownVersion returns the version of this program.
func ownVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}

func (p *program) versionCommand() *cobra.Command {
	var remote bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program and, with --remote, of the server",
		Example: "  tasker-ctl version\n  tasker-ctl version --remote -o json",
		Args:    named(),
		RunE: func(c *cobra.Command, _ []string) error {
			v := map[string]string{"client": ownVersion(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			if remote {
				api, err := p.api()
				if err != nil {
					return err
				}
				health, err := api.Health(c.Context())
				if err != nil {
					return err
				}
				v["server"], v["server_url"] = health.Version, api.URL()
			}
			return p.show(v, func() {
				fmt.Fprintf(p.out, "tasker-ctl %s (%s, %s)\n", v["client"], v["go"], v["platform"])
				if remote {
					fmt.Fprintf(p.out, "server %s at %s\n", clean(v["server"]), v["server_url"])
				}
			})
		},
	}
	c.Flags().BoolVar(&remote, "remote", false, "ask the server too")
	return c
}
