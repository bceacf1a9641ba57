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
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
)

const (
	emissionLimit = 100    // listed by default, of audit events too
	maxCounted    = 10_000 // of what a sink has before it
	maxPosition   = 1 << 53
)

// emissionRoutes is about telling the world of investigations.
func (s *server) emissionRoutes() []*route {
	const tag = "emission"
	return []*route{
		{
			method: "GET", path: "/v1/dlq/emissions", id: "listEmissions", class: overload.Reads, needs: access.ReadEvents, tag: tag,
			summary: "List what became of sending events to the sinks, the newest event first",
			about: "From the database alone, whatever the sinks do. Pages go on by position; " +
				"one event is never divided between two, so a page may be longer than its limit by the number of sinks.",
			params: []param{
				choiceParam("state", "Only those in this state.", tasker.EmissionStates()), textParam("sink", "Only those to this sink.", 128),
				beforeParam("Only events before this position."), limitParam(emissionLimit),
			},
			answers: map[int]any{http.StatusOK: apiv1.EmissionList{}},
			serve:   s.listEmissions,
		},
		{
			method: "GET", path: "/v1/dlq/emissions/{event_uuid}", id: "getEmission", class: overload.Reads, needs: access.ReadEvents, tag: tag,
			summary: "One event with its data, and what became of it at each sink",
			answers: map[int]any{http.StatusOK: apiv1.EmittedEvent{}},
			serve:   s.oneEmission,
		},
		{
			method: "POST", path: "/v1/dlq/emissions/re-emit", id: "reEmit", class: overload.Operations, needs: access.ResendEvents, tag: tag,
			summary: "Send an event, or those of a range of positions, again",
			about: "For operators; it is recorded in the audit log. Receivers know an event that they have by its id. " +
				"One request takes up to 10000 events; with next_from_position the answer says where to go on. " +
				"Under an Idempotency-Key the same request again sends nothing: its answer counts 0 emissions.",
			keyed:   true,
			body:    apiv1.ReEmit{},
			answers: map[int]any{http.StatusOK: apiv1.ReEmitted{}},
			serve:   withBody(s.reEmit),
		},
		{
			method: "GET", path: "/v1/dlq/sinks", id: "listSinks", class: overload.Reads, needs: access.ReadSystem, tag: tag,
			summary: "How the sinks are, to which events are sent",
			about:   "A sink that no server sends to any more is listed as it was last.",
			answers: map[int]any{http.StatusOK: []apiv1.Sink{}},
			serve:   s.listSinks,
		},
		{
			method: "GET", path: "/v1/dlq/events", id: "followEvents", class: overload.Streams, needs: access.ReadEvents, tag: tag, quiet: true, gives: "text/event-stream",
			summary: "Follow the events of investigations as they happen",
			about:   aboutFeed,
			params: []param{
				textParam("topic", "Only events of these topics, divided by commas: "+strings.Join(tasker.Topics(), ", ")+".", 200),
				choiceParam("from", "Where to begin without an id to resume from: beginning, or now, which is the default.", []feedStart{feedNow, feedBeginning}),
				textParam("last_event_id", "Resume after the event with this id, as the header Last-Event-ID does.", 100),
			},
			answers: map[int]any{http.StatusOK: apiv1.CloudEvent{}},
			serve:   s.followEvents,
		},
		{
			method: "GET", path: "/v1/audit", id: "listAudit", class: overload.Reads, needs: access.Administer, tag: "server",
			summary: "List what happened to Tasker itself and who did it, newest first",
			params: []param{
				textParam("action", "Only those of this action, such as dlq.re_emit.", 128), beforeParam("Only those before this audit_id."), limitParam(emissionLimit),
			},
			answers: map[int]any{http.StatusOK: apiv1.AuditList{}},
			serve:   s.listAudit,
		},
	}
}

func beforeParam(about string) param {
	return intParam("before", about+" 0 begins with the newest.", 0, maxPosition, 0)
}

// nextPage describes the page of a list whose last element is at a position.
func (x *request) nextPage(count int, more bool, last int64) apiv1.Continuation {
	c := apiv1.Continuation{Limit: x.int("limit"), Count: count, HasMore: more}
	if more {
		c.NextBefore = &last
	}
	return c
}

func (s *server) listEmissions(x *request) error {
	list, more, err := s.db.Emissions(x.ctx, tasker.EmissionFilter{
		Sink: x.text("sink"), State: tasker.EmissionState(x.text("state")), Before: int64(x.int("before")), Limit: x.int("limit"),
	})
	if err != nil {
		return err
	}
	var last int64
	if len(list) > 0 {
		last = list[len(list)-1].Position
	}
	return x.answer(http.StatusOK, apiv1.EmissionList{Emissions: convert(list, apiv1.FromEmission), Pagination: x.nextPage(len(list), more, last)})
}

func (s *server) oneEmission(x *request) error {
	id := x.id("event_uuid")
	e, err := s.db.Event(x.ctx, id)
	if err != nil {
		return err
	}
	list, err := s.db.EmissionsOf(x.ctx, id)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.FromEvent(e, list))
}

