package api

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/feed"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/query"
	"tasker.example/tasker/internal/sink"
)

const maxCounted = 10_000 // counting the undelivered events of a sink stops here

func (s *server) listEmissions(x *request, f tasker.EmissionFilter) (apiv1.EmissionList, error) {
	list, more, err := s.db.Emissions(x.ctx, f)
	page := apiv1.Continuation{Limit: f.Limit, Count: len(list), HasMore: more}
	page.NextBefore = nextCursor(list, more, func(e tasker.Emission) int64 { return e.Position })
	return apiv1.EmissionList{Emissions: convert(list, apiv1.FromEmission), Pagination: page}, err
}

func (s *server) getEmission(x *request) (apiv1.EmittedEvent, error) {
	id := x.pathUUID("event_uuid")
	e, err := s.db.Event(x.ctx, id)
	if err != nil {
		return apiv1.EmittedEvent{}, err
	}
	list, err := s.db.EmissionsOf(x.ctx, id)
	return apiv1.FromEvent(e, list), err
}

func (s *server) reEmit(x *request, req apiv1.ReEmit) (apiv1.ReEmitted, error) {
	r, err := reEmission(req)
	if err != nil {
		return apiv1.ReEmitted{}, err
	}
	r.Key, r.Actor = x.idempotencyKey(), x.resolveActor(r.Actor)
	if err := x.checkResend(r); err != nil {
		return apiv1.ReEmitted{}, err
	}
	sent, err := emission.ReEmit(x.ctx, s.db, r)
	return apiv1.ReEmitted{Events: sent.Events, Emissions: sent.Emissions, Sinks: sent.Sinks, NextFromPosition: sent.Next}, err
}

// reEmission returns the requested event, or range of positions.
func reEmission(req apiv1.ReEmit) (r emission.ReEmission, err error) {
	r = emission.ReEmission{Sinks: req.Sinks, Actor: req.Actor, Reason: req.Reason}
	switch {
	case req.EventUUID != nil && (req.FromPosition != nil || req.ToPosition != nil):
		return r, tasker.Errorf(tasker.Invalid, "too many selectors: set event_uuid, or from_position and to_position")
	case req.EventUUID != nil:
		id, err := parseID(*req.EventUUID)
		if err != nil {
			return r, tasker.Errorf(tasker.Invalid, "event_uuid %v", err)
		}
		r.Event = &id
	case req.FromPosition == nil || req.ToPosition == nil:
		return r, tasker.Errorf(tasker.Invalid, "no events selected: set event_uuid, or from_position and to_position")
	default:
		r.From, r.To = *req.FromPosition, *req.ToPosition
	}
	return r, nil
}

func (s *server) listSinks(x *request) ([]tasker.SinkState, error) {
	names, err := s.db.Sinks(x.ctx)
	if err != nil {
		return nil, err
	}
	return s.db.SinkStates(x.ctx, names, maxCounted)
}

func (s *server) listAudit(x *request, q apiv1.AuditQuery) (apiv1.AuditList, error) {
	list, more, err := s.db.AuditEvents(x.ctx, q.Action, q.Before, q.Limit)
	page := apiv1.Continuation{Limit: q.Limit, Count: len(list), HasMore: more}
	page.NextBefore = nextCursor(list, more, func(e tasker.AuditEvent) int64 { return e.ID })
	return apiv1.AuditList{Events: orEmpty(list), Pagination: page}, err
}

// FeedOptions configures the live feed. The zero value uses the defaults.
type FeedOptions struct {
	feed.Options

	Feed      *feed.Feed    // default: a new one
	Source    string        // source attribute of the CloudEvents
	StillHere time.Duration // interval of keepalives; default 15 s
	WriteTime time.Duration // time limit of a write; default 10 s
}

func (o FeedOptions) complete(db *postgres.DB, log *slog.Logger) FeedOptions {
	if o.Log == nil {
		o.Log = log
	}
	if o.Feed == nil {
		o.Feed = feed.New(db, o.Options)
	}
	return o
}

