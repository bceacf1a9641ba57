package pgtest

import "os"

// base is the folder for the data.
func base() string {
	const memory = "/dev/shm"
	if free(memory) >= 1<<30 {
		return memory
	}
	return os.TempDir()
}
