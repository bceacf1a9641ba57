package devpg

import "syscall"

// attributes are those of a child that gets onDeath when we die.
func attributes(a account, onDeath syscall.Signal) *syscall.SysProcAttr {
	attr := newGroup(a)
	attr.Pdeathsig = onDeath
	return attr
}
