package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// A refusal is an error for which HTTP has a narrower status than its code has.
type refusal struct {
	status int
	error
}

// Unwrap returns the error that is refused.
func (r refusal) Unwrap() error { return r.error }

const (
	retryAfterSeconds = 1
	// statusClientGone is logged where nobody was left to answer, as others do.
	statusClientGone = 499
)

// respondError answers with an error, in the one shape that errors have. What is
// no [tasker.Error] is for the log only.
func respondError(w http.ResponseWriter, r *http.Request, err error) {
	code := tasker.CodeOf(err)
	if code == tasker.Internal && r.Context().Err() != nil {
		return // the client hung up, and that is all that went wrong
	}
	status := apiv1.Status(code)
	if status == http.StatusInternalServerError {
		code = tasker.Internal
	}
	if narrower, ok := errors.AsType[refusal](err); ok {
		status = narrower.status
	}
	body := apiv1.ErrorBody{Code: string(code)}
	var known *tasker.Error
	if errors.As(err, &known) && code != tasker.Internal {
		body.Message, body.Details = known.Message, known.Details
	} else {
		id := requestLogOf(r.Context()).requestID
		body.Message = fmt.Sprintf("internal error; the server's log has more under request_id %s", id)
		body.Details = map[string]string{"request_id": id}
	}
	if code == tasker.Unavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	}
	if err := respond(w, status, apiv1.Error{Error: body}); err != nil {
		// Only details that are no JSON can bring us here.
		requestLogOf(r.Context()).err = errors.Join(requestLogOf(r.Context()).err, err)
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// respond answers with a JSON document.
func respond(w http.ResponseWriter, status int, body any) error {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(doc.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(doc.Bytes()) // when the client is gone, there is nobody to tell
	return nil
}

// answer sends the document of a request that went well.
func (x *request) answer(status int, body any) error {
	return respond(x.w, status, body)
}

// convert converts each element of a list; the result is never null.
func convert[T, U any](list []T, one func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = one(v)
	}
	return out
}

// pageOf describes the part of a list that an answer holds.
func (x *request) pageOf(count int, more bool) apiv1.Pagination {
	return apiv1.Pagination{Limit: x.int("limit"), Offset: x.int("offset"), Count: count, HasMore: more}
}
