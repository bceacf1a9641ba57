package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
)

// Responses use memory until their readers have received them. The server limits the total and
// disconnects slow readers.
const (
	// freeAnswer is the part of each response that is not counted.
	freeAnswer = 64 << 10
	// answerWait limits how long a response waits for memory.
	answerWait = time.Second
	// A reader must receive each answerPiece within pieceTime, and the whole response within
	// answerTime.
	answerPiece = 64 << 10
	pieceTime   = 10 * time.Second
)

// answer sends a JSON document.
func (x *request) answer(status int, body any) error {
	doc, err := encode(body)
	if err != nil {
		return err
	}
	return x.send(status, jsonMedia, doc)
}

// respondWith sends document(value) as JSON, or returns err if it is not nil.
func respondWith[T, D any](x *request, status int, value T, err error, document func(T) D) error {
	if err != nil {
		return err
	}
	return x.answer(status, document(value))
}

// send sends a response. While it is written, the request no longer counts against the limits on
// concurrent requests and on the memory for bodies. If too much memory is used by unread
// responses, it sends nothing and returns an error that wraps errNoRoom.
func (x *request) send(status int, media string, doc []byte) error {
	x.room.release()
	defer x.unread.release()
	until := time.Now().Add(answerTime)
	switch err := x.unread.grow(x.r.Context(), int64(len(doc))); {
	case err == nil:
		x.leave()
	case x.refusable():
		return &tasker.Error{
			Code: tasker.Unavailable, Err: err,
			Message: "too many unread responses: read them and retry; one caller may use at most half of the memory",
		}
	default: // a retry would act twice; the request stays admitted, so there are few
		until = time.Now().Add(pieceTime)
	}
	begin(x.w, status, media, len(doc))
	x.write(doc, until)
	return nil
}

// refusable reports whether the response may be withheld because the caller can safely repeat the
// request.
func (x *request) refusable() bool {
	return x.route.repeatable || x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
}

// write writes a response piece by piece. It ignores errors, because the client is disconnected.
func (x *request) write(doc []byte, until time.Time) {
	connection := http.NewResponseController(x.w)
	for len(doc) > 0 {
		piece := doc[:min(len(doc), answerPiece)]
		deadline := time.Now().Add(pieceTime)
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
