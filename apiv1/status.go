package apiv1

import (
	"net/http"

	"tasker.example/tasker"
)

// Status returns the HTTP status that a code is answered with.
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
