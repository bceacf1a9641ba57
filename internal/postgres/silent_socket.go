//go:build linux || darwin || freebsd || netbsd || openbsd

package postgres

import (
	"errors"
	"net"
	"syscall"
)

// isSilent reports whether a connection is open and has no unread data.
func isSilent(c net.Conn) bool {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	empty := false
	// raw.Read would wait for other readers, and pgx may have one that is blocked.
	err = raw.Control(func(fd uintptr) {
		var first [1]byte
		_, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		empty = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && empty
}
