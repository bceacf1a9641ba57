package feed

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"
)

// reconnectAfterMS is when a client comes back whose stream was cut.
const reconnectAfterMS = 2000

// A Stream sends events to one client, as server-sent events. Zero works for the times.
type Stream struct {
	Reader *Reader
	W      http.ResponseWriter
	// Encode returns what the client is sent of some events; empty means nothing.
	Encode func([]Event) (string, error)
	// Idle returns what a client is sent to whom nothing happens.
	Idle func() string

	StillHere time.Duration // after which a client to whom nothing happens is sent something; 0 means 15 s
	WriteTime time.Duration // that a client may take to accept what it is sent; 0 means 10 s

	connection *http.ResponseController
	wrote      time.Time
}

// Begin answers with the head of a stream.
func Begin(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy would keep events until it has enough of them
	w.WriteHeader(http.StatusOK)
}

// Run sends what first is and then events until ctx ends, or the client is gone or does not
// keep up. Each write has a deadline of its own; those of a whole request would end it.
func (st *Stream) Run(ctx context.Context, first string) error {
	st.StillHere, st.WriteTime = cmp.Or(st.StillHere, 15*time.Second), cmp.Or(st.WriteTime, 10*time.Second)
	st.connection = http.NewResponseController(st.W)
	_ = st.connection.SetReadDeadline(time.Time{})                                      // an httptest recorder has none
	defer func() { _ = st.connection.SetWriteDeadline(time.Now().Add(st.WriteTime)) }() // of the last bytes
	if st.write(fmt.Sprintf("retry: %d\n%s\n", reconnectAfterMS, first)) != nil {
		return nil // the client is gone
	}
	for {
		list, err := st.Reader.Next(ctx, st.StillHere)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err // the client resumes
		}
		text, err := st.Encode(list)
		if err != nil {
			return err
		}
		if text == "" && (len(list) == 0 || time.Since(st.wrote) >= st.StillHere) {
			text = st.Idle()
		}
		if text != "" && st.write(text) != nil {
			return nil // the client is gone, or does not read
		}
	}
}

func (st *Stream) write(text string) error {
	if err := st.connection.SetWriteDeadline(time.Now().Add(st.WriteTime)); err != nil {
		return err
	}
	if _, err := st.W.Write([]byte(text)); err != nil {
		return err
	}
	st.wrote = time.Now()
	return st.connection.Flush()
}
