package childproc

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
)

// The ports from firstPort up to endOfPorts are outside of the default ephemeral ranges of Linux,
// macOS and Windows, so a child that restarts finds its port free.
const (
	firstPort  = 10_240
	endOfPorts = 32_768
	portTries  = 1000
)

// FreePorts returns distinct ports of the loopback interface that are free now. Retry if another
// program uses one before the child does.
func FreePorts(count int) ([]int, error) {
	ports := make([]int, 0, count)
	for tries := portTries; len(ports) < count; tries-- {
		port := strconv.Itoa(firstPort + rand.IntN(endOfPorts-firstPort))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		switch {
		case err == nil:
			defer l.Close() //nolint:gocritic // all stay open until the end, so that they are distinct
			ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		case tries <= 1:
			return nil, err
		}
	}
	return ports, nil
}

// TryLock locks f. It returns false if another process has the lock. The kernel releases it when
// this process ends.
func TryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock on f and closes it. Closing is not enough, because a child inherits the
// lock until it executes its program. Unlock can be called again.
func Unlock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	if errors.Is(err, syscall.EBADF) {
		return nil // already closed
	}
	return errors.Join(err, f.Close())
}

// TempDir returns a directory for temporary files: in memory if that many bytes are free there,
// otherwise the default.
func TempDir(bytes uint64) string {
	const memory = "/dev/shm"
	if freeBytes(memory) >= bytes {
		return memory
	}
	return os.TempDir()
}
