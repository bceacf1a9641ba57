package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// ConfigureRoot configures the root command of a program.
func ConfigureRoot(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(wrapFlagError)
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return Usagef("unknown command %q", strings.Join(args, " "))
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	})
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			NewGroup(c)
		}
	}
	configureCompletion(root)
}

// configureCompletion enables shell completion of flag values for c and its subcommands. It
// disables file completion for commands without a file argument.
func configureCompletion(c *cobra.Command) {
	completeFlags(c)
	if c.ValidArgsFunction == nil && !strings.Contains(c.Use, "FILE") {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range c.Commands() {
		configureCompletion(below)
	}
}

// NewGroup makes c a command that only contains subcommands. If it is called without a subcommand,
// it prints its help to standard error and exits with [ExitUsage]. By default, cobra succeeds even
// if the name of a subcommand is misspelled.
func NewGroup(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.FParseErrWhitelist.UnknownFlags = true // they belong to the misspelled subcommand
	c.Args = UnknownCommand
	c.RunE = func(c *cobra.Command, _ []string) error {
		c.SetOut(c.ErrOrStderr())
		if err := c.Help(); err != nil {
			return err
		}
		return Exit(ExitUsage)
	}
	c.AddCommand(below...)
	return c
}

// AddSection adds subcommands to c that the help lists under a title of their own.
func AddSection(c *cobra.Command, title string, below ...*cobra.Command) {
	c.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, b := range below {
		b.GroupID = title
	}
	c.AddCommand(below...)
}

// UnknownCommand returns a usage error if a command group is called with an unknown subcommand,
// and suggests similar ones.
func UnknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	hint := ""
	if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return Usagef("unknown command %q for %q%s", args[0], c.CommandPath(), hint)
}

// Arguments returns the names of the arguments in the usage line of a command, such as TASK in
// "get TASK --reason TEXT". Arguments in brackets are optional; those with "..." can be repeated.
func Arguments(use string) []string {
	words := strings.Fields(use)[1:]
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") }); i >= 0 {
		return words[:i]
	}
	return words
}

// Args returns a usage error if the number of arguments does not match the usage line of a command.
func Args(c *cobra.Command, args []string) error {
	names := Arguments(c.Use)
	most, least := len(names), len(names)
	if most > 0 && strings.HasSuffix(names[most-1], "...") {
		most = len(args)
	}
	if least > 0 && strings.HasPrefix(names[least-1], "[") {
		least--
	}
	switch {
	case len(args) < least:
		return Usagef("missing %s: %s", strings.TrimSuffix(strings.Join(names[len(args):least], " and "), "..."), c.UseLine())
	case len(args) > most:
		return Usagef("unexpected argument %q: %s", args[most], c.UseLine())
	default:
		return nil
	}
}
