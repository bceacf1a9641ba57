package mqtest

import "syscall"

// free returns how many bytes may be written to a folder, 0 if it is missing.
func free(folder string) uint64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(folder, &st); err != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
