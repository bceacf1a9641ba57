package devpg

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// programsArchive has bin/postgres and bin/initdb, two shell scripts of one line,
// packed as PostgreSQL's programs are.
//
//go:embed testdata/programs.txz
var programsArchive []byte

// repository serves a package as Maven Central does, and counts downloads.
func repository(t *testing.T, doc []byte, checksum string) (url string, downloads *atomic.Int64) {
	t.Helper()
	downloads = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.Contains(r.URL.Path, "/embedded-postgres-binaries-"+runtime.GOOS):
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, ".sha256"):
			fmt.Fprint(w, checksum)
		default:
			downloads.Add(1)
			_, _ = w.Write(doc)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, downloads
}

func jar(t *testing.T) (doc []byte, checksum string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create("postgres-linux-x86_64.txz")
	if err == nil {
		_, err = f.Write(programsArchive)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	return b.Bytes(), hex.EncodeToString(sum[:])
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestFetchDownloadsOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // the library leaves its log there
	doc, sum := jar(t)
	url, downloads := repository(t, doc, sum)
	dir := filepath.Join(t.TempDir(), "cache")
	var wg sync.WaitGroup
	for range 4 { // at once, as the tests of several packages
		wg.Go(func() {
			p, err := fetchPrograms(t.Context(), Options{FetchDir: dir, FetchURL: url, Log: silent()})
			if err != nil || p.major != 17 || !strings.HasPrefix(p.dir, dir) {
				t.Errorf("fetched %+v, %v", p, err)
			}
		})
	}
	wg.Wait()
	if n := downloads.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
	wantOnly(t, dir, 1)
}

// wantOnly fails unless a folder has so many entries beside the lock: an
// interrupted download leaves none.
func wantOnly(t *testing.T, dir string, n int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != n+1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

func TestFetchThatFailsLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	doc, sum := jar(t)
	for _, tt := range []struct {
		name          string
		doc           []byte
		checksum, say string
	}{
		{"a wrong checksum", doc, strings.Repeat("0", 64), "checksums do not match"},
		{"half a package", doc[:len(doc)/2], sum, "download PostgreSQL"},
		{"no package", []byte("<html>"), sum, "download PostgreSQL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, _ := repository(t, tt.doc, tt.checksum)
			dir := filepath.Join(t.TempDir(), "cache")
			_, err := fetchPrograms(t.Context(), Options{FetchDir: dir, FetchURL: url, Log: silent()})
			if err == nil || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("got %v, want one that says %q", err, tt.say)
			}
			wantOnly(t, dir, 0)
		})
	}
}

func TestFetchCanBeInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	arrived, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := fetchPrograms(ctx, Options{FetchDir: filepath.Join(t.TempDir(), "cache"), FetchURL: s.URL, Log: silent()})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
