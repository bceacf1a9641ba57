package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

const (
	silence      = 50 * time.Second // of a server that says each 15 seconds that it is there
	longestEvent = 16 << 20         // bytes of one line
)

// WatchOptions say which events to watch. Zero means all, from now on.
type WatchOptions struct {
	Topics        []string // none means all
	FromBeginning bool     // of all times
	After         string   // the ResumeID of the last event that was seen, in place of FromBeginning

	// Lost is called when the connection broke off and is going to be made again; nil
	// is allowed. No event is lost by that.
	Lost func(err error)
}

// A WatchedEvent is an event of an investigation, and what to resume from after it.
type WatchedEvent struct {
	apiv1.CloudEvent
	ResumeID string
}

// WatchEvents yields the events of investigations as they happen, each once, until ctx
// ends or the loop does. When the connection breaks, it is made again where it
// broke off. It yields an error, and ends, when the server refuses, and when it
// could not be reached in the first place.
func (c *Client) WatchEvents(ctx context.Context, o WatchOptions) iter.Seq2[WatchedEvent, error] {
	return func(yield func(WatchedEvent, error) bool) {
		w := watch{client: c, WatchOptions: o, id: o.After, yield: yield}
		rest := minBackoff
		for failed := 0; ; failed++ {
			begin := time.Now()
			m := w.listen(ctx)
			if ctx.Err() != nil || w.ended {
				return
			}
			if time.Since(begin) > maxBackoff {
				rest = minBackoff
			}
			// A server that was reached once is waited for as long as it takes.
			again := (m.unsent || m.transient) && (w.reached || failed < c.retries)
			if !again {
				yield(WatchedEvent{}, m.err)
				return
			}
			if w.reached && o.Lost != nil {
				o.Lost(m.err)
			}
			if !pause(ctx, max(min(m.after, maxBackoff), jitter(rest))) {
				return
			}
			rest = min(2*rest, maxBackoff)
		}
	}
}

// A watch is one call of WatchEvents.
type watch struct {
	WatchOptions
	client *Client
	yield  func(WatchedEvent, error) bool

	id      string // to resume from
	reached bool   // the server, at least once
	ended   bool   // the caller wants no more
}

// listen makes a connection and yields what comes. It returns why that ended.
func (w *watch) listen(ctx context.Context) *miss {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(silence, cancel)
	defer silent.Stop()
	res, m := w.connect(ctx)
	if m != nil {
		return m
	}
	defer res.Body.Close()
	w.reached = true
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, longestEvent)
	var id, data string
	hasID := false
	for lines.Scan() {
		silent.Stop() // while the caller is busy
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "id":
			id, hasID = value, true
		case name == "data":
			data += value + "\n"
		case lines.Text() == "":
			if hasID {
				w.id = id
			}
			if m := w.yieldEvent(data); m != nil || w.ended {
				return m
			}
			id, data, hasID = "", "", false
		}
		silent.Reset(silence)
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return &miss{err: tasker.Errorf(tasker.TooLarge, "an event of %s has more than %d bytes", w.client.URL(), longestEvent)}
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return &miss{transient: true, err: tasker.Errorf(tasker.Unavailable, "the connection to %s broke off: %v", w.client.URL(), err)}
}

// yieldEvent yields an event; one without data is skipped.
func (w *watch) yieldEvent(data string) *miss {
	if data == "" {
		return nil
	}
	e := WatchedEvent{ResumeID: w.id}
	if err := json.Unmarshal([]byte(data), &e.CloudEvent); err != nil {
		return &miss{err: tasker.Errorf(tasker.Internal, "an event of %s is not understood: %v; is it a Tasker server of the same version?", w.client.URL(), err)}
	}
	w.ended = !w.yield(e, nil)
	return nil
}

// connect asks for the stream.
func (w *watch) connect(ctx context.Context) (*http.Response, *miss) {
	c := w.client
	query := url.Values{}
	setText(query, "topic", strings.Join(w.Topics, ","))
	if w.FromBeginning && w.id == "" {
		query.Set("from", "beginning")
	}
	where, err := c.locate(request{path: []string{"v1", "dlq", "events"}, query: query})
	if err != nil {
		return nil, &miss{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), http.NoBody)
	if err != nil {
		return nil, &miss{err: tasker.Errorf(tasker.Invalid, "the request cannot be written: %v", err)}
	}
	maps.Copy(req.Header, c.header)
	req.Header.Set("Accept", "text/event-stream")
	if err := c.authorize(req.Header); err != nil {
		return nil, &miss{err: err}
	}
	if w.id != "" {
		req.Header.Set("Last-Event-ID", w.id)
	}
	res, err := c.http.Do(req)
	if err != nil {
		m := c.unreachable(ctx, err)
		m.transient = true // also when it was silent for too long
		return nil, m
	}
	if res.StatusCode == http.StatusOK && strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return res, nil
	}
	defer res.Body.Close()
	doc, err := io.ReadAll(io.LimitReader(res.Body, c.maxAnswer))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if res.StatusCode == http.StatusOK {
		err = tasker.Errorf(tasker.Internal, "%s answered with %q and no stream of events; is it a Tasker server of the same version?", c.URL(), fmt.Sprintf("%.60s", res.Header.Get("Content-Type")))
		return nil, &miss{err: err}
	}
	return nil, &miss{err: c.refusal(res, doc), transient: transient(res.StatusCode), after: retryAfter(res.Header.Get("Retry-After"))}
}
