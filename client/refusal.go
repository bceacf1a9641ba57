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

// shownBody is how much of an answer in a foreign shape a message quotes.
const shownBody = 200

// codes has the code of an answer that does not name one itself.
var codes = map[int]tasker.Code{
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

// A foreign answer is one that the API did not give: a page of a proxy, a login
// form, half a document. Its error has a code by the status, for people. A worker
// trusts none of it, see [workerError].
type foreign struct{ err *tasker.Error }

// Error returns the message.
func (f foreign) Error() string { return f.err.Error() }

// Unwrap returns the error with its code.
func (f foreign) Unwrap() error { return f.err }

// workerError returns an error as a worker should take it. Whatever a foreign answer
// says, nothing is known of the request: it may not have reached the server, and it
// may have been carried out.
func workerError(err error) error {
	f, ok := errors.AsType[foreign](err)
	if !ok {
		return err
	}
	unavailable := *f.err
	unavailable.Code = tasker.Unavailable
	return &unavailable
}

// refusal returns the error that an answer carries. An answer without the API's
// own shape is quoted.
func (c *Client) refusal(res *http.Response, doc []byte) error {
	after := retryAfter(res.Header.Get("Retry-After"))
	doc = []byte(withoutToken(res.Request, string(doc)))
	var body apiv1.Error
	if json.Unmarshal(doc, &body) == nil && body.Error.Code != "" && body.Error.Message != "" {
		return &tasker.Error{
			Code: tasker.Code(body.Error.Code), Message: body.Error.Message, Details: body.Error.Details, RetryAfter: after,
		}
	}
	code, known := codes[res.StatusCode]
	if !known {
		code = tasker.Internal
	}
	said := fmt.Sprintf("%s answered %d %s", c.URL(), res.StatusCode, http.StatusText(res.StatusCode))
	if to := res.Header.Get("Location"); to != "" {
		said += fmt.Sprintf(", which points to %s; use that address as the server's", payload.CleanText(withoutToken(res.Request, to), shownBody))
	} else {
		if text := strings.Join(strings.Fields(payload.CleanText(string(doc), shownBody)), " "); text != "" {
			said += ": " + text
		}
		said += "; is it a Tasker server?"
	}
	return foreign{&tasker.Error{Code: code, Message: said, RetryAfter: after}}
}
