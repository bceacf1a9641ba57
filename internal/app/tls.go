package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"tasker.example/tasker/internal/config"
)

// lookAtCertificates is how often is looked whether the files have changed.
const lookAtCertificates = 10 * time.Second

// listenTLS returns a listener that speaks TLS on another, as the configuration says; the
// other one itself where it says nothing of TLS. The error tells which file is wrong.
func listenTLS(ctx context.Context, l net.Listener, c config.Server, log *slog.Logger) (net.Listener, error) {
	if c.TLSCertFile == "" {
		return l, nil
	}
	files := &certificates{Server: c, log: log}
	if err := files.read(time.Now()); err != nil {
		return nil, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return files.current(ctx, time.Now()), nil
		},
	}), nil
}

// certificates are what the server shows, and whom it believes, from files that are read
// again when they change.
type certificates struct {
	config.Server
	log *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	looked time.Time
	marks  []mark // of the files as they were read
	failed bool   // the last time
}

// A mark tells whether a file is the same as before.
type mark struct {
	changed time.Time
	size    int64
}

// current returns the configuration for a connection. Files that cannot be used leave the
// one before in place: certificates are replaced one file after another.
func (f *certificates) current(ctx context.Context, now time.Time) *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.looked) >= lookAtCertificates {
		f.looked = now
		if marks, err := f.marked(); err == nil && f.config != nil && same(marks, f.marks) && !f.failed {
			return f.config
		}
		err := f.readLocked(now)
		if err != nil {
			f.log.ErrorContext(ctx, "the certificate cannot be read again; the one before is used", "err", err)
		} else {
			f.log.InfoContext(ctx, "the certificate was read again", "file", f.TLSCertFile)
		}
		f.failed = err != nil
	}
	return f.config
}

func same(a, b []mark) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].changed.Equal(b[i].changed) || a[i].size != b[i].size {
			return false
		}
	}
	return true
}

// marked looks at the files without reading them.
func (f *certificates) marked() ([]mark, error) {
	var list []mark
	for _, path := range []string{f.TLSCertFile, f.TLSKeyFile, f.TLSClientCAFile} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		list = append(list, mark{info.ModTime(), info.Size()})
	}
	return list, nil
}

func (f *certificates) read(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readLocked(now)
}

func (f *certificates) readLocked(now time.Time) error {
	marks, err := f.marked()
	if err != nil {
		return fmt.Errorf("server.tls_cert_file: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(f.TLSCertFile, f.TLSKeyFile)
	if err != nil {
		return fmt.Errorf("server.tls_cert_file %q and server.tls_key_file %q: %w", f.TLSCertFile, f.TLSKeyFile, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if f.TLSClientCAFile != "" {
		doc, err := os.ReadFile(f.TLSClientCAFile)
		if err != nil {
			return fmt.Errorf("server.tls_client_ca_file: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(doc) {
			return fmt.Errorf("server.tls_client_ca_file %q has no certificate in PEM", f.TLSClientCAFile)
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	f.config, f.marks, f.looked = c, marks, now
	return nil
}