// followEvents streams events until the client disconnects or the server stops.
func (s *server) followEvents(x *request) error {
	var q apiv1.EventQuery
	if err := query.Decode(x.query, &q); err != nil {
		return err
	}
	topics, err := topicsOf(q.Topic)
	if err != nil {
		return err
	}
	after, err := s.readResumeCursor(x, q)
	if err != nil {
		return err
	}
	if s.stopping.Err() != nil {
		return tasker.Errorf(tasker.Unavailable, "the server is shutting down: try again")
	}
	reader, err := s.feedOptions.Feed.Read(x.ctx, after, auth.RemoteAddress(x.r))
	if err != nil {
		return err
	}
	defer reader.Close()
	e := &eventStream{request: x, source: s.feedOptions.Source, topics: topics, reader: reader, lastSent: reader.Point()}
	s.runStream(x, &feed.Stream{Next: feed.Encoded(reader, e.encode), Idle: e.keepalive}, fmt.Sprintf("id: %s\n", e.lastSent))
	return nil
}

// runStream responds with a stream of events until it ends, the client disconnects or loses its
// access, or the server stops. first is the beginning of the first block.
func (s *server) runStream(x *request, st *feed.Stream, first string) {
	feed.WriteHeaders(x.w)
	if x.r.Method == http.MethodHead {
		return
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer x.caller.OnEnd(cancel)()
	defer context.AfterFunc(s.stopping, cancel)()
	st.W, st.StillHere, st.WriteTime = x.w, s.feedOptions.StillHere, s.feedOptions.WriteTime
	requestLogFromContext(ctx).err = st.Run(ctx, first)
}

// topicsOf returns the requested topics; nil means all.
func topicsOf(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	topics := strings.Split(text, ",")
	for _, t := range topics {
		if !slices.Contains(tasker.Topics(), t) {
			message := fmt.Sprintf("must be a comma-separated list of %s, not %q", strings.Join(tasker.Topics(), ", "), truncate(t))
			return nil, tasker.Errorf(tasker.Invalid, "invalid query: topic %s", message).WithDetails([]tasker.Fault{{Path: "topic", Message: message}})
		}
	}
	return topics, nil
}

// readResumeCursor returns the position at which the feed starts. The header takes precedence over the
// query, because a browser that reconnects sends the original query again.
func (s *server) readResumeCursor(x *request, q apiv1.EventQuery) (feed.Cursor, error) {
	id := cmp.Or(x.r.Header.Get("Last-Event-ID"), q.LastEventID)
	switch {
	case id != "":
		return feed.ParseCursor(id)
	case q.From == apiv1.FeedBeginning:
		return feed.Cursor{}, nil
	default:
		return s.feedOptions.Feed.Now(x.ctx)
	}
}

// eventStream encodes the events of a feed for one client.
type eventStream struct {
	request  *request
	source   string
	topics   []string
	reader   *feed.Reader
	lastSent feed.Cursor // the last event sent
}

// keepalive returns a keepalive comment, and the id to resume from if it has changed.
func (e *eventStream) keepalive() string {
	p := e.reader.Point()
	if p == e.lastSent {
		return ": still here\n\n"
	}
	e.lastSent = p
	return fmt.Sprintf(": still here\nid: %s\n\n", p)
}

// encode encodes the events that the client selected and may see.
func (e *eventStream) encode(list []feed.Event) (string, error) {
	var b bytes.Buffer
	for _, one := range list {
		if e.topics != nil && !slices.Contains(e.topics, one.Topic) {
			continue
		}
		shown, ok := access.RedactEvent(e.request.ctx, one.Event)
		if !ok {
			continue
		}
		doc, err := sink.CloudEvent(shown, e.source)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "id: %s\nevent: %s\ndata: %s\n\n", one.Point, one.Topic, doc)
		e.lastSent = one.Point
	}
	return b.String(), nil
}