func (s *server) reEmit(x *request, req apiv1.ReEmit) error {
	r, err := reEmission(req)
	if err != nil {
		return err
	}
	r.Key, r.Actor = x.requestKey(), x.actor(r.Actor)
	if err := x.mayResend(r); err != nil {
		return err
	}
	sent, err := emission.ReEmit(x.ctx, s.db, r)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.ReEmitted{
		Events: sent.Events, Emissions: sent.Emissions, Sinks: sent.Sinks, NextFromPosition: sent.Next,
	})
}

// reEmission reads what a request names: an event, or positions.
func reEmission(req apiv1.ReEmit) (r emission.ReEmission, err error) {
	r = emission.ReEmission{Sinks: req.Sinks, Actor: req.Actor, Reason: req.Reason}
	switch {
	case req.EventUUID != nil && (req.FromPosition != nil || req.ToPosition != nil):
		return r, tasker.Errorf(tasker.Invalid, "the body names an event and positions: give event_uuid, or from_position and to_position")
	case req.EventUUID != nil:
		id, err := parseID(*req.EventUUID)
		if err != nil {
			return r, tasker.Errorf(tasker.Invalid, "event_uuid %v", err)
		}
		r.Event = &id
	case req.FromPosition == nil || req.ToPosition == nil:
		return r, tasker.Errorf(tasker.Invalid, "the body does not say what to send again: give event_uuid, or from_position and to_position")
	default:
		r.From, r.To = *req.FromPosition, *req.ToPosition
	}
	return r, nil
}

func (s *server) listSinks(x *request) error {
	names, err := s.db.Sinks(x.ctx)
	if err != nil {
		return err
	}
	list, err := s.db.SinkStates(x.ctx, names, maxCounted)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, convert(list, apiv1.FromSinkState))
}

func (s *server) listAudit(x *request) error {
	list, more, err := s.db.AuditEvents(x.ctx, x.text("action"), int64(x.int("before")), x.int("limit"))
	if err != nil {
		return err
	}
	var last int64
	if len(list) > 0 {
		last = list[len(list)-1].ID
	}
	return x.answer(http.StatusOK, apiv1.AuditList{Events: orEmpty(list), Pagination: x.nextPage(len(list), more, last)})
}

const aboutFeed = "Server-sent events: event is the topic, data the CloudEvent, id what to resume from. " +
	"Who reads on with the header Last-Event-ID gets each event that is missing, and none twice, from any server of the installation. " +
	"An id without data says how far the stream has come without an event to show; a comment comes when nothing happens for a while. " +
	"A reader that does not read is disconnected, and may resume; one that is slow holds up no other."

// A feedStart is where the feed begins for who does not resume.
type feedStart string

const (
	feedNow       feedStart = "now"
	feedBeginning feedStart = "beginning"
)

// FeedOptions are those of the live feed. Zero works for all of them.
type FeedOptions struct {
	feed.Options

	Feed      *feed.Feed    // that others read as well; nil means one of its own
	Source    string        // of the events: which installation this is; as sinks are told
	StillHere time.Duration // after which a reader to whom nothing happens is sent something; 0 means 15 s
	WriteTime time.Duration // that a reader may take to accept what it is sent; 0 means 10 s
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
	reader, err := s.live.Feed.Read(x.ctx, after, auth.AddressOf(x.r))
	if err != nil {
		return err
	}
	defer reader.Close()
	feed.Begin(x.w)
	if x.r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer x.caller.WhenEnded(cancel)()
	defer context.AfterFunc(s.stopping, cancel)()
	e := &events{request: x, source: s.live.Source, topics: topics, reader: reader, shown: reader.Point()}
	st := &feed.Stream{Reader: reader, W: x.w, Encode: e.encode, Idle: e.stillHere, StillHere: s.live.StillHere, WriteTime: s.live.WriteTime}
	requestLogOf(ctx).err = st.Run(ctx, fmt.Sprintf("id: %s\n", e.shown))
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
func (s *server) resume(x *request) (feed.Cursor, error) {
	id := cmp.Or(x.r.Header.Get("Last-Event-ID"), x.text("last_event_id"))
	switch {
	case id != "":
		return feed.ParseCursor(id)
	case feedStart(x.text("from")) == feedBeginning:
		return feed.Cursor{}, nil
	default:
		return s.live.Feed.Now(x.ctx)
	}
}

// events is what one client is sent.
type events struct {
	request *request
	source  string
	topics  []string
	reader  *feed.Reader
	shown   feed.Cursor // the last that the client was sent
}

// stillHere returns what a client is sent to whom nothing happens.
func (e *events) stillHere() string {
	p := e.reader.Point()
	if p == e.shown {
		return ": still here\n\n"
	}
	e.shown = p
	return fmt.Sprintf(": still here\nid: %s\n\n", p)
}

// encode writes the events that the client wants.
func (e *events) encode(list []feed.Event) (string, error) {
	var b bytes.Buffer
	for _, one := range list {
		if e.topics != nil && !slices.Contains(e.topics, one.Topic) {
			continue
		}
		shown, ok := access.ShowEvent(e.request.ctx, one.Event)
		if !ok {
			continue
		}
		doc, err := sink.CloudEvent(shown, e.source)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "id: %s\nevent: %s\ndata: %s\n\n", one.Point, one.Topic, doc)
		e.shown = one.Point
	}
	return b.String(), nil
}
