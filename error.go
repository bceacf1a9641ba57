package tasker

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code classifies an [Error]. The HTTP API maps it to a status and the command line to an exit
// code.
type Code string

// Error codes, from caller errors to server errors.
const (
	Invalid      Code = "INVALID"       // the request is invalid; a retry cannot succeed
	TooLarge     Code = "TOO_LARGE"     // a body, document or list exceeds its limit
	NotFound     Code = "NOT_FOUND"     // the object does not exist, or not under this parent
	Conflict     Code = "CONFLICT"      // the current state does not allow the request
	StaleLease   Code = "STALE_LEASE"   // the attempt no longer holds the lease
	Unavailable  Code = "UNAVAILABLE"   // retry later; nothing was changed
	Internal     Code = "INTERNAL"      // any other error; details are only in the log
	Unauthorized Code = "UNAUTHORIZED"  // the caller is not authenticated
	Forbidden    Code = "FORBIDDEN"     // the caller lacks the permission
	Unsupported  Code = "NOT_SUPPORTED" // unsupported media type or method
)

// Error is a failure that the caller can act on. All other errors are internal: they are logged
// and never shown to callers.
type Error struct {
	Code    Code
	Message string // what is wrong, where, and how to fix it; safe to show to any caller
	Details any    // machine-readable details such as a list of faults; may be nil
	Err     error  // cause, for the log only

	RetryAfter time.Duration // of Unavailable: minimum delay before a retry, if known
}

// Error returns the message, followed by the cause unless the message contains it.
func (e *Error) Error() string {
	if e.Err != nil && !strings.Contains(e.Message, e.Err.Error()) {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an [Error] with a formatted message. A wrapped error (%w) also becomes its cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithDetails returns a copy of e with details.
func (e *Error) WithDetails(details any) *Error {
	c := *e
	c.Details = details
	return &c
}

// CodeOf returns the code of the first [Error] in the chain of err, "" for nil and [Internal] for
// any other error.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// Fault is one error in a document and its position.
type Fault struct {
	Line    int    `json:"line,omitempty"`   // 1-based; 0 if the document has no lines
	Column  int    `json:"column,omitempty"` // 1-based
	Path    string `json:"path,omitempty"`   // such as steps[2].retry.max_attempts
	Message string `json:"message"`
}

// String formats the fault as "line 3: steps[0].name: …".
func (f Fault) String() string {
	s := f.Message
	if f.Path != "" {
		s = f.Path + ": " + s
	}
	if f.Line > 0 {
		s = fmt.Sprintf("line %d: %s", f.Line, s)
	}
	return s
}
