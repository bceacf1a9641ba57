package ctl

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"
)

func TestFingerprintRefusesALineThatIsTooLong(t *testing.T) {
	t.Parallel()
	long := `{"message": "` + strings.Repeat("x", maxFailureLine) + `"}`
	code, stdout, stderr := run(`{"message": "disk full"}`+"\n"+long+"\n", "case", "fingerprint")
	if code != 2 || strings.Count(stdout, "\n") != 1 || !strings.Contains(stderr, "-:2: line too long: the limit is 1048576 bytes") {
		t.Errorf("exit code %d, %q, %.200q", code, stdout, stderr)
	}
}

// A failure is answered before the next one is there.
func TestFingerprintStreams(t *testing.T) {
	t.Parallel()
	in, send := io.Pipe()
	receive, out := io.Pipe()
	go func() {
		(&program{in: in, out: out, err: io.Discard, env: map[string]string{}}).main(t.Context(), []string{"tasker-ctl", "case", "fingerprint"})
		_ = out.Close() // of a pipe: it cannot fail
	}()
	answers := bufio.NewScanner(receive)
	for range 2 {
		if _, err := io.WriteString(send, `{"message": "disk full"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(time.Minute, func() { _ = receive.Close() })
		if !answers.Scan() || !strings.Contains(answers.Text(), `"pattern":"disk full"`) {
			t.Fatalf("answered %q, %v", answers.Text(), answers.Err())
		}
		late.Stop()
	}
	_ = send.Close()
	if answers.Scan() {
		t.Errorf("answered also %q", answers.Text())
	}
}
