package childproc

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
)

// Ports from firstPort to before endOfPorts are those that Linux, macOS and Windows, as they come, give to no
// connection or listener that asks for any: a child that ends and starts again finds its port free.
const (
	firstPort  = 10_240
	endOfPorts = 32_768
	portTries  = 1000
)

// FreePorts returns different ports of the loopback interface on which nobody listened a
// moment ago. Another program may take one before the child listens: try again then.
func FreePorts(count int) ([]int, error) {
	ports := make([]int, 0, count)
	for tries := portTries; len(ports) < count; tries-- {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(endOfPorts-firstPort))))
		switch {
		case err == nil:
			defer l.Close() //nolint:gocritic // together, so that all are different
			ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		case tries <= 1:
			return nil, err
		}
	}
	return ports, nil
}

// TryLock takes the lock on f, or reports that another process has it. The kernel releases
// it when this process ends.
func TryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Unlock gives the lock on f back, and closes f. To close it is not enough: a process that is being
// started has all files of this one, and so its locks, until it runs its own program. It is safe to repeat.
func Unlock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	if errors.Is(err, syscall.EBADF) {
		return nil // it is closed
	}
	return errors.Join(err, f.Close())
}

// TempDir returns a directory for files that may be lost: one in memory where the machine
// has that many bytes free in it, else the one of the system.
func TempDir(bytes uint64) string {
	const memory = "/dev/shm"
	if free(memory) >= bytes {
		return memory
	}
	return os.TempDir()
}
