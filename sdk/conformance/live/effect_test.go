package live

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tasker.example/tasker"
)

// A step counts only if one attempt completed it, with the result of a run in this attempt.
func TestCheckStep(t *testing.T) {
	lost := []tasker.Transition{to("in_progress", 1), to("error", 1), to("in_progress", 2)}
	task := tasker.NewID()
	effects := map[string]effect{
		"one": {Task: task.String(), Step: "confirm", Attempt: 1, Run: "one"},
		"two": {Task: task.String(), Step: "confirm", Attempt: 2, Run: "two"},
		"its": {Task: "other", Step: "confirm", Attempt: 2, Run: "its"},
	}
	right, err := json.Marshal(confirmationOf(7))
	if err != nil {
		t.Fatal(err)
	}
	rounded := strings.Replace(string(right), `"serial":"9007199254741001"`, `"serial":"9007199254741000"`, 1)
	for name, tt := range map[string]struct {
		history []tasker.Transition
		values  string
		attempt int
		run     string
		want    string // in the error; none if it is empty
	}{
		"completed by the second attempt": {append(lost, to("complete", 2)), string(right), 2, "two", ""},
		"never completed":                 {lost, string(right), 2, "two", "completed 0 times"},
		"completed twice":                 {append(lost, to("complete", 1), to("complete", 2)), string(right), 2, "two", "completed 2 times"},
		"result of the lost attempt":      {append(lost, to("complete", 2)), string(right), 1, "one", "result of attempt 1"},
		"run of the lost attempt":         {append(lost, to("complete", 2)), string(right), 2, "one", "not its own"},
		"run of another task":             {append(lost, to("complete", 2)), string(right), 2, "its", "not its own"},
		"run without an effect":           {append(lost, to("complete", 2)), string(right), 2, "none", "not its own"},
		"a rounded number":                {append(lost, to("complete", 2)), rounded, 2, "two", "instead of"},
	} {
		t.Run(name, func(t *testing.T) {
			result := fmt.Sprintf(`{"success":true,"result":%s,"attempt":%d,"run":%q}}`, strings.TrimSuffix(tt.values, "}"), tt.attempt, tt.run)
			err := checkStep(7, tasker.Step{TaskUUID: task, Name: "confirm", Results: []byte(result)}, tt.history, effects)
			if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %q", got, tt.want)
			}
		})
	}
}

func to(state string, attempt int) tasker.Transition {
	return tasker.Transition{To: state, Attempt: &attempt}
}

// Effects are counted by step. A line that is not whole yet is read later.
func TestEffectsAreCounted(t *testing.T) {
	f, err := newEffectFile(filepath.Join(t.TempDir(), "effects"))
	if err != nil {
		t.Fatal(err)
	}
	doc := `{"task": "a", "step": "s", "attempt": 1, "run": "1", "language": "go", "pid": 5}
{"task": "a", "step": "s", "attempt": 2, "run": "2", "language": "python", "pid": 6}
{"task": "b", "step": "s", "attempt": 1, "run": "3", "language": "go", "pid": 5}
`
	for _, end := range []int{100, len(doc)} {
		if err := os.WriteFile(f.path, []byte(doc[:end]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.read(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := f.summary(), "handlers ran 3 times for 2 steps map[go:2 python:1]: 1 steps ran more than once"; got != want || !f.pids[6] {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := os.WriteFile(f.path, []byte(doc+doc), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.read(); err == nil {
		t.Error("a run with two effects passed")
	}
}
