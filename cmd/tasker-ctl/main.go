// Command tasker-ctl sees and steers the tasks of a Tasker server. Linked or
// copied as tasker-cli it answers to that name.
package main

import (
	"os"

	"tasker.example/tasker/internal/ctl"
)

func main() {
	os.Exit(ctl.Main(os.Args, os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
