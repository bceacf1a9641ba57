package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/redact"
)

func TestMain(m *testing.M) { mqtest.Main(m) }

// noLeaks fails the test if a goroutine outlives it.
func noLeaks(t *testing.T) {
	t.Helper()
	already := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, already) })
}

// event is the one at a position, with an id that follows from it.
func event(position int64, topic string) tasker.Event {
	id := tasker.ID{15: byte(position), 14: byte(position >> 8)}
	return tasker.Event{
		Position: position, UUID: id, Topic: topic,
		TaskUUID: tasker.ID{0: 1}, EntryUUID: tasker.ID{0: 2},
		At:   time.Date(2026, 3, 4, 5, 6, 7, 891_000_000, time.FixedZone("", 3600)),
		Data: json.RawMessage(`{"dlq_reason": "staleness_timeout", "n": 12345678901234567890, "step": {"name": "<pay>", "token": "[redacted]"}, "x": null}`),
	}
}

func TestACloudEvent(t *testing.T) {
	got, err := CloudEvent(event(42, "dlq.entry.created"), "https://tasker.example/prod")
	const want = `{"specversion":"1.0","id":"00000000-0000-0000-0000-00000000002a","source":"https://tasker.example/prod",` +
		`"type":"tasker.dlq.entry.created","subject":"02000000-0000-0000-0000-000000000000","time":"2026-03-04T04:06:07.891Z",` +
		`"datacontenttype":"application/json","taskuuid":"01000000-0000-0000-0000-000000000000","sequence":"00000000000000000042",` +
		`"data":{"dlq_reason":"staleness_timeout","n":12345678901234567890,"step":{"name":"<pay>","token":"[redacted]"},"x":null}}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

// The subject of an event without an investigation is its task.
func TestACloudEventOfATask(t *testing.T) {
	e := event(42, tasker.TaskCompletedTopic)
	e.EntryUUID = tasker.ID{}
	got, err := CloudEvent(e, "")
	if err != nil || !strings.Contains(string(got), `"type":"tasker.task.completed","subject":"01000000-0000-0000-0000-000000000000"`) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestACloudEventOfLittle(t *testing.T) {
	e := tasker.Event{Position: 1, Topic: "dlq.\"\n\xff", At: time.Unix(0, 0)}
	got, err := CloudEvent(e, "")
	const want = `{"specversion":"1.0","id":"00000000-0000-0000-0000-000000000000","source":"tasker","type":"tasker.dlq.\"\n` + `\ufffd` +
		`","time":"1970-01-01T00:00:00Z","datacontenttype":"application/json","sequence":"00000000000000000001"}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	e.Data = json.RawMessage(`{"broken"`)
	if _, err := CloudEvent(e, ""); !IsRefused(err) {
		t.Errorf("with data that is not JSON: %v", err)
	}
}

func TestWhatErrorsTell(t *testing.T) {
	plain := errors.New("down")
	asked := fmt.Errorf("told: %w", &failure{err: plain, after: time.Minute})
	for _, tt := range []struct {
		err     error
		refused bool
		after   time.Duration
	}{
		{nil, false, 0},
		{plain, false, 0},
		{asked, false, time.Minute},
		{fmt.Errorf("told: %w", newRefusedError(plain)), true, 0},
	} {
		if IsRefused(tt.err) != tt.refused || RetryAfter(tt.err) != tt.after {
			t.Errorf("%v: refused %v, after %s", tt.err, IsRefused(tt.err), RetryAfter(tt.err))
		}
	}
}

func TestTheLogHasALineForEachEvent(t *testing.T) {
	rules, err := redact.New(redact.DefaultKeys, "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := NewLog(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: rules.Attr})), "")
	for _, topic := range []string{"dlq.entry.created", "dlq.entry.resolved\nlevel=ERROR"} {
		if err := s.Emit(t.Context(), event(7, topic)); err != nil {
			t.Error(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	const rest = `,"event":"00000000-0000-0000-0000-000000000007","position":7,"task":"01000000-0000-0000-0000-000000000000",` +
		`"entry":"02000000-0000-0000-0000-000000000000","at":"2026-03-04T04:06:07.891Z",` +
		`"data":{"dlq_reason":"staleness_timeout","n":12345678901234567890,"step":{"name":"<pay>","token":"[redacted]"}}}`
	for i, want := range []string{
		`"level":"WARN","msg":"investigation event","topic":"dlq.entry.created"` + rest,
		`"level":"INFO","msg":"investigation event","topic":"dlq.entry.resolved\nlevel=ERROR"` + rest,
	} {
		if _, got, _ := strings.Cut(lines[i], ","); got != want {
			t.Errorf("line %d\n got %s\nwant %s", i, got, want)
		}
	}
}

// broken is a log that nobody can write to.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestALogThatCannotBeWritten(t *testing.T) {
	s := NewLog(slog.New(slog.NewTextHandler(broken{}, nil)), "")
	if err := s.Emit(t.Context(), event(1, "dlq.entry.created")); err == nil || IsRefused(err) || !strings.Contains(err.Error(), "disk full") {
		t.Error(err)
	}
	bad := event(1, "dlq.entry.created")
	bad.Data = json.RawMessage(`{`)
	if err := s.Emit(t.Context(), bad); !IsRefused(err) {
		t.Error(err)
	}
	quiet := NewLog(slog.New(slog.NewTextHandler(broken{}, &slog.HandlerOptions{Level: slog.LevelError})), "")
	if err := quiet.Emit(t.Context(), event(1, "dlq.entry.created")); err != nil {
		t.Errorf("a level that is not written: %v", err)
	}
}
