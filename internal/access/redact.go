package access

import (
	"bytes"
	"context"
	"encoding/json"

	"tasker.example/tasker"
)

// Hidden replaces a text that requires [ReadPayloads]: contexts, results and error texts.
const Hidden = "[hidden]"

var (
	hiddenContext = json.RawMessage(`{"` + Hidden + `":"payloads:read is needed"}`)
	hiddenResult  = json.RawMessage(`{"success":true,"result":"` + Hidden + `"}`)
	hiddenValue   = json.RawMessage(`"` + Hidden + `"`)
)

// WithPayloadScope returns a context that may show only the payloads of the namespaces in s.
func WithPayloadScope(ctx context.Context, s Scope) context.Context {
	return context.WithValue(ctx, payloadsKey, s)
}

// PayloadScopeFromContext returns the namespaces whose payloads ctx may show. The default is all
// namespaces.
func PayloadScopeFromContext(ctx context.Context) Scope {
	if s, ok := ctx.Value(payloadsKey).(Scope); ok {
		return s
	}
	return EverywhereScope()
}

// RedactTask hides the context, attributes and keys of a task unless ctx may show payloads of its
// namespace.
func RedactTask(ctx context.Context, t *tasker.Task) {
	if len(t.Context) > 0 && !PayloadScopeFromContext(ctx).Has(t.Namespace) {
		t.Context = hiddenContext
	}
	if len(t.Attributes) > 0 && !PayloadScopeFromContext(ctx).Has(t.Namespace) {
		t.Attributes = nil // they are parts of payloads
	}
	if t.UniqueKey+t.DebounceKey != "" && !PayloadScopeFromContext(ctx).Has(t.Namespace) {
		t.UniqueKey, t.DebounceKey = "", "" // a template makes them of the context
	}
}

// RedactSteps hides the results and errors of steps unless ctx may show all payloads.
func RedactSteps(ctx context.Context, steps ...tasker.Step) {
	if PayloadScopeFromContext(ctx).IncludesAll() {
		return
	}
	for i := range steps {
		s := &steps[i]
		if len(s.Results) > 0 {
			s.Results = hiddenResult
		}
		if s.Checkpoint != nil && len(s.Checkpoint.Value) > 0 {
			s.Checkpoint.Value = hiddenValue
		}
		if s.MapStepUUID != nil {
			s.Item = hiddenValue
		}
		steps[i].Error = redactFailure(steps[i].Error)
	}
}

// redactFailure removes the free text from a [tasker.StepFailure].
func redactFailure(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return doc
	}
	var f tasker.StepFailure
	if json.Unmarshal(doc, &f) != nil {
		return hiddenValue
	}
	f.Message, f.Context = Hidden, nil
	return encodeJSON(f)
}

// RedactTransitions hides the errors in the transitions of a task or step, and the reasons of
// transitions without an actor, unless ctx may show all payloads.
func RedactTransitions(ctx context.Context, list []tasker.Transition) {
	if PayloadScopeFromContext(ctx).IncludesAll() {
		return
	}
	for i := range list {
		if m := &list[i]; len(m.Detail) > 0 {
			m.Detail = redactFailure(m.Detail)
		}
		if m := &list[i]; m.Reason != "" && m.Actor == "" {
			m.Reason = Hidden
		}
	}
}

// mayContainPayload reports whether the engine wrote the note of a history entry. Such a note may
// quote an error or a rejection.
func mayContainPayload(event, actor string) bool {
	return event == "step_failed" || event == "created" && actor == tasker.SystemActor
}

// RedactEntry hides the payloads in the evidence and the metadata of an investigation unless ctx
// may show payloads of its namespace.
func RedactEntry(ctx context.Context, e *tasker.Entry) {
	if PayloadScopeFromContext(ctx).Has(e.Namespace) {
		return
	}
	e.Snapshot, e.Metadata = redactSnapshot(e.Snapshot), redactMetadata(e.Metadata)
	for i := range e.History {
		h := &e.History[i]
		h.Metadata = redactMetadata(h.Metadata)
		if h.Notes != nil && mayContainPayload(h.Event, h.Actor) {
			h.Notes = new(Hidden)
		}
	}
}

