// Package cli has what the command lines of tasker and tasker-ctl share: groups
// of commands, arguments and flags with their errors, exit codes, and the version.
//
// A command line that is wrong ends with [ExitUsage] before anything is done, and
// its error says what is wrong, which value, and how to get help.
package cli
