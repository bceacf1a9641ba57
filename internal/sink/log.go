package sink

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"tasker.example/tasker"
)

// logSink writes a line for each event.
type logSink struct {
	handler slog.Handler
	source  string
}

// alarming are the topics that are warnings in the log.
var alarming = []string{
	tasker.EntryCreatedTopic, tasker.CaseOpenedTopic, tasker.CaseGrewTopic, tasker.CaseRegressedTopic, tasker.CaseWokeTopic, tasker.CaseUnownedTopic,
	tasker.OperationPausedTopic,
}

// NewLog returns a sink that writes one line for each event or message: a warning for a new
// investigation and for what people should look at, information for the rest.
func NewLog(log *slog.Logger, source string) Sink {
	return &logSink{handler: cmp.Or(log, slog.New(slog.DiscardHandler)).Handler(), source: source}
}

// Name is log.
func (*logSink) Name() string { return "log" }

// Close does nothing: the log is not ours.
func (*logSink) Close() error { return nil }

// Emit writes the line through the handler, because a logger hides errors.
func (s *logSink) Emit(ctx context.Context, e tasker.Event) error {
	level := slog.LevelInfo
	if slices.Contains(alarming, e.Topic) {
		level = slog.LevelWarn
	}
	if !s.handler.Enabled(ctx, level) {
		return nil // as the operator wants it
	}
	data, err := logValue(e.Data)
	if err != nil {
		return refuse(fmt.Errorf("%s: its data is not JSON: %w", describe(e), err))
	}
	name, about := "investigation event", []slog.Attr{slog.String("task", e.TaskUUID.String()), slog.String("entry", e.EntryUUID.String())}
	if e.Subject != nil {
		name, about = "message", []slog.Attr{slog.String(e.Subject.Kind, e.Subject.ID.String()), slog.String("dedup_key", dedupKey(e, s.source))}
	}
	line := slog.NewRecord(time.Now(), level, name, 0)
	line.AddAttrs(slog.String("topic", e.Topic), slog.String("event", e.UUID.String()), slog.Int64("position", e.Position))
	line.AddAttrs(about...)
	line.AddAttrs(slog.Time("at", e.At.UTC()), slog.Attr{Key: "data", Value: data})
	if err := s.handler.Handle(ctx, line); err != nil {
		return fmt.Errorf("write %s to the log: %w", describe(e), err)
	}
	return nil
}

// logValue returns a document as log groups, so members are searchable.
func logValue(data json.RawMessage) (slog.Value, error) {
	if len(data) == 0 {
		return slog.GroupValue(), nil
	}
	numbers := json.NewDecoder(bytes.NewReader(data))
	numbers.UseNumber() // as they are written, not as a float64 can hold them
	var doc any
	if err := numbers.Decode(&doc); err != nil {
		return slog.Value{}, err
	}
	return group(doc), nil
}

// group turns objects into groups, by name; what is null is left out.
func group(doc any) slog.Value {
	object, ok := doc.(map[string]any)
	if !ok {
		return slog.AnyValue(doc)
	}
	attrs := make([]slog.Attr, 0, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if value := object[key]; value != nil {
			attrs = append(attrs, slog.Attr{Key: key, Value: group(value)})
		}
	}
	return slog.GroupValue(attrs...)
}
