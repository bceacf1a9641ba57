package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func refusal(code, message string) apiv1.Error {
	return apiv1.Error{Error: apiv1.ErrorBody{Code: code, Message: message}}
}

// A plan that is not started is aborted, unless it may have been started.
func TestRunLeavesNoPlan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		flag    string
		answers map[string]any // of requests; the others succeed
		want    []string       // the requests
		says    string
	}{
		{"a dry run that fails", "--dry-run", map[string]any{"dry-run": refusal("INTERNAL", "it broke")}, []string{"operations", "dry-run", "abort"}, "it broke; the plan was aborted"},
		{"a start that is refused", "--yes", map[string]any{"start": refusal("CONFLICT", "it is held")}, []string{"operations", "start", "abort"}, "it is held; the plan was aborted"},
		{"a start that may have happened", "--yes", map[string]any{"start": refusal("INTERNAL", "it broke")}, []string{"operations", "start"}, "it broke; operation " + anID + " may have started"},
		{"an abort that fails", "--dry-run", map[string]any{"dry-run": refusal("INTERNAL", "it broke"), "abort": refusal("INTERNAL", "so did this")},
			[]string{"operations", "dry-run", "abort"}, "it broke; operation " + anID + " is still planned: so did this"},
		{"a dry run", "--dry-run", nil, []string{"operations", "dry-run", "abort"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var seen []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				name := path.Base(r.URL.Path)
				seen = append(seen, name)
				var answer any = apiv1.Operation{OperationUUID: anID, Items: 1}
				if name == "dry-run" {
					answer = tasker.DryRun{}
				}
				if a, ok := tt.answers[name]; ok {
					answer = a
					w.WriteHeader(http.StatusInternalServerError)
				}
				if err := json.NewEncoder(w).Encode(answer); err != nil {
					t.Error(err)
				}
			}))
			defer s.Close()
			code, _, stderr := runAt(s.URL, "", "operation", "run", "--namespace", "orders", "--reset", "--reason", "r", tt.flag)
			if (code == 0) != (tt.says == "") || !strings.Contains(stderr, tt.says) || !slices.Equal(seen, tt.want) {
				t.Errorf("exit code %d, printed %q, requests %q", code, stderr, seen)
			}
		})
	}
}

// An interruption is a no.
func TestConfirm(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want bool
	}{{"y\n", true}, {"YES\n", true}, {"n\n", false}, {"", false}} {
		p := &program{in: strings.NewReader(tt.in), err: io.Discard}
		if got := p.confirm(t.Context(), "Start?"); got != tt.want {
			t.Errorf("%q: %t", tt.in, got)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	nothing, _ := io.Pipe()
	var shown bytes.Buffer
	p := &program{in: nothing, err: &shown}
	time.AfterFunc(time.Millisecond, interrupt)
	if p.confirm(ctx, "Start?") || shown.String() != "Start? [y/N] \n" {
		t.Errorf("interrupted, it is a yes, or shows %q", shown.String())
	}
}

// The first Ctrl-C lets the program end in order, the second ends it.
func TestASecondInterruptionEndsARead(t *testing.T) {
	t.Parallel()
	cmd := process(t, "http://127.0.0.1:1", "case", "fingerprint", "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	lines := begin(t, cmd)
	if _, err := io.WriteString(in, `{"message": "HTTP 503"}`+"\n"); err != nil || !lines.Scan() {
		t.Fatal("it prints nothing", err)
	}
	// More than a pipe holds is taken only by the next read, which waits for the end of the line.
	if _, err := io.WriteString(in, strings.Repeat(" ", 1<<18)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for tries := time.Tick(10 * time.Millisecond); ; {
		select {
		case err := <-ended:
			if err == nil || err.Error() != "signal: interrupt" {
				t.Errorf("it ended with %v, not by the signal", err)
			}
			return
		case <-tries:
			_ = cmd.Process.Signal(os.Interrupt) // it may just have ended
		}
	}
}
