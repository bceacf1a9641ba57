package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"tasker"
	"tasker/apiv1"
	"tasker/internal/payload"
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

// refusal returns the error that an answer carries. An answer in another shape
// than the API's, such as that of a proxy, is quoted.
func (c *Client) refusal(res *http.Response, doc []byte) error {
	code, known := codes[res.StatusCode]
	if !known {
		code = tasker.Internal
	}
	var body apiv1.Error
	if json.Unmarshal(doc, &body) == nil && body.Error.Message != "" {
		if body.Error.Code != "" {
			code = tasker.Code(body.Error.Code)
		}
		return &tasker.Error{Code: code, Message: body.Error.Message, Details: body.Error.Details}
	}
	said := fmt.Sprintf("%s answered %d %s", c.URL(), res.StatusCode, http.StatusText(res.StatusCode))
	if to := res.Header.Get("Location"); to != "" {
		return tasker.Errorf(code, "%s, which points to %s; use that address as the server's", said, payload.CleanText(to, shownBody))
	}
	if text := strings.Join(strings.Fields(payload.CleanText(string(doc), shownBody)), " "); text != "" {
		said += ": " + text
	}
	return tasker.Errorf(code, "%s; is it a Tasker server?", said)
}
