//go:build unix

package devpg

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Who may write into a directory may put another cluster or password there.
func TestADirectoryThatOthersMayChangeIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode os.FileMode
		want bool // refused
	}{{0o777, true}, {0o775, true}, {0o757, true}, {0o777 | os.ModeSticky, false}, {0o755, false}, {0o700, false}} {
		dir := folder(t)
		inside(t, dir, "note", "not empty")
		if err := os.Chmod(dir, tt.mode); err != nil {
			t.Fatal(err)
		}
		if tt.want {
			refusedToStart(t, Options{DataDir: dir}, "other users can write to "+dir, "chmod go-w")
			continue
		}
		d, err := openDirectory(dir)
		if err != nil {
			t.Errorf("mode %v: %v", tt.mode, err)
			continue
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

// A pipe in the place of a file must not make the start wait for ever.
func TestAPipeIsNoFile(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	inside(t, dir, "data/PG_VERSION", "15\n")
	pipe := filepath.Join(dir, postmasterFile)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		refusedToStart(t, Options{DataDir: dir}, "postmaster.pid in "+dir+" is not a regular file")
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("the start waits for the pipe")
		if f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = f.Close() // lets the start go on
		}
		<-done
	}
}
