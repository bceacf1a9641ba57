//go:build unix && !linux

package devpg

import "syscall"

// attributes are those of a child. Only Linux can tell it of our death; here,
// the next start on its directory stops what we left behind.
func attributes(a account, _ syscall.Signal) *syscall.SysProcAttr { return newGroup(a) }
