package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Error is the one shape of every error answer.
type Error struct {
	Error ErrorBody `json:"error"`
}

// ErrorBody says what is wrong, for a program and for a person.
type ErrorBody struct {
	Code    string `json:"code" doc:"UPPER_SNAKE, stable."`
	Message string `json:"message" doc:"What is wrong, where, and what to do."`
	Details any    `json:"details,omitempty" doc:"A list of faults, the id of a conflicting thing, the actions that a step allows, or nothing."`
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func idOrNull(id *tasker.ID) *string {
	if id == nil || *id == (tasker.ID{}) {
		return nil
	}
	s := id.String()
	return &s
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// orObject returns an empty object for no document, so that no worker has to expect null.
func orObject(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return json.RawMessage("{}")
	}
	return doc
}

func orNull(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return json.RawMessage("null")
	}
	return doc
}
