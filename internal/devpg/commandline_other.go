//go:build unix && !linux

package devpg

import (
	"os/exec"
	"strconv"
)

// commandLine returns the program and arguments of a process, or "" if it has ended.
func commandLine(pid int) string {
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(out)
}
