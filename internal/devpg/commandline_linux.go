package devpg

import (
	"fmt"
	"os"
	"strings"
)

// readCommandLine returns the program and arguments of a process, or "" if it has ended.
func readCommandLine(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(b), "\x00", " ")
}
