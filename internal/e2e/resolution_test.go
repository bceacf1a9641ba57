package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
)

// The resolution workflow of the specification, with each of its options.
func TestResolutionWorkflow(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	url := serve(t, database.URL).url()
	for _, tt := range []struct {
		option   string
		command  []string // after the ids
		fix      bool     // the database comes back before
		says     string
		step     tasker.StepState // state of the step in the end
		attempts int              // of the step in the end
		received string           // what step 3 receives of it
	}{
		{
			option: "A, reset for retry", fix: true,
			command: []string{"reset-step", "--reason", "Database connection pool fixed", "--reset-by", "operator@example.com"},
			says:    "Step reset successfully!", step: "complete", attempts: 1,
			received: `{"score": 7, "validation_status": "checked"}`,
		},
		{
			option:  "B, resolve manually",
			command: []string{"resolve-step", "--reason", "Non-critical validation step", "--resolved-by", "operator@example.com"},
			says:    "Step resolved manually!", step: "resolved_manually", attempts: 2, received: `null`,
		},
		{
			option: "C, complete manually",
			command: []string{
				"complete-step", "--result", `{"validation_status": "passed", "score": 100}`, "--metadata", `{"manually_verified": true}`,
				"--reason", "Manual validation completed", "--completed-by", "operator@example.com",
			},
			says: "Step completed manually with results!", step: "complete", attempts: 2,
			received: `{"score": 100, "validation_status": "passed"}`,
		},
	} {
		t.Run(tt.option, func(t *testing.T) {
			up := filepath.Join(t.TempDir(), "up")
			w := startWorker(t, url, up)
			defer w.stop()
			c := newClient(t, url)
			task := submit(t, url)
			awaitStatus(t, c, task, "error")

			if q := ctl(t, url, "dlq", "queue", "-o", "json"); !strings.Contains(q, task.String()) {
				t.Errorf("the queue lacks task %s: %s", task, q)
			}
			entry, err := c.EntryOfTask(t.Context(), task)
			must(t, err)
			if entry.Reason != "max_retries_exceeded" || entry.ResolutionStatus != "pending" || entry.CurrentTaskState != "error" {
				t.Errorf("investigation %+v", entry)
			}
			wantSteps(t, c, task, "step_1 complete 1/3, step_2 error 2/2, step_3 pending 0/3")
			two := stepNamed(t, c, task, "step_2")
			if !strings.Contains(string(two.Error), "database connection timeout") {
				t.Errorf("the error of step 2 is %s", two.Error)
			}

			if tt.fix {
				must(t, os.WriteFile(up, nil, 0o600))
			}
			args := append([]string{"task", tt.command[0], task.String(), two.UUID.String()}, tt.command[1:]...)
			if said := ctl(t, url, args...); !strings.Contains(said, tt.says) {
				t.Errorf("tasker-ctl said %s", said)
			}
			awaitStatus(t, c, task, "complete")
			two = stepNamed(t, c, task, "step_2")
			if two.State != tt.step || two.Attempts != tt.attempts {
				t.Errorf("step 2 is %s after %d attempts, want %s after %d", two.State, two.Attempts, tt.step, tt.attempts)
			}
			wantReceived(t, stepNamed(t, c, task, "step_3"), tt.received)
			wantHistory(t, c, task)

			said := ctl(t, url, "dlq", "update", entry.UUID.String(), "--status", "manually_resolved",
				"--notes", "fixed by option "+tt.option, "--resolved-by", "operator@example.com")
			if !strings.Contains(said, "updated successfully") {
				t.Errorf("tasker-ctl said %s", said)
			}
			entry, err = c.EntryOfTask(t.Context(), task)
			must(t, err)
			if entry.ResolutionStatus != "manually_resolved" || *entry.ResolvedBy != "operator@example.com" || entry.ResolvedAt == nil {
				t.Errorf("investigation %+v", entry)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func submit(t *testing.T, url string) tasker.ID {
	t.Helper()
	var made tasker.Task
	must(t, json.Unmarshal([]byte(ctl(t, url, "task", "submit", "--namespace", "order_processing", "--name", "fulfill_order",
		"--context", `{"order_id": 7}`, "-o", "json")), &made))
	return readID(t, made.UUID.String())
}

func readID(t *testing.T, text string) tasker.ID {
	t.Helper()
	var id tasker.ID
	must(t, id.UnmarshalText([]byte(text)))
	return id
}

func awaitStatus(t *testing.T, c *client.Client, task tasker.ID, status tasker.TaskState) {
	t.Helper()
	await(t, "task "+task.String()+" to be "+string(status), func() bool {
		got, err := c.Task(t.Context(), task)
		must(t, err)
		return got.State == status
	})
}

func stepNamed(t *testing.T, c *client.Client, task tasker.ID, name string) tasker.Step {
	t.Helper()
	list, err := c.Steps(t.Context(), task)
	must(t, err)
	for _, s := range list {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no step %s", name)
	return tasker.Step{}
}

func wantSteps(t *testing.T, c *client.Client, task tasker.ID, want string) {
	t.Helper()
	list, err := c.Steps(t.Context(), task)
	must(t, err)
	var got []string
	for _, s := range list {
		got = append(got, s.Name+" "+string(s.State)+" "+attempts(s))
	}
	if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
		t.Error(diff)
	}
}

func attempts(s tasker.Step) string {
	b, _ := json.Marshal(s.Attempts)
	m, _ := json.Marshal(s.MaxAttempts)
	return string(b) + "/" + string(m)
}

func wantReceived(t *testing.T, s tasker.Step, want string) {
	t.Helper()
	var results struct {
		Result struct {
			Received map[string]any `json:"received"`
		} `json:"result"`
	}
	must(t, json.Unmarshal(s.Results, &results))
	var expected any
	must(t, json.Unmarshal([]byte(want), &expected))
	if diff := cmp.Diff(expected, results.Result.Received["step_2"]); diff != "" {
		t.Errorf("what step 3 receives of step 2: %s", diff)
	}
}

func wantHistory(t *testing.T, c *client.Client, task tasker.ID) {
	t.Helper()
	list, err := c.TaskTransitions(t.Context(), task, apiv1.Page{Limit: 100})
	must(t, err)
	states := []string{list[0].From}
	for _, x := range list {
		states = append(states, x.To)
	}
	want := "pending initializing enqueuing_steps steps_in_process " +
		"evaluating_results waiting_for_retry enqueuing_steps steps_in_process " +
		"evaluating_results blocked_by_failures error enqueuing_steps steps_in_process evaluating_results complete"
	if diff := cmp.Diff(want, strings.Join(states, " ")); diff != "" {
		t.Error(diff)
	}
}