// redactMetadata removes everything but the assignee from the metadata of an investigation.
func redactMetadata(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return doc
	}
	var m struct {
		Assignee json.RawMessage `json:"assignee,omitempty"`
	}
	if json.Unmarshal(doc, &m) != nil {
		return hiddenContext
	}
	return encodeJSON(m)
}

// snapshotPayloads are the keys of a snapshot whose values are payloads, or errors that may quote them.
var snapshotPayloads = map[string]bool{
	"context": true, "results": true, "error": true, "detail": true, "reason": true, "snapshot_failed": true, "redaction_failed": true,
}

// redactSnapshot hides the payloads of a snapshot, but not its template.
func redactSnapshot(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return doc
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var m map[string]any
	if d.Decode(&m) != nil {
		return hiddenContext
	}
	template, has := m["template"]
	delete(m, "template")
	redactKeys(m)
	if has {
		m["template"] = template
	}
	return encodeJSON(m)
}

func redactKeys(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if snapshotPayloads[key] && value != nil {
				v[key] = Hidden
			} else {
				redactKeys(value)
			}
		}
	case []any:
		for _, value := range v {
			redactKeys(value)
		}
	}
}

// RedactPattern hides the error pattern of a case unless ctx may show payloads of its namespace.
func RedactPattern(ctx context.Context, namespace string, pattern *string) {
	if *pattern != "" && !PayloadScopeFromContext(ctx).Has(namespace) {
		*pattern = Hidden
	}
}

// RedactCaseHistory hides the error texts by which a case was split unless ctx may show payloads of
// its namespace.
func RedactCaseHistory(ctx context.Context, namespace string, list []tasker.CaseChange) {
	if PayloadScopeFromContext(ctx).Has(namespace) {
		return
	}
	for i := range list {
		if c := &list[i]; c.Event == "split" {
			c.Metadata = redactLiteral(c.Metadata)
		}
	}
}

// RedactHold hides the cause of a breaker, and its reason, which quotes the cause, unless ctx may
// show payloads of its namespace.
func RedactHold(ctx context.Context, h *tasker.Hold) {
	if h.Kind != tasker.BreakerHold || PayloadScopeFromContext(ctx).Has(h.Namespace) {
		return
	}
	h.Cause, h.Reason = Hidden, Hidden
}

// RedactSchedule hides the context of a schedule's tasks unless ctx may show payloads of its
// namespace.
func RedactSchedule(ctx context.Context, s *tasker.Schedule) {
	if len(s.Context) > 0 && !PayloadScopeFromContext(ctx).Has(s.Namespace) {
		s.Context = hiddenContext
	}
}

// RedactLimitKeys hides the keys of a named limit, which come from the contexts of tasks, unless
// ctx may show payloads of its namespace.
func RedactLimitKeys(ctx context.Context, d *tasker.LimitDetail) {
	if d.Kind != tasker.NamedLimit || PayloadScopeFromContext(ctx).Has(d.Namespace) {
		return
	}
	for i := range d.Keys {
		if d.Keys[i].Key != "" {
			d.Keys[i].Key = Hidden
		}
	}
}

// RedactFirings hides the reasons of refused firings, which may quote a context, unless ctx may
// show payloads of the namespace.
func RedactFirings(ctx context.Context, namespace string, list []tasker.Firing) {
	if PayloadScopeFromContext(ctx).Has(namespace) {
		return
	}
	for i := range list {
		if list[i].Outcome == tasker.FiringRefused {
			list[i].Reason = Hidden
		}
	}
}

// RedactHoldHistory hides the errors in the history of a hold unless ctx may show payloads of its
// namespace: failures of probes, and reasons recorded by the server.
func RedactHoldHistory(ctx context.Context, d *tasker.HoldDetail) {
	if PayloadScopeFromContext(ctx).Has(d.Namespace) {
		return
	}
	for i := range d.History {
		if c := &d.History[i]; c.Reason != nil && c.Actor == tasker.SystemActor {
			c.Reason = new(Hidden)
		}
	}
	for i := range d.Releases {
		if r := &d.Releases[i]; r.Failure != nil {
			r.Failure = new(Hidden)
		}
	}
}

