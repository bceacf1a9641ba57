// Package apiv1 defines the JSON request and response types of the /v1 API. The server, the Go client
// and tasker-ctl share them.
package apiv1

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"tasker.example/tasker"
)

// Error is the body of all error responses.
type Error struct {
	Error ErrorBody `json:"error"`
}

// ErrorBody describes an error for programs and people.
type ErrorBody struct {
	Code    string `json:"code" doc:"Stable code in UPPER_SNAKE."`
	Message string `json:"message" doc:"What is wrong, where, and how to fix it."`
	Details any    `json:"details,omitempty" doc:"A list of faults, the id of a conflicting object, the allowed actions of a step, or absent."`
}

func toUTC(t *time.Time) *time.Time {
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

// convert applies from to each element. Its result is never nil.
func convert[T, U any](list []T, from func(T) U) []U {
	out := make([]U, len(list))
	for i, x := range list {
		out[i] = from(x)
	}
	return out
}

// toTextKeys returns m with keys of type string. Its result is never nil.
func toTextKeys[K ~string, V any](m map[K]V) map[string]V {
	out := make(map[string]V, len(m))
	for k, v := range m {
		out[string(k)] = v
	}
	return out
}

// orObject returns doc, or {} if it is empty, so that workers need not handle null.
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

// Status returns the HTTP status of an error code.
func Status(code tasker.Code) int {
	switch code {
	case tasker.Invalid:
		return http.StatusBadRequest
	case tasker.Unauthorized:
		return http.StatusUnauthorized
	case tasker.Forbidden:
		return http.StatusForbidden
	case tasker.NotFound:
		return http.StatusNotFound
	case tasker.Conflict, tasker.StaleLease:
		return http.StatusConflict
	case tasker.TooLarge:
		return http.StatusRequestEntityTooLarge
	case tasker.Unsupported:
		return http.StatusUnsupportedMediaType
	case tasker.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// RetryAfter returns the value of the Retry-After header of an error response, in seconds: the
// delay of err if it has one, otherwise usual.
func RetryAfter(err error, usual time.Duration) string {
	rest := usual
	if known, ok := errors.AsType[*tasker.Error](err); ok && known.RetryAfter > 0 {
		rest = known.RetryAfter
	}
	return strconv.Itoa(int((rest + time.Second - 1) / time.Second))
}
