package sink

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tasker.example/tasker"
)

// mediaType is that of [Event.CloudEvent].
const mediaType = "application/cloudevents+json"

// cloudEvent is CloudEvents 1.0 in its JSON format, structured mode. The
// attributes after datacontenttype but data are extensions; sequence is the
// documented one, which receivers compare as text.
type cloudEvent struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject,omitempty"`
	Time        string          `json:"time"`
	ContentType string          `json:"datacontenttype"`
	TaskUUID    string          `json:"taskuuid,omitempty"`
	Sequence    string          `json:"sequence"`
	Data        json.RawMessage `json:"data,omitempty"`
}

// eventType is the type of an event as the world knows it.
func (e Event) eventType() string { return "tasker." + e.Topic }

// CloudEvent returns the event as CloudEvents 1.0 JSON. Source says which
// installation tells it; it is a URI reference, by default "tasker".
func (e Event) CloudEvent(source string) ([]byte, error) {
	out := cloudEvent{
		SpecVersion: "1.0",
		ID:          e.ID.String(),
		Source:      cmp.Or(source, defaultSource),
		Type:        e.eventType(),
		Time:        e.At.UTC().Format(time.RFC3339Nano),
		ContentType: "application/json",
		Sequence:    fmt.Sprintf("%020d", e.Position),
		Data:        e.Data,
	}
	if e.EntryUUID != (tasker.ID{}) {
		out.Subject = e.EntryUUID.String()
	}
	if e.TaskUUID != (tasker.ID{}) {
		out.TaskUUID = e.TaskUUID.String()
	}
	var body bytes.Buffer
	plain := json.NewEncoder(&body)
	plain.SetEscapeHTML(false) // people read it
	if err := plain.Encode(out); err != nil {
		return nil, refuse(fmt.Errorf("%s cannot be written as JSON: %w", e.describe(), err))
	}
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), nil
}

// joinFields puts one blank where any white space was.
func joinFields(s string) string { return strings.Join(strings.Fields(s), " ") }