func redactLiteral(doc json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(doc, &m) != nil {
		return hiddenContext
	}
	if string(m["field"]) != `"error_message"` { // other fields are not payloads
		return doc
	}
	m["literal"] = hiddenValue
	return encodeJSON(m)
}

// RedactEvent returns the event without the payloads that ctx may not show. It returns false if the
// caller cannot see the namespace of the event.
func RedactEvent(ctx context.Context, e tasker.Event) (tasker.Event, bool) {
	scope, payloads := ScopeFromContext(ctx), PayloadScopeFromContext(ctx)
	if scope.IncludesAll() && payloads.IncludesAll() {
		return e, true
	}
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.UseNumber()
	var data map[string]any
	if d.Decode(&data) != nil {
		return tasker.Event{}, false
	}
	namespace, _ := data["namespace"].(string)
	if !scope.Has(namespace) {
		return tasker.Event{}, false
	}
	if !payloads.Has(namespace) {
		if step, ok := data["step"].(map[string]any); ok && step["error_message"] != nil {
			step["error_message"] = Hidden
		}
		for _, payload := range []string{"context", "results"} { // of a task event
			if data[payload] != nil {
				data[payload] = Hidden
			}
		}
		if change, ok := data["change"].(map[string]any); ok {
			redactChange(change)
		}
		e.Data = encodeJSON(data)
	}
	return e, true
}

// redactChange hides the payloads in a change of an investigation.
func redactChange(change map[string]any) {
	if change["metadata"] != nil {
		change["metadata"] = Hidden
	}
	event, _ := change["event"].(string)
	actor, _ := change["actor"].(string)
	if change["notes"] != nil && mayContainPayload(event, actor) {
		change["notes"] = Hidden
	}
	if change["reason"] != nil && actor == "" {
		change["reason"] = Hidden
	}
}

func encodeJSON(v any) json.RawMessage {
	doc, err := json.Marshal(v)
	if err != nil { // v was decoded from JSON
		return hiddenValue
	}
	return doc
}

// RedactLastError hides an error that may quote payloads of these namespaces, or of any namespace
// if none are set.
func RedactLastError(ctx context.Context, text **string, namespaces ...string) {
	payloads := PayloadScopeFromContext(ctx)
	hidden := len(namespaces) == 0 && !payloads.IncludesAll()
	for _, n := range namespaces {
		hidden = hidden || !payloads.Has(n)
	}
	if hidden && *text != nil {
		*text = new(Hidden)
	}
}

// RedactEmission hides the error of a delivery unless ctx may show payloads of the event's
// namespace.
func RedactEmission(ctx context.Context, e *tasker.Emission) {
	if e.LastError == nil || PayloadScopeFromContext(ctx).IncludesAll() {
		return
	}
	var data struct{ Namespace string }
	_ = json.Unmarshal(e.Data, &data) // if the namespace is missing, the error is hidden
	RedactLastError(ctx, &e.LastError, data.Namespace)
}

// RedactMessage hides the errors in a notification unless ctx may show payloads of all of its
// namespaces.
func RedactMessage(ctx context.Context, m *tasker.Notification) {
	for _, n := range m.Namespaces {
		if PayloadScopeFromContext(ctx).Has(n) {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(m.Data))
		d.UseNumber()
		var data any
		if d.Decode(&data) != nil {
			m.Data = hiddenContext
			return
		}
		redactTexts(data)
		m.Data = encodeJSON(data)
		return
	}
}

// redactTexts hides the fields that may quote an error, at any depth.
func redactTexts(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if (key == "text" || key == "summary") && value != "" {
				v[key] = Hidden
			} else {
				redactTexts(value)
			}
		}
	case []any:
		for _, value := range v {
			redactTexts(value)
		}
	}
}
