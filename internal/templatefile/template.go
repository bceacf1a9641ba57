package templatefile

import (
	"tasker.example/tasker"
)

const (
	maxWaitMinutes     = 7 * 24 * 60
	maxDurationMinutes = 30 * 24 * 60
	maxDescription     = 4 << 10
)

// readTemplate reads the whole document and notes every fault on the way.
func readTemplate(v value) tasker.Template {
	f, ok := v.fields("namespace_name|namespace", "name", "version", "description",
		"input_schema", "lifecycle", "steps", "environments", "metadata")
	if !ok {
		return tasker.Template{}
	}
	var t tasker.Template
	if v, ok := f.need("namespace_name"); ok {
		t.Namespace = v.name()
	}
	if v, ok := f.need("name"); ok {
		t.Name = v.name()
	}
	if v, ok := f.need("version"); ok {
		t.Version = v.version()
	}
	t.Description = f.description()
	if v, ok := f.get("metadata"); ok {
		t.Metadata = v.object()
	}
	if v, ok := f.get("input_schema"); ok {
		t.InputSchema = v.inputSchema()
	}
	if v, ok := f.get("lifecycle"); ok {
		t.Lifecycle = v.lifecycle()
	}
	var g graph
	if v, ok := f.need("steps"); ok {
		t.Steps, g = v.steps()
	}
	if v, ok := f.get("environments"); ok {
		t.Environments = v.environments(g)
	}
	return t
}

func (f fields) description() string {
	v, ok := f.get("description")
	if !ok {
		return ""
	}
	s, _ := v.text()
	if len(s) > maxDescription {
		v.fault("has %d bytes; %d is the limit", len(s), maxDescription)
	}
	return s
}

func (v value) lifecycle() tasker.Lifecycle {
	f, _ := v.fields("max_waiting_for_dependencies_minutes", "max_waiting_for_retry_minutes",
		"max_steps_in_process_minutes", "max_duration_minutes", "worker_queue_ttl_ms")
	return tasker.Lifecycle{
		MaxWaitingForDependenciesMinutes: f.integer("max_waiting_for_dependencies_minutes", 1, maxWaitMinutes, 0),
		MaxWaitingForRetryMinutes:        f.integer("max_waiting_for_retry_minutes", 1, maxWaitMinutes, 0),
		MaxStepsInProcessMinutes:         f.integer("max_steps_in_process_minutes", 1, maxWaitMinutes, 0),
		MaxDurationMinutes:               f.integer("max_duration_minutes", 1, maxDurationMinutes, 0),
		WorkerQueueTTLMS:                 int64(f.integer("worker_queue_ttl_ms", minQueueTTLMS, maxQueueTTLMS, 0)),
	}
}
