// Package apiv1 defines the JSON request and response types of the /v1 API. The server, the Go client
// and tasker-ctl share them.
package apiv1

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"tasker.example/tasker"
)

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
