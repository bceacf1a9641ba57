package api

import (
	"net/http"
	"time"

	"tasker.example/tasker"
)

// Answers that are being written take memory for as long as their readers like. The server
// holds no more of them at once than it has room for, and gives up who does not read.
const (
	// freeAnswer is how much of each answer is not counted.
	freeAnswer = 64 << 10
	// answerWait is how long an answer waits for others to be read.
	answerWait = time.Second
	// answerPiece of an answer is to be read within pieceTime, and all of it within
	// answerTime.
	answerPiece = 64 << 10
	pieceTime   = 10 * time.Second
)

// answer sends the document of a request that went well.
func (x *request) answer(status int, body any) error {
	doc, err := encode(body)
	if err != nil {
		return err
	}
	return x.send(status, jsonMedia, doc)
}

// respondWith sends the document of a value, or returns the error with which the value came.
func respondWith[T, D any](x *request, status int, value T, err error, document func(T) D) error {
	if err != nil {
		return err
	}
	return x.answer(status, document(value))
}

// send sends an answer. Who reads it slowly takes no other's turn, no room for bodies, and
// has a share of the room for answers. The error wraps errNoRoom, and nothing was sent.
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
			Message: "too many answers have not been read, of all callers or of this one, who has half of the room for them at most; read them, and send the request again",
		}
	default: // something was decided that its caller would decide again; it keeps its turn, so there are few
		until = time.Now().Add(pieceTime)
	}
	begin(x.w, status, media, len(doc))
	x.write(doc, until)
	return nil
}

// refusable reports whether the request may be refused when all is done but the answer.
func (x *request) refusable() bool {
	return x.route.repeatable || x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
}

// write writes an answer for as long as it is read. When the client is gone, there is nobody to tell.
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
