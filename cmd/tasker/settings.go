package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/config"
)

// settings is where the configuration of a command comes from: a file, the
// environment, and the flags that stand for keys.
type settings struct {
	file  string
	flags map[string]*string // by key
}

func newSettings(c *cobra.Command) *settings {
	s := &settings{flags: map[string]*string{}}
	c.Flags().StringVar(&s.file, "config", "", "configuration file, in TOML")
	return s
}

// flag adds a flag that stands for a key.
func (s *settings) flag(c *cobra.Command, name, key, usage string) {
	s.flags[key] = c.Flags().String(name, "", usage)
}

// load returns what file, environment and flags say, the later over the earlier,
// on top of the defaults.
func (s *settings) load(c *cobra.Command) (config.Config, error) {
	cfg, err := config.Load(s.file, os.Environ())
	if err != nil {
		return cfg, err
	}
	for key, value := range s.flags {
		if *value == "" {
			continue
		}
		if err := cfg.Set(key, *value); err != nil {
			return cfg, usageError{c.CommandPath(), err}
		}
	}
	return cfg, nil
}

func newConfig() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration that holds",
		Long: `Print the configuration that holds: the defaults, the file, the environment, the later over the earlier. Passwords are hidden.
The exit status is 1, with what is wrong, if no server could start with it.

tasker config keys lists every setting.`,
		Example: "  tasker config --config tasker.toml\n  TASKER_LOG_LEVEL=debug tasker config",
	}
	s := newSettings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := s.load(c)
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
			cfg.Database.URL = "postgres:///" // that it is missing says the command that needs it
		}
		return cfg.Validate()
	}
	c.Args = noSuchCommand
	c.AddCommand(&cobra.Command{
		Use: "keys", Short: "List every setting", Args: cobra.NoArgs,
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
