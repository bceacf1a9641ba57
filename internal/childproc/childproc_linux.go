package childproc

import "syscall"

// Attributes returns those of a child that runs as the account, in a process group of its
// own, and receives onDeath when this process dies.
func Attributes(a Account, onDeath syscall.Signal) *syscall.SysProcAttr {
	attr := newGroup(a)
	attr.Pdeathsig = onDeath
	return attr
}

// free returns how many bytes may be written to a directory, 0 if it is missing.
func free(dir string) uint64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
