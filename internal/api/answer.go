package api

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"time"

	"tasker.example/tasker"
)

// Responses use memory until their readers have received them. The server limits the total and
// disconnects slow readers.
const (
	// unmeteredResponseBytes is the part of each response that is not counted.
	unmeteredResponseBytes = 64 << 10
	// responseWait limits how long a response waits for memory.
	responseWait = time.Second
	// A reader must receive each responseChunk within chunkTimeout, and the whole response within
	// responseTimeout.
	responseChunk = 64 << 10
	chunkTimeout  = 10 * time.Second
)

// respond sends a JSON document.
func (x *request) respond(status int, body any) error {
	doc, err := encode(body)
	if err != nil {
		return err
	}
	return x.send(status, jsonMedia, doc)
}

// respondAnswer sends the answer of a handler. A list is never null.
func (x *request) respondAnswer(answer any) error {
	if answer == (none{}) {
		x.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if v := reflect.ValueOf(answer); v.Kind() == reflect.Slice && v.IsNil() {
		answer = []none{}
	}
	return x.respond(cmp.Or(x.status, slices.Concat(x.route.Statuses, []int{http.StatusOK})[0]), answer)
}

// send sends a response. While it is written, the request no longer counts against the limits on
// concurrent requests and on the memory for bodies. If too much memory is used by unread
// responses, it sends nothing and returns an error that wraps errNoMemory.
func (x *request) send(status int, media string, doc []byte) error {
	x.memory.release()
	defer x.unread.release()
	until := time.Now().Add(responseTimeout)
	switch err := x.unread.grow(x.r.Context(), int64(len(doc))); {
	case err == nil:
		x.leaveGate()
	case x.canWithholdResponse():
		return &tasker.Error{
			Code: tasker.Unavailable, Err: err,
			Message: "too many unread responses: read them and retry; one caller may use at most half of the memory",
		}
	default: // a retry would act twice; the request stays admitted, so there are few
		until = time.Now().Add(chunkTimeout)
	}
	writeHeader(x.w, status, media, len(doc))
	x.write(doc, until)
	return nil
}

// canWithholdResponse reports whether the response may be withheld because the caller can safely repeat the
// request.
func (x *request) canWithholdResponse() bool {
	return x.route.Repeatable || x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
}

// write writes a response piece by piece. It ignores errors, because the client is disconnected.
func (x *request) write(doc []byte, until time.Time) {
	connection := http.NewResponseController(x.w)
	for len(doc) > 0 {
		piece := doc[:min(len(doc), responseChunk)]
		deadline := time.Now().Add(chunkTimeout)
		if until.Before(deadline) {
			deadline = until
		}
		_ = connection.SetWriteDeadline(deadline) // an httptest recorder has none
		if _, err := x.w.Write(piece); err != nil {
			return
		}
		doc = doc[len(piece):]
	}
}
