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

// logSink writes one log record per event.
type logSink struct {
	handler slog.Handler
	source  string
}

// alarming lists the topics that are logged as warnings.
var alarming = []string{
	tasker.EntryCreatedTopic, tasker.CaseOpenedTopic, tasker.CaseGrewTopic, tasker.CaseRegressedTopic, tasker.CaseWokeTopic,
	tasker.CaseUnownedTopic,
	tasker.OperationPausedTopic,
}

// NewLog returns a sink that logs each event or notification: new investigations and alarms as
// warnings, the rest at level info.
func NewLog(log *slog.Logger, source string) Sink {
	return &logSink{handler: cmp.Or(log, slog.New(slog.DiscardHandler)).Handler(), source: source}
}

// Name returns "log".
func (*logSink) Name() string { return "log" }

// Close does nothing, because the sink does not own the logger.
func (*logSink) Close() error { return nil }

// Emit logs the event. It calls the handler directly, because a logger discards errors.
func (s *logSink) Emit(ctx context.Context, e tasker.Event) error {
	level := slog.LevelInfo
	if slices.Contains(alarming, e.Topic) {
		level = slog.LevelWarn
	}
	if !s.handler.Enabled(ctx, level) {
		return nil
	}
	data, err := toLogValue(e.Data)
	if err != nil {
		return newRefusedError(fmt.Errorf("%s: invalid JSON in its data: %w", describe(e), err))
	}
	name := "investigation event"
	about := []slog.Attr{slog.String("task", e.TaskUUID.String()), slog.String("entry", e.EntryUUID.String())}
	switch {
	case e.Subject == nil && e.EntryUUID == tasker.ID{}:
		name, about = "task event", about[:1]
	case e.Subject != nil:
		name = "message"
		about = []slog.Attr{slog.String(e.Subject.Kind, e.Subject.ID.String()), slog.String("dedup_key", computeDedupKey(e, s.source))}
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

// toLogValue converts a document to log groups, so that its members can be searched.
func toLogValue(data json.RawMessage) (slog.Value, error) {
	if len(data) == 0 {
		return slog.GroupValue(), nil
	}
	numbers := json.NewDecoder(bytes.NewReader(data))
	numbers.UseNumber() // preserves all digits
	var doc any
	if err := numbers.Decode(&doc); err != nil {
		return slog.Value{}, err
	}
	return toLogGroup(doc), nil
}

// toLogGroup converts an object to a group, sorted by name and without null values. It returns
// other values unchanged.
func toLogGroup(doc any) slog.Value {
	object, ok := doc.(map[string]any)
	if !ok {
		return slog.AnyValue(doc)
	}
	attrs := make([]slog.Attr, 0, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if value := object[key]; value != nil {
			attrs = append(attrs, slog.Attr{Key: key, Value: toLogGroup(value)})
		}
	}
	return slog.GroupValue(attrs...)
}
