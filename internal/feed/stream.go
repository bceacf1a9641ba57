package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// reconnectAfterMS is the time after which clients reconnect, in milliseconds.
const reconnectAfterMS = 2000

// A Stream sends server-sent events to one client. The durations are optional.
type Stream struct {
	W http.ResponseWriter
	// Next waits for events and returns their text, or "" to send nothing, and whether there were
	// any. The error io.EOF ends the stream after the text.
	Next func(ctx context.Context, wait time.Duration) (text string, some bool, err error)
	// Idle returns the text for a client without events.
	Idle func() string

	StillHere time.Duration // interval at which Idle is called; default 15 s
	WriteTime time.Duration // timeout of a write; default 10 s

	connection *http.ResponseController
	wrote      time.Time
}

// Encoded returns the function Next of a stream of the events of a reader.
func Encoded(r *Reader, encode func([]Event) (string, error)) func(context.Context, time.Duration) (string, bool, error) {
	return func(ctx context.Context, wait time.Duration) (string, bool, error) {
		list, err := r.Next(ctx, wait)
		if err != nil {
			return "", false, err
		}
		text, err := encode(list)
		return text, len(list) > 0, err
	}
}

// WriteHeaders sends the headers of a stream.
func WriteHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // disables buffering in proxies
	w.WriteHeader(http.StatusOK)
}

// Run sends first and then events until ctx ends, or the client disconnects or does not keep up.
// Each write has its own deadline, because a deadline of the whole request would end the stream.
func (st *Stream) Run(ctx context.Context, first string) error {
	st.StillHere = cmp.Or(st.StillHere, 15*time.Second)
	st.WriteTime = cmp.Or(st.WriteTime, 10*time.Second)
	st.connection = http.NewResponseController(st.W)
	_ = st.connection.SetReadDeadline(time.Time{}) // httptest recorders do not support it
	defer func() { _ = st.connection.SetWriteDeadline(time.Now().Add(st.WriteTime)) }()
	if st.write(fmt.Sprintf("retry: %d\n%s\n", reconnectAfterMS, first)) != nil {
		return nil // the client has disconnected
	}
	for {
		text, some, err := st.Next(ctx, st.StillHere)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF):
			_ = st.write(text)
			return nil
		case err != nil:
			return err // the client resumes
		}
		if text == "" && (!some || time.Since(st.wrote) >= st.StillHere) {
			text = st.Idle()
		}
		if text != "" && st.write(text) != nil {
			return nil // the client has disconnected or does not read
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
