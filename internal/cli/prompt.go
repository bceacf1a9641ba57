package cli

import (
	"bufio"
	"context"
	"io"
	"strings"
)

// ReadLine returns the next line of r without surrounding space, or the error of ctx. After an
// error, the read continues in the background, because a read from a terminal cannot be cancelled.
func ReadLine(ctx context.Context, r io.Reader) (string, error) {
	read := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(r).ReadString('\n')
		read <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case line := <-read:
		return line, ctx.Err()
	}
}
