package sink

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// mediaType is that of a CloudEvent in its JSON format, structured mode.
const mediaType = "application/cloudevents+json"

// eventType returns the type of an event in CloudEvents.
func eventType(e tasker.Event) string { return "tasker." + e.Topic }

// CloudEvent returns an event as CloudEvents 1.0 JSON. The source is a URI reference
// that names the installation, "tasker" by default.
func CloudEvent(e tasker.Event, source string) ([]byte, error) {
	out := apiv1.CloudEvent{
		SpecVersion:     "1.0",
		ID:              e.UUID.String(),
		Source:          cmp.Or(source, defaultSource),
		Type:            eventType(e),
		Time:            e.At.UTC(),
		DataContentType: "application/json",
		Sequence:        fmt.Sprintf("%020d", e.Position),
		Data:            e.Data,
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
		return nil, refuse(fmt.Errorf("%s cannot be written as JSON: %w", describe(e), err))
	}
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), nil
}

// joinFields puts one blank where any white space was.
func joinFields(s string) string { return strings.Join(strings.Fields(s), " ") }
