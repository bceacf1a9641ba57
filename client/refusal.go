package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/payload"
)

// maxShownBody limits how many bytes of an unexpected response an error quotes.
const maxShownBody = 200

// codesByStatus maps the HTTP status of a response without an error code to a code.
var codesByStatus = map[int]tasker.Code{
	http.StatusBadRequest:            tasker.Invalid,
	http.StatusUnauthorized:          tasker.Unauthorized,
	http.StatusForbidden:             tasker.Forbidden,
	http.StatusNotFound:              tasker.NotFound,
	http.StatusMethodNotAllowed:      tasker.Unsupported,
	http.StatusConflict:              tasker.Conflict,
	http.StatusRequestEntityTooLarge: tasker.TooLarge,
	http.StatusUnsupportedMediaType:  tasker.Unsupported,
	http.StatusUnprocessableEntity:   tasker.Invalid,
	http.StatusTooManyRequests:       tasker.Unavailable,
	http.StatusBadGateway:            tasker.Unavailable,
	http.StatusServiceUnavailable:    tasker.Unavailable,
	http.StatusGatewayTimeout:        tasker.Unavailable,
}

// protocolError is the error of a response that does not come from the API, such as a proxy error page
// or a truncated document. Its code is derived from the status. Workers do not trust it, see
// [toWorkerError].
type protocolError struct{ err *tasker.Error }

func (f protocolError) Error() string { return f.err.Error() }

func (f protocolError) Unwrap() error { return f.err }

// toWorkerError maps a foreign error to Unavailable: the request may not have reached the server,
// or it may have been carried out.
func toWorkerError(err error) error {
	f, ok := errors.AsType[protocolError](err)
	if !ok {
		return err
	}
	unavailable := *f.err
	unavailable.Code = tasker.Unavailable
	return &unavailable
}

// readError converts an error response to an error. It quotes a response that does not have the
// format of the API.
func (c *Client) readError(res *http.Response, doc []byte) error {
	after := parseRetryAfter(res.Header.Get("Retry-After"))
	doc = []byte(redactToken(res.Request, string(doc)))
	var body apiv1.Error
	if json.Unmarshal(doc, &body) == nil && body.Error.Code != "" && body.Error.Message != "" {
		return &tasker.Error{
			Code: tasker.Code(body.Error.Code), Message: body.Error.Message, Details: body.Error.Details, RetryAfter: after,
		}
	}
	code, known := codesByStatus[res.StatusCode]
	if !known {
		code = tasker.Internal
	}
	said := fmt.Sprintf("%s responded with %d %s", c.URL(), res.StatusCode, http.StatusText(res.StatusCode))
	if to := res.Header.Get("Location"); to != "" {
		said += fmt.Sprintf(", which points to %s; use that address as the server's", payload.CleanText(redactToken(res.Request, to), maxShownBody))
	} else {
		if text := strings.Join(strings.Fields(payload.CleanText(string(doc), maxShownBody)), " "); text != "" {
			said += ": " + text
		}
		said += "; is it a Tasker server?"
	}
	return protocolError{&tasker.Error{Code: code, Message: said, RetryAfter: after}}
}
