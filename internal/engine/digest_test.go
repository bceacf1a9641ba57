package engine_test

import (
	"encoding/hex"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// keyed is a request under an idempotency key.
func keyed(context string) tasker.NewTask {
	return tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", IdempotencyKey: "k", Context: json.RawMessage(context)}
}

// again sends a request under a key that is taken and returns what came of it.
func (h *harness) again(r tasker.NewTask) (tasker.ID, error) {
	h.Helper()
	created, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{r})
	if err != nil {
		return tasker.ID{}, err
	}
	if created[0].New {
		h.Errorf("a second task %s was created under one key", created[0].TaskUUID)
	}
	return created[0].TaskUUID, nil
}

func TestAKeyTellsNumbersApartThatAFloatDoesNot(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	first := h.CreateWith(keyed(`{"account": 9007199254740992}`))
	for _, other := range []string{`{"account": 9007199254740993}`, `{"account": 9007199254740992.0001}`, `{"account": "9007199254740992"}`} {
		_, err := h.again(keyed(other))
		h.WantCode(err, tasker.Conflict, first.String())
	}
	for _, same := range []string{`{"account": 9007199254740992.0}`, `{"account":9.007199254740992e15}`} {
		got, err := h.again(keyed(same))
		h.Must(err)
		if got != first {
			t.Errorf("%s led to task %s, want %s", same, got, first)
		}
	}
	h.drain()
}

// What is left out and what is spelled out at its default are one request.
func TestDefaultsAreTheSameSpelledOutOrNot(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	first := h.CreateWith(keyed(`{}`))
	spelled := keyed("")
	spelled.Tags = []string{}
	got, err := h.again(spelled)
	h.Must(err)
	if got != first {
		t.Errorf("led to task %s, want %s", got, first)
	}
	h.drain()
}

// Every field of a request counts, so that none that is added is forgotten.
func TestEveryFieldOfARequestCounts(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.Template("single2", enginetest.Step("one"))
	first := h.CreateWith(keyed(`{}`))
	values := map[string]any{
		"Name": "single2", "Version": "1.0.0", "Context": json.RawMessage(`{"a":1}`), "Initiator": "x", "SourceSystem": "x", "Reason": "x",
		"Priority": 1, "Tags": []string{"x"}, "CorrelationID": "x", "ParentCorrelationID": "x", "StartAt": time.Now().Add(time.Hour),
		"StartAfter": time.Minute, "StartBy": time.Now().Add(time.Hour), "StartWithin": time.Minute, "RecreatedFrom": first,
		"Unique": tasker.Unique{Key: "k"}, "Debounce": tasker.Debounce{Key: "k", Wait: time.Second},
		"DueAt": time.Now(), "DueAfter": time.Minute,
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[tasker.NewTask]()) {
		if f.Name == "Namespace" || f.Name == "IdempotencyKey" {
			continue // they are the key
		}
		value, ok := values[f.Name]
		if !ok {
			t.Errorf("field %s: give a value here, and add the field to the digest with omitzero", f.Name)
			continue
		}
		r := keyed(`{}`)
		reflect.ValueOf(&r).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(value))
		_, err := h.again(r)
		if tasker.CodeOf(err) != tasker.Conflict {
			t.Errorf("field %s does not count: %v", f.Name, err)
		}
	}
	h.drain()
}

// A stored digest must be recognized by every later version, so its bytes never change.
func TestStoredDigestsAreRecognized(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	full := tasker.NewTask{
		Namespace: enginetest.Namespace, Name: "single", Version: "1.0.0", Context: json.RawMessage(`{"b": [1.50, true, null], "a": "é<"}`), Initiator: "i",
		SourceSystem: "s", Reason: "r", Priority: 7, Tags: []string{"x", "y"}, CorrelationID: "c", ParentCorrelationID: "p", IdempotencyKey: "k",
		StartAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600)),
	}
	first := h.CreateWith(full)
	sum, err := hex.DecodeString("4234910d561f815146ef2062fb9ccaf607488f1a588060b597df673686550af9")
	h.Must(err)
	h.Exec(`UPDATE tasker.tasks SET request_digest = $1`, sum)
	if got, err := h.again(full); err != nil || got != first {
		t.Errorf("got task %s, %v; want %s", got, err, first)
	}
	other := full
	other.Priority = 8
	_, err = h.again(other)
	h.WantCode(err, tasker.Conflict, first.String())
	h.Must(h.Engine.CancelTask(t.Context(), first, "ann", "seen"))
}
