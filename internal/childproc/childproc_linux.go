package childproc

import "syscall"

// Attributes returns the attributes of a child that runs as the account in its own process group
// and receives onDeath when this process dies.
func Attributes(a Account, onDeath syscall.Signal) *syscall.SysProcAttr {
	attr := newGroup(a)
	attr.Pdeathsig = onDeath
	return attr
}

// freeBytes returns the number of free bytes in the file system of a directory, or 0 if the
// directory is missing.
func freeBytes(dir string) uint64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
