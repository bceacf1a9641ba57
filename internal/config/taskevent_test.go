package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
)

func TestTaskSubscriptions(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Emission.TaskEvents = `
		# what accounting needs
		topic=task.completed,task.failed namespace=payments template=settle include_result include_context; topic=task.*,step.failed`
	got, err := c.Emission.TaskSubscriptions()
	if err != nil {
		t.Fatal(err)
	}
	want := []tasker.TaskSubscription{
		{
			Topics: []string{"task.completed", "task.failed"}, Namespace: "payments", Template: "settle",
			IncludeResult: true, IncludeContext: true, MaxBytes: 16384,
		},
		{Topics: []string{"task.completed", "task.failed", "task.cancelled", "step.failed"}, MaxBytes: 16384},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if list, err := Default().Emission.TaskSubscriptions(); err != nil || list != nil {
		t.Errorf("without a subscription: %v, %v", list, err)
	}
	for text, fault := range map[string]string{
		"namespace=payments":                      "subscription 1 (\"namespace=payments\"): must have topic=",
		"topic=task.completed; topic=dlq.*":       "subscription 2 (\"topic=dlq.*\"): unknown topic \"dlq.*\": must be one of task.completed, ",
		"topic=task.done":                         "unknown topic \"task.done\"",
		"topic=":                                  "condition topic has no value: use topic=value",
		"topic=task.* namespace=":                 "condition namespace has no value",
		"topic=task.* include_result=yes":         "include_result has no value: write only include_result",
		"topic=task.* topic=step.failed":          "has topic twice",
		"topic=task.* colour=red":                 "unknown condition \"colour\": must be one of topic, namespace, template, include_result, include_context",
		strings.Repeat("topic=task.failed;", 101): "has 101 subscriptions; the limit is 100",
	} {
		c.Emission.TaskEvents = text
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "emission.task_events: ") || !strings.Contains(err.Error(), fault) {
			t.Errorf("%.60s: %v, want %s", text, err, fault)
		}
	}
}
