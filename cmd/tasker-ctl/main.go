// Command tasker-ctl sees and steers the tasks of a Tasker server. Linked or
// copied as tasker-cli it answers to that name.
package main

import (
	"os"

	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/ctl"
)

func main() {
	os.Exit(ctl.Main(cli.TakeArgs(), os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
