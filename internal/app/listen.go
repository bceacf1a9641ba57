package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen opens the address, or says why not and what to do.
func Listen(ctx context.Context, address string, allowRemote bool) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is taken by another program: stop it, or choose another address with --listen (port 0 takes any free one)", address)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if !isLoopback(l.Addr()) && !allowRemote {
		return nil, errors.Join(fmt.Errorf("%s can be reached from other machines, and Tasker has no authentication yet: "+
			"listen on 127.0.0.1 and put a proxy that asks in front of it, or say --insecure-allow-remote", address), l.Close())
	}
	return l, nil
}

// baseURL is where a program on this machine reaches the address.
func baseURL(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", tcp.Port)
	}
	return "http://" + a.String()
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
