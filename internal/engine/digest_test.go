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

func TestRequestsWithOneKeyAreComparedByValue(t *testing.T) {
	h := newSingle(t)
	first := h.CreateWith(keyed(`{"account": 9007199254740992, "b": 2}`))
	for doc, same := range map[string]bool{
		`{"b": 2, "account": 9007199254740992}`:      true,
		`{"account": 9007199254740992.0, "b":2}`:     true,
		`{"account": 9.007199254740992e15, "b": 2}`:  true,
		`{"account": 9007199254740993, "b": 2}`:      false, // a float does not tell it apart
		`{"account": 9007199254740992.0001, "b": 2}`: false,
		`{"account": "9007199254740992", "b": 2}`:    false,
		`{"account": 9007199254740992}`:              false,
	} {
		r := keyed(doc)
		r.Tags = []string{} // as if it was left out
		got, err := h.again(r)
		if !same {
			h.WantCode(err, tasker.Conflict, first.String())
		} else if err != nil || got != first {
			t.Errorf("%s led to task %s, %v; want %s", doc, got, err, first)
		}
	}
	other := keyed(`{}`)
	other.IdempotencyKey = "other"
	h.Must(errOf(h.Engine.CreateTasks(t.Context(), []tasker.NewTask{other, other, {Namespace: h.Space, Name: "single"}})))
	equal(t, "tasks", h.Drain(), 3)
}

// Fails if a new field is missing in the digest.
func TestRequestDigestCoversEveryField(t *testing.T) {
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
	h.Drain()
}

// The bytes of a stored digest must never change.
func TestStoredRequestDigestsAreRecognized(t *testing.T) {
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
	h.WantCode(errOf(h.again(other)), tasker.Conflict, first.String())
	h.Cancel(first)
}
