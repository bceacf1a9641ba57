//go:build unix && !linux

package mqtest

import "syscall"

// attributes are those of a child. Only Linux can tell it of our death; here,
// only its longest life ends what a killed test leaves behind.
func attributes(a account) *syscall.SysProcAttr { return group(a) }
