package templatefile

import (
	"encoding/json"
	"slices"

	"tasker.example/tasker"
)

const (
	maxTimeoutSeconds = 7 * 24 * 60 * 60
	minQueueTTLMS     = 1000
	maxQueueTTLMS     = 7 * 24 * 60 * 60 * 1000
	maxAttempts       = 100
	maxBackoffBaseMS  = 60 * 60 * 1000
	maxBackoffMS      = 24 * 60 * 60 * 1000
)

func (v value) step() (tasker.StepTemplate, []value) {
	s := tasker.StepTemplate{Type: tasker.StandardStep, Retry: tasker.DefaultRetry()}
	f, ok := v.fields("name", "type|step_type", "description", "handler", "dependencies|depends_on",
		"retry", "timeout_seconds", "worker_queue_ttl_ms", "publishes_events")
	if !ok {
		return s, nil
	}
	if v, ok := f.need("name"); ok {
		s.Name = v.name()
		if s.Name == tasker.AllSteps {
			v.fault("%s is reserved: in environments it means every step", tasker.AllSteps)
		}
	}
	if v, ok := f.get("type"); ok {
		s.Type = v.stepType()
	}
	s.Description = f.description()
	s.Handler = f.handler(s.Type)
	if v, ok := f.get("retry"); ok {
		s.Retry = v.retry()
	}
	s.TimeoutSeconds = f.integer("timeout_seconds", 1, maxTimeoutSeconds, 0)
	s.WorkerQueueTTLMS = int64(f.integer("worker_queue_ttl_ms", minQueueTTLMS, maxQueueTTLMS, 0))
	if v, ok := f.get("worker_queue_ttl_ms"); ok && s.Type == tasker.ExternalStep {
		v.fault("has no meaning for an external step, which waits in no queue")
	}
	if v, ok := f.get("timeout_seconds"); ok && s.Type == tasker.ExternalStep {
		v.fault("%s", externalTimeout)
	}
	f.refuseEvents("publishes_events")
	var dependencies []value
	if v, ok := f.get("dependencies"); ok {
		dependencies = v.items()
	}
	return s, dependencies
}

// externalTimeout is why an external step has no timeout.
const externalTimeout = "not supported for an external step, which waits until it is completed from outside; " +
	"a task that waits too long is found by lifecycle.max_waiting_for_dependencies_minutes or max_duration_minutes"

func (v value) stepType() tasker.StepType {
	if isText(v.node) && slices.Contains(foreignTypes, v.node.Value) {
		v.fault("%s steps are not supported; a step is standard or external", v.node.Value)
		return tasker.StandardStep
	}
	return oneOf(v, tasker.StandardStep, tasker.ExternalStep)
}

func (f fields) handler(stepType tasker.StepType) tasker.Handler {
	if stepType == tasker.ExternalStep {
		if v, ok := f.get("handler"); ok {
			v.fault("an external step has no handler: it is completed from outside")
		}
		return tasker.Handler{}
	}
	v, ok := f.need("handler")
	if !ok {
		return tasker.Handler{}
	}
	var h tasker.Handler
	if f, ok := v.fields("callable", "initialization"); ok {
		if v, ok := f.need("callable"); ok {
			h.Callable = v.callable()
		}
		h.Initialization = f.initialization()
	}
	return h
}

func (f fields) initialization() json.RawMessage {
	if v, ok := f.get("initialization"); ok {
		return v.object()
	}
	return nil
}

// oneOf reads one of a few words.
func oneOf[T ~string](v value, words ...T) T {
	known := make([]string, len(words))
	for i, w := range words {
		if isText(v.node) && v.node.Value == string(w) {
			return w
		}
		known[i] = string(w)
	}
	v.wrong("one of " + list(known))
	return words[0]
}

func (v value) retry() tasker.Retry {
	r := tasker.DefaultRetry()
	o := v.retryOverride()
	v.refuseUnreachableBackoff(o, r)
	s := tasker.Template{
		Steps:        []tasker.StepTemplate{{Retry: r}},
		Environments: map[string]tasker.Override{"": {Steps: []tasker.StepOverride{{Name: tasker.AllSteps, Retry: &o}}}},
	}
	return s.ForEnvironment("").Steps[0].Retry
}

// refuseUnreachableBackoff notes a base, written here, that the most allowed
// backoff cuts off at once. It reports whether it did.
func (v value) refuseUnreachableBackoff(o tasker.RetryOverride, before tasker.Retry) bool {
	most := before.MaxBackoffMS
	if o.MaxBackoffMS != nil {
		most = *o.MaxBackoffMS
	}
	if o.BaseMS == nil || *o.BaseMS <= most {
		return false
	}
	v.fault("backoff_base_ms %d is more than max_backoff_ms %d, so it would never be reached; raise max_backoff_ms", *o.BaseMS, most)
	return true
}

// retryOverride reads the fields of a retry policy that are there.
func (v value) retryOverride() tasker.RetryOverride {
	var o tasker.RetryOverride
	f, _ := v.fields("retryable", "max_attempts", "backoff", "backoff_base_ms", "max_backoff_ms", "jitter")
	o.Retryable = f.optionalTruth("retryable")
	o.Jitter = f.optionalTruth("jitter")
	o.MaxAttempts = f.optionalInteger("max_attempts", 1, maxAttempts)
	o.BaseMS = f.optionalInteger("backoff_base_ms", 0, maxBackoffBaseMS)
	o.MaxBackoffMS = f.optionalInteger("max_backoff_ms", 0, maxBackoffMS)
	if v, ok := f.get("backoff"); ok {
		backoff := oneOf(v, tasker.ExponentialBackoff, tasker.LinearBackoff, tasker.ConstantBackoff)
		o.Backoff = &backoff
	}
	return o
}

func (f fields) optionalTruth(name string) *bool {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	b, _ := v.truth()
	return &b
}

func (f fields) optionalInteger(name string, low, high int) *int {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	n, _ := v.integer(low, high)
	return &n
}
