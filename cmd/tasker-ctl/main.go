// Command tasker-ctl inspects and operates the tasks of a Tasker server.
package main

import (
	"os"

	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/ctl"
)

func main() {
	os.Exit(ctl.Main(cli.TakeArgs(), os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
