package access

import (
	"bytes"
	"context"
	"encoding/json"

	"tasker.example/tasker"
)

// Hidden is what stands in the place of a text that the caller may not read: contexts,
// results and the texts of errors without [ReadPayloads].
const Hidden = "[hidden]"

var (
	hiddenContext = json.RawMessage(`{"` + Hidden + `":"payloads:read is needed"}`)
	hiddenResult  = json.RawMessage(`{"success":true,"result":"` + Hidden + `"}`)
	hiddenValue   = json.RawMessage(`"` + Hidden + `"`)
)

// WithPayloads returns a context that shows payloads of a scope only.
func WithPayloads(ctx context.Context, s Scope) context.Context {
	return context.WithValue(ctx, payloadsKey, s)
}

// PayloadsOf returns the namespaces whose payloads are shown; all where nothing is said.
func PayloadsOf(ctx context.Context) Scope {
	if s, ok := ctx.Value(payloadsKey).(Scope); ok {
		return s
	}
	return Everywhere()
}

// RedactTask hides the context of a task.
func RedactTask(ctx context.Context, t *tasker.Task) {
	if len(t.Context) > 0 && !PayloadsOf(ctx).Has(t.Namespace) {
		t.Context = hiddenContext
	}
	if len(t.Attributes) > 0 && !PayloadsOf(ctx).Has(t.Namespace) {
		t.Attributes = nil // they are parts of payloads
	}
	if t.Options != nil && t.Options.UniqueKey+t.Options.DebounceKey != "" && !PayloadsOf(ctx).Has(t.Namespace) {
		shown := *t.Options
		shown.UniqueKey, shown.DebounceKey = "", "" // a template makes them of the context
		t.Options = &shown
	}
}

// HideSteps hides results and errors of steps of one task.
func HideSteps(ctx context.Context, steps ...tasker.Step) {
	if PayloadsOf(ctx).All() {
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
		if s.Map != nil {
			item := *s.Map
			item.Value = hiddenValue
			s.Map = &item
		}
		steps[i].Error = hideFailure(steps[i].Error)
	}
}

// hideFailure keeps of a [tasker.StepFailure] what is not free text.
func hideFailure(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return doc
	}
	var f tasker.StepFailure
	if json.Unmarshal(doc, &f) != nil {
		return hiddenValue
	}
	f.Message, f.Context = Hidden, nil
	return encoded(f)
}

// HideTransitions hides what moves of one task or step tell of errors, and the reasons of
// those that nobody made.
func HideTransitions(ctx context.Context, list []tasker.Transition) {
	if PayloadsOf(ctx).All() {
		return
	}
	for i := range list {
		if m := &list[i]; len(m.Detail) > 0 {
			m.Detail = hideFailure(m.Detail)
		}
		if m := &list[i]; m.Reason != "" && m.Actor == "" {
			m.Reason = Hidden
		}
	}
}

// mayContainPayload reports whether the engine wrote the note of a line of the history of an investigation, and may have quoted
// an error in it, or why a task was rejected.
func mayContainPayload(event, actor string) bool {
	return event == "step_failed" || event == "created" && actor == tasker.SystemActor
}

// HideEntry hides the payloads in the evidence of an investigation, and its metadata.
func HideEntry(ctx context.Context, e *tasker.Entry) {
	if PayloadsOf(ctx).Has(e.Namespace) {
		return
	}
	e.Snapshot, e.Metadata = hideSnapshot(e.Snapshot), hideMetadata(e.Metadata)
	for i := range e.History {
		h := &e.History[i]
		h.Metadata = hideMetadata(h.Metadata)
		if h.Notes != nil && mayContainPayload(h.Event, h.Actor) {
			h.Notes = new(Hidden)
		}
	}
}

// hideMetadata keeps who an investigation is assigned to.
func hideMetadata(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return doc
	}
	var m struct {
		Assignee json.RawMessage `json:"assignee,omitempty"`
	}
	if json.Unmarshal(doc, &m) != nil {
		return hiddenContext
	}
	return encoded(m)
}

// snapshotPayloads are the keys of a snapshot whose values are payloads.
// Why a snapshot or its redaction failed may quote them.
var snapshotPayloads = map[string]bool{
	"context": true, "results": true, "error": true, "detail": true, "reason": true, "snapshot_failed": true, "redaction_failed": true,
}

// hideSnapshot hides the payloads of a snapshot; its template is not one.
func hideSnapshot(doc json.RawMessage) json.RawMessage {
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
	hideKeys(m)
	if has {
		m["template"] = template
	}
	return encoded(m)
}

func hideKeys(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if snapshotPayloads[key] && value != nil {
				v[key] = Hidden
			} else {
				hideKeys(value)
			}
		}
	case []any:
		for _, value := range v {
			hideKeys(value)
		}
	}
}

// HidePattern hides what an error looks like, in a namespace.
func HidePattern(ctx context.Context, namespace string, pattern *string) {
	if *pattern != "" && !PayloadsOf(ctx).Has(namespace) {
		*pattern = Hidden
	}
}

