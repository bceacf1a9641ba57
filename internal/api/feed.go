package api

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/feed"
	"tasker.example/tasker/internal/sink"
)

const aboutFeed = "Server-sent events: event is the topic, data the CloudEvent, id what to resume from. " +
	"Who reads on with the header Last-Event-ID gets each event that is missing, and none twice, from any server of the installation. " +
	"An id without data says how far the stream has come without an event to show; a comment comes when nothing happens for a while. " +
	"A reader that does not keep up is disconnected, and may resume."

// A feedStart is where the feed begins for who does not resume.
type feedStart string

const (
	feedNow       feedStart = "now"
	feedBeginning feedStart = "beginning"
)

// FeedOptions are those of the live feed. Zero works for all of them.
type FeedOptions struct {
	feed.Options

	Source    string        // of the events: which installation this is; as sinks are told
	StillHere time.Duration // after which a reader to whom nothing happens is told so; 0 means 15 s
	WriteTime time.Duration // that a reader may take to accept what it is told; 0 means 10 s
}

func (o FeedOptions) complete(log *slog.Logger) FeedOptions {
	o.StillHere = cmp.Or(o.StillHere, 15*time.Second)
	o.WriteTime = cmp.Or(o.WriteTime, 10*time.Second)
	if o.Log == nil {
		o.Log = log
	}
	return o
}

const reconnectAfterMS = 2000

// followEvents streams until the client leaves or the server stops.
func (s *server) followEvents(x *request) error {
	topics, err := x.topics()
	if err != nil {
		return err
	}
	after, err := s.resume(x)
	if err != nil {
		return err
	}
	if s.stopping.Err() != nil {
		return tasker.Errorf(tasker.Unavailable, "the server is stopping; try again")
	}
	address, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		address = x.r.RemoteAddr
	}
	reader, err := s.feed.Read(x.ctx, after, address)
	if err != nil {
		return err
	}
	defer reader.Close()
	h := x.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy would keep events until it has enough of them
	x.w.WriteHeader(http.StatusOK)
	if x.r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	st := &stream{FeedOptions: s.live, connection: http.NewResponseController(x.w), w: x.w, topics: topics, reader: reader}
	requestLogOf(ctx).err = st.run(ctx)
	return nil
}

// topics returns which topics the query asks for; none means all.
func (x *request) topics() ([]string, error) {
	text := x.text("topic")
	if text == "" {
		return nil, nil
	}
	topics := strings.Split(text, ",")
	for _, t := range topics {
		if !slices.Contains(tasker.Topics(), t) {
			message := fmt.Sprintf("must be some of %s, divided by commas, not %q", strings.Join(tasker.Topics(), ", "), shorten(t))
			return nil, tasker.Errorf(tasker.Invalid, "the query is not valid: topic %s", message).WithDetails([]tasker.Fault{{Path: "topic", Message: message}})
		}
	}
	return topics, nil
}

// resume returns where the client wants to go on. The header is newer than the
// query, which a browser repeats.
func (s *server) resume(x *request) (feed.Point, error) {
	id := cmp.Or(x.r.Header.Get("Last-Event-ID"), x.text("last_event_id"))
	switch {
	case id != "":
		return feed.ParsePoint(id)
	case feedStart(x.text("from")) == feedBeginning:
		return feed.Point{}, nil
	default:
		return s.feed.Now(x.ctx)
	}
}

// A stream is what one client is told.
type stream struct {
	FeedOptions
	connection *http.ResponseController
	w          http.ResponseWriter
	topics     []string
	reader     *feed.Reader
	shown      feed.Point // the last that the client was told
	wrote      time.Time
}

// run writes until ctx ends, or the client is gone or does not keep up. Each write
// has a deadline of its own; those of a whole request would end it.
func (st *stream) run(ctx context.Context) error {
	_ = st.connection.SetReadDeadline(time.Time{})                                      // an httptest recorder has none
	defer func() { _ = st.connection.SetWriteDeadline(time.Now().Add(st.WriteTime)) }() // of the last bytes
	st.shown = st.reader.Point()
	if st.write(fmt.Sprintf("retry: %d\nid: %s\n\n", reconnectAfterMS, st.shown)) != nil {
		return nil // the client is gone, and there is nobody to tell
	}
	for {
		list, err := st.reader.Next(ctx, st.StillHere)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err // the client resumes
		}
		text, err := st.encode(list)
		if err != nil {
			return err
		}
		if text == "" && (len(list) == 0 || time.Since(st.wrote) >= st.StillHere) {
			text = st.stillHere()
		}
		if text != "" && st.write(text) != nil {
			return nil // the client is gone, or does not read
		}
	}
}

// stillHere is what a client is told to whom nothing happens.
func (st *stream) stillHere() string {
	p := st.reader.Point()
	if p == st.shown {
		return ": still here\n\n"
	}
	st.shown = p
	return fmt.Sprintf(": still here\nid: %s\n\n", p)
}

// encode writes the events that the client wants.
func (st *stream) encode(list []feed.Event) (string, error) {
	var b bytes.Buffer
	for _, e := range list {
		if st.topics != nil && !slices.Contains(st.topics, e.Topic) {
			continue
		}
		doc, err := sink.CloudEvent(e.Event, st.Source)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "id: %s\nevent: %s\ndata: %s\n\n", e.Point, e.Topic, doc)
		st.shown = e.Point
	}
	return b.String(), nil
}

func (st *stream) write(text string) error {
	if err := st.connection.SetWriteDeadline(time.Now().Add(st.WriteTime)); err != nil {
		return err
	}
	if _, err := st.w.Write([]byte(text)); err != nil {
		return err
	}
	st.wrote = time.Now()
	return st.connection.Flush()
}
