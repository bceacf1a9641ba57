package ctl

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// answers is a server that answers one request after the other; an [apiv1.Error] is a
// refusal, a number a status.
func answers(t *testing.T, list ...any) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") { // a server without streams
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if len(list) == 0 {
			t.Errorf("one request too many: %s %s", r.Method, r.URL.Path)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		next := list[0]
		list = list[1:]
		if status, ok := next.(int); ok {
			w.WriteHeader(status)
			return
		}
		if _, refused := next.(apiv1.Error); refused {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if err := json.NewEncoder(w).Encode(next); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

var broken = refusal("INTERNAL", "it broke")

func TestCancelAllSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		dry     bool
		answers []any
		code    int
		out     string
		err     string
	}{
		{"all", false, []any{tasker.CancelBatch{Cancelled: 100, HasMore: true}, tasker.CancelBatch{Cancelled: 7}}, 0, "107 tasks cancelled!", "100 cancelled so far"},
		{"some fail", false, []any{tasker.CancelBatch{Cancelled: 98, Failed: 2, HasMore: true}, tasker.CancelBatch{Cancelled: 1, Failed: 3}}, 1, "99 tasks cancelled!", "3 tasks could not be cancelled"},
		{"a part of failures", false, []any{tasker.CancelBatch{Cancelled: 3, HasMore: true}, tasker.CancelBatch{Failed: 100, HasMore: true}}, 1, "3 tasks cancelled!", "More tasks match the filter"},
		{"a part that ended meanwhile", false, []any{tasker.CancelBatch{HasMore: true}}, 1, "0 tasks cancelled!", "More tasks match the filter"},
		{"an error later", false, []any{tasker.CancelBatch{Cancelled: 100, HasMore: true}, broken}, 1, "", "stopped after cancelling 100 tasks: it broke"},
		{"an error at once", false, []any{broken}, 1, "", "Error: it broke"},
		{"a dry run", true, []any{tasker.CancelBatch{Cancelled: 100, HasMore: true}}, 0, "100 tasks and more would be cancelled", "No tasks."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := []string{"task", "cancel-all", "--namespace", "orders", "--reason", "off"}
			if tt.dry {
				args = append(args, "--dry-run")
			}
			code, stdout, stderr := runAt(answers(t, tt.answers...), "", args...)
			if code != tt.code || !strings.Contains(stdout, tt.out) || !strings.Contains(stderr, tt.err) {
				t.Errorf("exit code %d, printed %q and %q", code, stdout, stderr)
			}
		})
	}
	code, stdout, _ := runAt(answers(t, tasker.CancelBatch{Failed: 1}), "", "task", "cancel-all", "--namespace", "orders", "--reason", "off", "-o", "json")
	if code != 1 || !strings.Contains(stdout, `"failed": 1`) {
		t.Errorf("as JSON: exit code %d, printed %q", code, stdout)
	}
}
