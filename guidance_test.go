package tasker_test

import (
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

func TestGuidanceIsAboutTheStepThatHasFailedNow(t *testing.T) {
	t.Parallel()
	own, other := tasker.NewID(), tasker.NewID()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	charge := &tasker.FailedStep{UUID: own, Name: "charge", Since: at}
	ship := &tasker.FailedStep{UUID: other, Name: "ship", Since: at}
	for _, tt := range []struct {
		name          string
		entry         tasker.Entry
		want, without string
	}{
		{"its own step", tasker.Entry{StepUUID: &own, FailedStep: charge}, "Step charge: Read the step's failures", ""},
		{"another step", tasker.Entry{StepUUID: &own, FailedStep: ship}, "reset step ship;", "charge"},
		{"repaired", tasker.Entry{StepUUID: &own}, "No step of the task has failed now.", "eset"},
		{"no step was named", tasker.Entry{FailedStep: ship}, "Step ship: Read the step's failures", ""},
		{"task complete", tasker.Entry{StepUUID: &own, CurrentTaskState: tasker.TaskComplete}, "End this investigation", "eset"},
		{"task cancelled", tasker.Entry{StepUUID: &own, CurrentTaskState: tasker.TaskCancelled}, "The task is cancelled", "eset"},
		{"ended", tasker.Entry{StepUUID: &own, ResolutionStatus: tasker.EntryManuallyResolved}, "ended as manually_resolved", "eset"},
		{"stands still", tasker.Entry{Reason: tasker.StalenessTimeout, DetailCode: "waiting_for_retry"}, "See when the next attempt", ""},
		{"stood still, went on", tasker.Entry{Reason: tasker.StalenessTimeout, DetailCode: "waiting_for_retry", RecoveredAt: &at}, "Follow the task", "eset"},
		{"stood still, then a step failed", tasker.Entry{Reason: tasker.StalenessTimeout, DetailCode: "waiting_for_retry", FailedStep: ship}, "reset step ship;", ""},
		{"asked for", tasker.Entry{Reason: tasker.ManualDLQ, DetailCode: tasker.OperatorRequest, CurrentTaskState: tasker.TaskComplete}, "The first note", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := tt.entry
			if e.Reason == "" {
				e.Reason, e.DetailCode = tasker.MaxRetriesExceeded, tasker.RetriesExhausted
			}
			if e.ResolutionStatus == "" {
				e.ResolutionStatus = tasker.EntryPending
			}
			e.Describe()
			if got := e.Guidance; !strings.Contains(got, tt.want) || tt.without != "" && strings.Contains(got, tt.without) {
				t.Errorf("guidance %q, want %q in it and not %q", got, tt.want, tt.without)
			}
		})
	}
}
