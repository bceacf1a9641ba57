// Package cli contains what tasker and tasker-ctl share: command groups, argument and flag validation,
// exit codes and the version command.
//
// A program with an invalid command line exits with [ExitUsage] before it does anything. The error
// names the invalid value and the command that prints help.
package cli
