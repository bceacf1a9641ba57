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

// settings has the sources of the configuration of a command: a file, the
// environment, and the flags that set keys.
type settings struct {
	file  string
	flags map[string]*string // by key
}

func newSettings(c *cobra.Command) *settings {
	s := &settings{flags: map[string]*string{}}
	c.Flags().StringVar(&s.file, "config", "", "configuration file, in TOML")
	return s
}

// flag adds a flag that sets a key.
func (s *settings) flag(c *cobra.Command, name, key, usage string) {
	s.flags[key] = c.Flags().String(name, "", usage)
}

// load returns the configuration: flags override the environment, which overrides the
// file, which overrides the defaults.
func (s *settings) load() (config.Config, error) {
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

func newConfig() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration",
		Long: `Print the effective configuration: the environment overrides the file, which overrides the
defaults. Passwords are hidden. The exit code is 1, with what is wrong, if no server could
start with it.

tasker config keys lists every setting.`,
		Example: "  tasker config --config tasker.toml\n  TASKER_LOG_LEVEL=debug tasker config",
	}
	s := newSettings(c)
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
			cfg.Database.URL = "postgres:///" // the command that needs it reports that it is missing
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
