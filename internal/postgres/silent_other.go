//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package postgres

import "net"

// silent returns false, because the check is not implemented on this platform.
func silent(net.Conn) bool { return false }
