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
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

const (
	maxSilence    = 50 * time.Second // maximum silence of a server, which sends a keep-alive every 15 seconds
	maxEventBytes = 16 << 20         // bytes per line
)

// WatchOptions selects events. The zero value selects all future events.
type WatchOptions struct {
	Topics        []string // empty means all
	FromBeginning bool     // include all past events
	After         string   // ResumeID of the last received event; overrides FromBeginning

	Lost func(err error) // called before a reconnect, without loss of events; may be nil
}

// WatchedEvent is an investigation event and the position after it.
type WatchedEvent struct {
	apiv1.CloudEvent
	ResumeID string
}

// WatchEvents yields each event of an investigation or task once until ctx or the loop ends. It
// reconnects and resumes after a connection loss. It yields an error and ends if the server rejects
// the request or cannot be reached initially.
func (c *Client) WatchEvents(ctx context.Context, o WatchOptions) iter.Seq2[WatchedEvent, error] {
	return func(yield func(WatchedEvent, error) bool) {
		q := apiv1.EventQuery{Topic: strings.Join(o.Topics, ",")}
		if o.FromBeginning {
			q.From = apiv1.FeedBeginning
		}
		w := watch{client: c, request: newRequest(endpoint.FollowEvents, q, none), lost: o.Lost, id: o.After}
		w.yield = func(data []byte) (bool, error) {
			e := WatchedEvent{ResumeID: w.id}
			if err := json.Unmarshal(data, &e.CloudEvent); err != nil {
				return false, err
			}
			return yield(e, nil), nil
		}
		if err := w.run(ctx); err != nil {
			yield(WatchedEvent{}, err)
		}
	}
}

// FollowOptions selects the events of a task. The zero value selects all of them.
type FollowOptions struct {
	FromNow bool   // skip past transitions
	After   string // ResumeID of the last received event; overrides FromNow

	Lost func(err error) // called before a reconnect, without loss of events; may be nil
}

// FollowedEvent is an event of a task and the position after it.
type FollowedEvent struct {
	apiv1.TaskEvent
	ResumeID string
}

// FollowTask yields the state of a task, its transitions and those of its steps, and its end, after
// which it returns. It reconnects and resumes after a connection loss, and yields each transition
// once. With After, some of those before may be repeated. It yields an error and ends if the server
// rejects the request or cannot be reached initially.
func (c *Client) FollowTask(ctx context.Context, task tasker.ID, o FollowOptions) iter.Seq2[FollowedEvent, error] {
	return func(yield func(FollowedEvent, error) bool) {
		var q apiv1.TaskEventQuery
		if o.FromNow {
			q.From = apiv1.FeedNow
		}
		w := watch{client: c, request: newRequest(endpoint.FollowTask, q, none, task), lost: o.Lost, id: o.After}
		type key struct {
			ofTask bool // tasks and steps have separate ids
			id     int64
		}
		known := map[key]bool{}
		began := false
		w.yield = func(data []byte) (bool, error) {
			e := FollowedEvent{ResumeID: w.id}
			if err := json.Unmarshal(data, &e.TaskEvent); err != nil {
				return false, err
			}
			repeated := e.Kind == "state" && began
			began = true
			if t := e.Transition; t != nil {
				k := key{t.StepUUID == nil, t.ID}
				repeated = known[k]
				known[k] = true
			}
			return (repeated || yield(e, nil)) && e.Kind != "end", nil
		}
		if err := w.run(ctx); err != nil {
			yield(FollowedEvent{}, err)
		}
	}
}

// watch is a stream of server-sent events that continues after a connection loss.
type watch struct {
	client  *Client
	request request
	lost    func(error)
	yield   func(data []byte) (more bool, err error)

	id      string // resume position
	reached bool   // connected at least once
	ended   bool   // the stream or the caller ended the iteration
}

// run listens until ctx or the iteration ends, or the server rejects the request.
func (w *watch) run(ctx context.Context) error {
	rest := minBackoff
	for failed := 0; ; failed++ {
		begin := time.Now()
		m := w.listen(ctx)
		if w.ended || ctx.Err() != nil {
			return nil //nolint:nilerr // the caller ended the stream
		}
		if time.Since(begin) > maxBackoff {
			rest = minBackoff
		}
		// Retry without limit once the server has been reached.
		again := (m.unsent || m.transient) && (w.reached || failed < w.client.retries)
		if !again {
			return m.err
		}
		if w.reached && w.lost != nil {
			w.lost(m.err)
		}
		if !sleep(ctx, max(min(m.retryAfter, maxBackoff), addJitter(rest))) {
			return nil
		}
		rest = min(2*rest, maxBackoff)
	}
}

// listen connects and yields events until the connection ends. It returns the reason.
func (w *watch) listen(ctx context.Context) *attemptError {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(maxSilence, cancel)
	defer silent.Stop()
	res, m := w.connect(ctx)
	if m != nil {
		return m
	}
	defer res.Body.Close()
	w.reached = true
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEventBytes)
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
		silent.Reset(maxSilence)
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return &attemptError{err: tasker.Errorf(tasker.TooLarge,
			"an event from %s is larger than %d bytes", w.client.URL(), maxEventBytes)}
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return &attemptError{transient: true, err: tasker.Errorf(tasker.Unavailable, "lost the connection to %s: %v", w.client.URL(), err)}
}

// yieldEvent yields an event, unless it has no data.
func (w *watch) yieldEvent(data string) *attemptError {
	if data == "" {
		return nil
	}
	more, err := w.yield([]byte(data))
	if err != nil {
		return &attemptError{err: tasker.Errorf(tasker.Internal,
			"cannot decode an event from %s: %v; is it a Tasker server of the same version?", w.client.URL(), err)}
	}
	w.ended = !more
	return nil
}

// connect opens the event stream.
func (w *watch) connect(ctx context.Context) (*http.Response, *attemptError) {
	c := w.client
	if w.id != "" {
		w.request.query.Del("from")
	}
	where, err := c.resolveURL(w.request)
	if err != nil {
		return nil, &attemptError{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), http.NoBody)
	if err != nil {
		return nil, &attemptError{err: tasker.Errorf(tasker.Invalid, "cannot create the request: %v", err)}
	}
	maps.Copy(req.Header, c.header)
	req.Header.Set("Accept", "text/event-stream")
	if err := c.authorize(req.Header); err != nil {
		return nil, &attemptError{err: err}
	}
	if w.id != "" {
		req.Header.Set("Last-Event-ID", w.id)
	}
	res, err := c.http.Do(req)
	if err != nil {
		m := c.newUnreachableError(ctx, err)
		m.transient = true // also after a keep-alive timeout
		return nil, m
	}
	if res.StatusCode == http.StatusOK && strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return res, nil
	}
	defer res.Body.Close()
	doc, err := io.ReadAll(io.LimitReader(res.Body, c.maxResponseBytes))
	if err != nil {
		return nil, c.newUnreachableError(ctx, err)
	}
	if res.StatusCode == http.StatusOK {
		err = tasker.Errorf(tasker.Internal, "%s responded with content type %q instead of an event stream; is it "+
			"a Tasker server of the same version?", c.URL(), fmt.Sprintf("%.60s", res.Header.Get("Content-Type")))
		return nil, &attemptError{err: err}
	}
	return nil, &attemptError{err: c.readError(res, doc), transient: isTransient(res.StatusCode), retryAfter: parseRetryAfter(res.Header.Get("Retry-After"))}
}
