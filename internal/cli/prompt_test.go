package cli_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"tasker.example/tasker/internal/cli"
)

func TestReadLineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	if line, err := cli.ReadLine(t.Context(), strings.NewReader(" yes \nmore")); line != "yes" || err != nil {
		t.Errorf("read %q, %v", line, err)
	}
	terminal, keyboard := io.Pipe()
	t.Cleanup(func() { _ = keyboard.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if line, err := cli.ReadLine(ctx, terminal); line != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled read returned %q, %v", line, err)
	}
}
