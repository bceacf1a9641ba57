package sink

import (
	"cmp"
	"fmt"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/notice"
)

// mediaType is the media type of CloudEvents in structured mode.
const mediaType = "application/cloudevents+json"

// eventType returns the CloudEvents type of an event.
func eventType(e tasker.Event) string { return "tasker." + e.Topic }

// CloudEvent encodes an event as CloudEvents 1.0 JSON. source defaults to "tasker".
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
	switch {
	case e.Subject != nil:
		out.Subject, out.DedupKey = e.Subject.ID.String(), computeDedupKey(e, source)
	case e.EntryUUID != (tasker.ID{}):
		out.Subject = e.EntryUUID.String()
	case e.TaskUUID != (tasker.ID{}):
		out.Subject = e.TaskUUID.String()
	}
	if e.TaskUUID != (tasker.ID{}) {
		out.TaskUUID = e.TaskUUID.String()
	}
	body, err := encodeReadable(out)
	if err != nil {
		return nil, newRefusedError(fmt.Errorf("cannot encode %s as JSON: %w", describe(e), err))
	}
	return body, nil
}

// computeDedupKey returns the key by which receivers group notifications about one subject.
func computeDedupKey(e tasker.Event, source string) string {
	return cmp.Or(e.Subject.DedupKey, notice.Key(cmp.Or(source, defaultSource), e.Subject.Kind, e.Subject.ID))
}

// joinFields replaces each sequence of white space with one blank.
func joinFields(s string) string { return strings.Join(strings.Fields(s), " ") }
