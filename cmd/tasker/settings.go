package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/config"
)

// configFlags loads a command's configuration from a file, the environment and flags.
type configFlags struct {
	file  string
	flags map[string]*string // by configuration key
}

func newConfigFlags(c *cobra.Command) *configFlags {
	s := &configFlags{flags: map[string]*string{}}
	c.Flags().StringVar(&s.file, "config", "", "configuration file, in TOML")
	return s
}

func (s *configFlags) add(c *cobra.Command, name, key, usage string) {
	s.flags[key] = c.Flags().String(name, "", usage)
}

// load returns the configuration. Flags override the environment, which overrides the file.
func (s *configFlags) load() (config.Config, error) {
	cfg, err := config.Load(s.file, os.Environ())
	if err != nil {
		return cfg, err
	}
	for key, value := range s.flags {
		if *value == "" {
			continue
		}
		if err := cfg.Set(key, *value); err != nil {
			return cfg, cli.UsageError{Text: err.Error()}
		}
	}
	return cfg, nil
}

func newConfigCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration",
		Long: `Print the effective configuration. The environment overrides the file, which overrides the
defaults. Passwords are hidden. If the configuration is invalid, the errors are printed and the
exit code is 1.

tasker config keys lists all settings.`,
		Example: "  tasker config --config tasker.toml\n  TASKER_LOG_LEVEL=debug tasker config",
	}
	s := newConfigFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := s.load()
		if err != nil {
			return err
		}
		doc, err := toml.Marshal(cfg.Redacted())
		if err != nil {
			return err
		}
		if _, err = c.OutOrStdout().Write(doc); err != nil {
			return err
		}
		if cfg.Database.URL == "" {
			cfg.Database.URL = "postgres:///" // commands that need the URL report that it is missing
		}
		return cfg.Validate()
	}
	c.Args = cli.UnknownCommand
	c.AddCommand(&cobra.Command{
		Use: "keys", Short: "List all settings", Args: cli.Args,
		RunE: func(c *cobra.Command, _ []string) error {
			var b strings.Builder
			for _, k := range config.Keys() {
				fmt.Fprintf(&b, "%s (%s)\n    %s\n", k.Name, k.Env, k.Meaning)
				if k.Values != "" {
					fmt.Fprintf(&b, "    values: %s\n", k.Values)
				}
				fmt.Fprintf(&b, "    default: %s\n", k.Default)
			}
			_, err := fmt.Fprint(c.OutOrStdout(), b.String())
			return err
		},
	})
	return c
}
