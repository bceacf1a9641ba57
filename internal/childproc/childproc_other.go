//go:build unix && !linux

package childproc

import "syscall"

// Attributes returns those of a child that runs as the account, in a process group of its
// own. Only Linux can tell the child of our death.
func Attributes(a Account, _ syscall.Signal) *syscall.SysProcAttr { return newGroup(a) }

// free returns 0: only Linux has a directory in memory.
func free(string) uint64 { return 0 }
