//go:build unix && !linux

package childproc

import "syscall"

// Attributes returns the attributes of a child that runs as the account in its own process group.
// Only Linux can signal the child when this process dies.
func Attributes(a Account, _ syscall.Signal) *syscall.SysProcAttr { return newGroup(a) }

// free returns 0, because only Linux has a directory in memory.
func free(string) uint64 { return 0 }