// HideCaseHistory hides what changes of a case of a namespace tell of messages: the text by
// which they were split.
func HideCaseHistory(ctx context.Context, namespace string, list []tasker.CaseChange) {
	if PayloadsOf(ctx).Has(namespace) {
		return
	}
	for i := range list {
		if c := &list[i]; c.Event == "split" {
			c.Metadata = hideLiteral(c.Metadata)
		}
	}
}

// HideHold hides what a hold tells of errors: the cause of a breaker, which its reason quotes.
func HideHold(ctx context.Context, h *tasker.Hold) {
	if h.Kind != tasker.BreakerHold || PayloadsOf(ctx).Has(h.Namespace) {
		return
	}
	h.Cause, h.Reason = Hidden, Hidden
}

// HideSchedule hides the context that a schedule gives its tasks.
func HideSchedule(ctx context.Context, s *tasker.Schedule) {
	if len(s.Context) > 0 && !PayloadsOf(ctx).Has(s.Namespace) {
		s.Context = hiddenContext
	}
}

// HideLimitKeys hides the keys of a limit that templates give, which are of the contexts of tasks.
func HideLimitKeys(ctx context.Context, d *tasker.LimitDetail) {
	if d.Kind != tasker.NamedLimit || PayloadsOf(ctx).Has(d.Namespace) {
		return
	}
	for i := range d.Keys {
		if d.Keys[i].Key != "" {
			d.Keys[i].Key = Hidden
		}
	}
}

// HideFirings hides why tasks of a schedule of a namespace could not be made, which may quote
// their context.
func HideFirings(ctx context.Context, namespace string, list []tasker.Firing) {
	if PayloadsOf(ctx).Has(namespace) {
		return
	}
	for i := range list {
		if list[i].Outcome == tasker.FiringRefused {
			list[i].Reason = Hidden
		}
	}
}

// HideHoldHistory hides what the history of a hold tells of errors: what its probes failed
// with, and the reasons of what nobody did.
func HideHoldHistory(ctx context.Context, d *tasker.HoldDetail) {
	if PayloadsOf(ctx).Has(d.Namespace) {
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

func hideLiteral(doc json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(doc, &m) != nil {
		return hiddenContext
	}
	if string(m["field"]) != `"error_message"` { // the others are facts, which may be read
		return doc
	}
	m["literal"] = hiddenValue
	return encoded(m)
}

// ShowEvent returns an event as the caller may see it, and false when it is of a
// namespace that does not exist for the caller.
func ShowEvent(ctx context.Context, e tasker.Event) (tasker.Event, bool) {
	scope, payloads := ScopeOf(ctx), PayloadsOf(ctx)
	if scope.All() && payloads.All() {
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
		if change, ok := data["change"].(map[string]any); ok {
			hideChange(change)
		}
		e.Data = encoded(data)
	}
	return e, true
}

// hideChange hides what a change of an investigation tells of payloads.
func hideChange(change map[string]any) {
	if change["metadata"] != nil {
		change["metadata"] = Hidden
	}
	event, _ := change["event"].(string)
	actor, _ := change["actor"].(string)
	if change["notes"] != nil && mayContainPayload(event, actor) {
		change["notes"] = Hidden
	}
}

func encoded(v any) json.RawMessage {
	doc, err := json.Marshal(v)
	if err != nil { // it was read from JSON, so it can be written
		return hiddenValue
	}
	return doc
}

// HideLastError hides why a sink did not take something, or why work was set aside: it may
// quote payloads. They are of these namespaces; when none are named, of any.
func HideLastError(ctx context.Context, text **string, namespaces ...string) {
	payloads := PayloadsOf(ctx)
	hidden := len(namespaces) == 0 && !payloads.All()
	for _, n := range namespaces {
		hidden = hidden || !payloads.Has(n)
	}
	if hidden && *text != nil {
		*text = new(Hidden)
	}
}

// HideEmission hides why a sink did not take an event.
func HideEmission(ctx context.Context, e *tasker.Emission) {
	if e.LastError == nil || PayloadsOf(ctx).All() {
		return
	}
	var data struct{ Namespace string }
	_ = json.Unmarshal(e.Data, &data) // payloads of no namespace are not shown
	HideLastError(ctx, &e.LastError, data.Namespace)
}

// HideMessage hides what a message tells of errors, unless the caller may read payloads of
// all the namespaces that it is about.
func HideMessage(ctx context.Context, m *tasker.Notification) {
	for _, n := range m.Namespaces {
		if PayloadsOf(ctx).Has(n) {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(m.Data))
		d.UseNumber()
		var data any
		if d.Decode(&data) != nil {
			m.Data = hiddenContext
			return
		}
		hideTexts(data)
		m.Data = encoded(data)
		return
	}
}

// hideTexts hides what quotes an error, at any depth.
func hideTexts(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if (key == "text" || key == "summary") && value != "" {
				v[key] = Hidden
			} else {
				hideTexts(value)
			}
		}
	case []any:
		for _, value := range v {
			hideTexts(value)
		}
	}
}
