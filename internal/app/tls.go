package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker/internal/config"
)

// certificateInterval is the interval at which the certificate files are checked for changes.
const certificateInterval = 10 * time.Second

// listenTLS wraps l in TLS, or returns l itself if TLS is not configured. An error names the
// invalid file.
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
			return files.currentConfig(ctx, time.Now()), nil
		},
	}), nil
}

// certificates is the TLS configuration from files that are reloaded when they change.
type certificates struct {
	config.Server
	log *slog.Logger

	mu      sync.Mutex
	config  *tls.Config
	checked time.Time
	marks   []fileMark // of the loaded files
	failed  bool       // the last reload
}

// fileMark identifies the version of a file.
type fileMark struct {
	changed time.Time
	size    int64
}

// currentConfig returns the configuration for a new connection. If the files are invalid, it keeps
// the previous configuration, because certificates are replaced one file after another.
func (f *certificates) currentConfig(ctx context.Context, now time.Time) *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.checked) >= certificateInterval {
		f.checked = now
		if marks, err := f.readMarks(); err == nil && f.config != nil && sameMarks(marks, f.marks) && !f.failed {
			return f.config
		}
		err := f.readLocked(now)
		if err != nil {
			f.log.ErrorContext(ctx, "certificate reload failed; using the previous one", "err", err)
		} else {
			f.log.InfoContext(ctx, "certificate reloaded", "file", f.TLSCertFile)
		}
		f.failed = err != nil
	}
	return f.config
}

func sameMarks(a, b []fileMark) bool {
	return slices.EqualFunc(a, b, func(x, y fileMark) bool { return x.changed.Equal(y.changed) && x.size == y.size })
}

// readMarks returns the marks of the files as they are now.
func (f *certificates) readMarks() ([]fileMark, error) {
	var list []fileMark
	for _, path := range []string{f.TLSCertFile, f.TLSKeyFile, f.TLSClientCAFile} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		list = append(list, fileMark{info.ModTime(), info.Size()})
	}
	return list, nil
}

func (f *certificates) read(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readLocked(now)
}

func (f *certificates) readLocked(now time.Time) error {
	marks, err := f.readMarks()
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
			return fmt.Errorf("server.tls_client_ca_file %q contains no PEM certificate", f.TLSClientCAFile)
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	f.config, f.marks, f.checked = c, marks, now
	return nil
}
