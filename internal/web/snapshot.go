package web

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// A snapshot is what a page reads of the evidence that an investigation keeps.
type snapshot struct {
	State            tasker.TaskState
	InStateMinutes   float64
	ThresholdMinutes float64
	AgeMinutes       float64
	Thresholds       json.RawMessage
	Template         json.RawMessage
	MaxDuration      float64 // minutes; 0 means none
	RedactionFailed  string
	SnapshotFailed   string
	Steps            []snapshotStep
}

// A snapshotStep is a step as it stood.
type snapshotStep struct {
	UUID          tasker.ID
	Name          string
	Type          tasker.StepType
	Handler       string
	State         tasker.StepState
	StateSince    time.Time
	Attempts      int
	MaxAttempts   int
	LastFailureAt time.Time
	NextRetryAt   time.Time
	Error         json.RawMessage
	Open          int // dependencies that were not done
}

// readSnapshot reads evidence, each member by itself: any of them may be hidden, or
// may not be there.
func readSnapshot(doc json.RawMessage) snapshot {
	m := members(doc)
	s := snapshot{
		State:          member[tasker.TaskState](m, "current_state"),
		InStateMinutes: member[float64](m, "time_in_state_minutes"), ThresholdMinutes: member[float64](m, "threshold_minutes"),
		AgeMinutes: member[float64](m, "task_age_minutes"), Thresholds: m["thresholds"], Template: m["template"],
		MaxDuration:     member[float64](members(m["thresholds"]), "max_duration_minutes"),
		RedactionFailed: member[string](m, "redaction_failed"), SnapshotFailed: member[string](m, "snapshot_failed"),
	}
	for _, doc := range member[[]json.RawMessage](m, "steps") {
		m := members(doc)
		s.Steps = append(s.Steps, snapshotStep{
			UUID: member[tasker.ID](m, "step_uuid"), Name: member[string](m, "name"), Type: member[tasker.StepType](m, "type"),
			Handler: member[string](m, "handler"), State: member[tasker.StepState](m, "state"), StateSince: member[time.Time](m, "state_since"),
			Attempts: member[int](m, "attempts"), MaxAttempts: member[int](m, "max_attempts"),
			LastFailureAt: member[time.Time](m, "last_failure_at"), NextRetryAt: member[time.Time](m, "next_retry_at"),
			Error: m["error"], Open: member[int](m, "dependencies_open"),
		})
	}
	return s
}

// step is a step by its id.
func (s snapshot) step(id tasker.ID) (snapshotStep, bool) {
	for _, st := range s.Steps {
		if st.UUID == id {
			return st, true
		}
	}
	return snapshotStep{}, false
}

func members(doc json.RawMessage) (m map[string]json.RawMessage) {
	if json.Unmarshal(doc, &m) != nil {
		return nil
	}
	return m
}

// member is one value of an object; zero when it is something else.
func member[T any](m map[string]json.RawMessage, name string) (v T) {
	if err := json.Unmarshal(m[name], &v); err != nil {
		var zero T
		return zero
	}
	return v
}

// failureOf reads the failure of a step; what is none is shown as it is.
func failureOf(doc json.RawMessage) tasker.StepFailure {
	m := members(doc)
	f := tasker.StepFailure{
		Message: member[string](m, "message"), Type: member[string](m, "type"), Retryable: member[bool](m, "retryable"),
		Attempt: member[int](m, "attempt"), WorkerUUID: member[string](m, "worker_uuid"), Context: m["context"],
	}
	if f.Message == "" && string(doc) != "null" {
		f.Message = string(doc)
	}
	return f
}
