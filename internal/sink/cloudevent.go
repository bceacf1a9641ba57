package sink

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/notice"
)

// mediaType is that of a CloudEvent in its JSON format, structured mode.
const mediaType = "application/cloudevents+json"

// eventType returns the type of an event in CloudEvents.
func eventType(e tasker.Event) string { return "tasker." + e.Topic }

// CloudEvent returns an event as CloudEvents 1.0 JSON. source defaults to "tasker".
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
	if e.Subject != nil {
		out.Subject, out.DedupKey = e.Subject.ID.String(), dedupKey(e, source)
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

// dedupKey is by which receivers know that messages are about the same thing.
func dedupKey(e tasker.Event, source string) string {
	return cmp.Or(e.Subject.DedupKey, notice.Key(cmp.Or(source, defaultSource), e.Subject.Kind, e.Subject.ID))
}

// joinFields puts one blank where any white space was.
func joinFields(s string) string { return strings.Join(strings.Fields(s), " ") }
