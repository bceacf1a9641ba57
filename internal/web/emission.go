package web

import (
	"net/http"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/emission"
)

// maxCounted is the number of events at which counting the backlog of a sink stops.
const maxCounted = 10_000

// emissionsPage shows the sinks and the newest deliveries.
type emissionsPage struct {
	Sinks     []sinkLine
	SeesSinks bool     // has permission to see their state
	Names     []string // of all sinks
	States    []tasker.EmissionState
	Sink      string
	State     tasker.EmissionState
	Topics    []string
	Topic     string
	Before    int64
	List      []tasker.Emission
	Pager     pager
}

type sinkLine struct {
	tasker.SinkState
	Status string
	Ours   bool // this server delivers to it
}

func (sinkLine) MaxCounted() int64 { return maxCounted }

func (s *server) showEmissions(req *request) (*view, error) {
	names, err := s.DB.Sinks(req.Context())
	if err != nil {
		return nil, err
	}
	q := req.query()
	p := emissionsPage{Names: names, States: tasker.EmissionStates(), Topics: tasker.Topics()}
	p.Sink, p.State, p.Topic, p.Before = readChoice(q, "sink", names), readChoice(q, "state", p.States), readChoice(q, "topic", p.Topics), q.readBefore()
	if q.err != nil {
		return nil, q.err
	}
	if p.SeesSinks = req.canSee(access.ReadSystem); p.SeesSinks {
		if p.Sinks, err = s.listSinkLines(req, names); err != nil {
			return nil, err
		}
	}
	list, more, err := s.DB.Emissions(req.Context(), tasker.EmissionFilter{Sink: p.Sink, State: p.State, Topic: p.Topic, Before: p.Before, Limit: pageRows})
	if err != nil {
		return nil, err
	}
	if p.List = list; more {
		p.Pager = req.newCursorPager(list[len(list)-1].Position)
	}
	return &view{page: "emissions", title: "Emissions", nav: "Emissions", live: true, body: p}, nil
}

func (s *server) listSinkLines(req *request, names []string) ([]sinkLine, error) {
	states, err := s.DB.SinkStates(req.Context(), names, maxCounted)
	if err != nil {
		return nil, err
	}
	lines := make([]sinkLine, len(states))
	for i, st := range states {
		lines[i] = sinkLine{SinkState: st, Status: "up", Ours: slices.Contains(s.Sinks, st.Sink)}
		if st.FailingSince != nil {
			lines[i].Status = "failing"
		}
	}
	return lines, nil
}

// emissionPage shows an event and its deliveries.
type emissionPage struct {
	tasker.Event
	Namespace string
	Emissions []tasker.Emission
}

func (s *server) showEmission(req *request) (*view, error) {
	p, err := s.loadEvent(req)
	return &view{page: "emission", title: "Event " + p.Topic, nav: "Emissions", live: true, body: p}, err
}

func (s *server) loadEvent(req *request) (p emissionPage, err error) {
	if p.Event, err = findByID(req, "event", s.DB.Event); err != nil {
		return p, err
	}
	p.Namespace = parseMember[string](parseMembers(p.Data), "namespace")
	p.Emissions, err = s.DB.EmissionsOf(req.Context(), p.UUID)
	return p, err
}

// newReEmitForm is the form to redeliver an event.
type reEmitForm struct {
	*server
	form
	emissionPage
	Sinks []chosenSink
}

type chosenSink struct {
	Name   string
	State  tasker.EmissionState // empty if there is no delivery
	Chosen bool
}

func (s *server) newReEmitForm(req *request) (*reEmitForm, error) {
	e, err := s.loadEvent(req)
	if err != nil {
		return nil, err
	}
	names, err := emission.ListSinks(req.Context(), s.DB)
	if err != nil && tasker.CodeOf(err) != tasker.Conflict {
		return nil, err
	}
	f := form{page: "re-emit", title: "Redeliver event " + e.Topic, nav: "Emissions", Button: "Redeliver", Back: Root + "/emissions/" + e.UUID.String()}
	p := &reEmitForm{server: s, form: req.newForm(f), emissionPage: e}
	if err != nil {
		p.Refused = toSentence(err.Error()) + "."
	}
	actor, reason := p.placeholders()
	ctl := append([]string{"dlq", "re-emit", e.UUID.String(), "--reason", reason}, p.actorFlags("--actor", actor)...)
	body := apiv1.ReEmit{EventUUID: new(e.UUID.String()), Actor: actor, Reason: reason}
	for _, name := range names {
		c := newSinkOption(name, e.Emissions, req.Method == http.MethodPost, req.PostForm["sinks"])
		if p.Sinks = append(p.Sinks, c); c.Chosen {
			body.Sinks = append(body.Sinks, name)
			ctl = append(ctl, "--sink", name)
		}
	}
	p.Command = newCommand(req, ctl, http.MethodPost, "/v1/dlq/emissions/re-emit", body)
	return p, nil
}

// newSinkOption returns a sink with its submitted choice. If the form was not submitted yet, the
// sinks that have not received the event are chosen, or all if every sink has received it.
func newSinkOption(name string, list []tasker.Emission, sent bool, chosen []string) chosenSink {
	c := chosenSink{Name: name}
	for _, e := range list {
		if e.Sink == name {
			c.State = e.State
		}
	}
	c.Chosen = slices.Contains(chosen, name)
	if !sent {
		open := slices.ContainsFunc(list, func(e tasker.Emission) bool { return e.State != tasker.EmissionPublished })
		c.Chosen = !open || c.State != tasker.EmissionPublished
	}
	return c
}

func (p *reEmitForm) do(req *request) (*view, error) {
	if err := p.checkReason(req, maxReason); err != nil {
		return nil, err
	}
	if len(req.PostForm["sinks"]) == 0 { // means all sinks in the API
		return nil, tasker.Errorf(tasker.Invalid, "select at least one sink")
	}
	sent, err := emission.ReEmit(req.Context(), p.DB, emission.ReEmission{
		Event: &p.UUID, Sinks: req.PostForm["sinks"], Actor: p.Actor, Reason: p.Reason,
	})
	return &view{next: p.Back, note: "The event will be redelivered to " + strings.Join(sent.Sinks, ", ") + "."}, err
}

// auditPage shows the audit log, newest first.
type auditPage struct {
	Action string // filter; empty for all
	Events []tasker.AuditEvent
	Pager  pager
}

// maxAction is longer than the name of any action, in bytes.
const maxAction = 128

func (s *server) showAudit(req *request) (*view, error) {
	q := req.query()
	p := auditPage{Action: q.readText("action", maxAction)}
	before := q.readBefore()
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.DB.AuditEvents(req.Context(), p.Action, before, pageRows)
	if err != nil {
		return nil, err
	}
	if p.Events = list; more {
		p.Pager = req.newCursorPager(list[len(list)-1].ID)
	}
	return &view{page: "audit", title: "Audit log", nav: "Emissions", body: p}, nil
}
