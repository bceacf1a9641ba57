package mqtest

import "syscall"

// attributes are those of a child that is killed when we die.
func attributes(a account) *syscall.SysProcAttr {
	attr := group(a)
	attr.Pdeathsig = syscall.SIGTERM
	return attr
}
