package tasker

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code says what kind of failure an [Error] is. A surface maps it to its own
// terms: the HTTP API to a status, the command line to an exit code.
type Code string

// The codes, from the caller's fault to ours.
const (
	Invalid      Code = "INVALID"       // the request is wrong; repeating it cannot help
	TooLarge     Code = "TOO_LARGE"     // a body, document or list beyond its limit
	NotFound     Code = "NOT_FOUND"     // no such thing, or it is not where the caller says
	Conflict     Code = "CONFLICT"      // the world is not in the state the request needs
	StaleLease   Code = "STALE_LEASE"   // the attempt is no longer the one that holds the lease
	Unavailable  Code = "UNAVAILABLE"   // try again later; nothing was decided
	Internal     Code = "INTERNAL"      // everything else; its text is for the log only
	Unauthorized Code = "UNAUTHORIZED"  // who is calling is not known
	Forbidden    Code = "FORBIDDEN"     // who is calling is known and may not
	Unsupported  Code = "NOT_SUPPORTED" // a media type or method that is not spoken here
)

// An Error is a failure that its receiver can act on. Every other error is
// internal: logged in full, shown to nobody.
type Error struct {
	Code    Code
	Message string // what is wrong, where, and what to do; safe to show to a stranger
	Details any    // more of the same for programs: a list of faults, an id; may be nil
	Err     error  // the cause, for the log only

	RetryAfter time.Duration // of Unavailable: the least rest before the next try, where it is known
}

// Error returns the message, followed by the cause when there is one that the
// message does not tell.
func (e *Error) Error() string {
	if e.Err != nil && !strings.Contains(e.Message, e.Err.Error()) {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an [Error] whose message is formatted; a wrapped error (%w)
// becomes its cause as well.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithDetails returns a copy of e that carries details.
func (e *Error) WithDetails(details any) *Error {
	c := *e
	c.Details = details
	return &c
}

// CodeOf returns the code of the first [Error] in the chain of err, "" for nil
// and [Internal] for any other error.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// A Fault is one thing that is wrong with a document, with the place where.
type Fault struct {
	Line    int    `json:"line,omitempty"`   // 1-based; 0 when the document has no lines
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
