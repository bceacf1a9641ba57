// Package cli contains what tasker and tasker-ctl share: command groups, argument and flag validation,
// exit codes and the version command.
//
// A command line that is wrong ends with [ExitUsage] before anything is done, and
// its error says what is wrong, which value, and how to get help.
package cli
