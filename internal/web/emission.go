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

// maxCounted is how many events of a sink are counted.
const maxCounted = 10_000

// emissionsPage is how the sinks are, and what became of the newest events.
type emissionsPage struct {
	Sinks     []sinkLine
	SeesSinks bool     // how they are
	Names     []string // of all sinks
	States    []tasker.EmissionState
	Sink      string
	State     tasker.EmissionState
	Before    int64
	List      []tasker.Emission
	Pager     pager
}

// A sinkLine is one sink, with what its numbers mean.
type sinkLine struct {
	tasker.SinkState
	Status string
	Ours   bool // this server sends to it
}

// MaxCounted is where counting ends.
func (sinkLine) MaxCounted() int64 { return maxCounted }

func (s *server) emissions(req *request) (*view, error) {
	names, err := s.DB.Sinks(req.Context())
	if err != nil {
		return nil, err
	}
	q := req.query()
	p := emissionsPage{Names: names, States: tasker.EmissionStates()}
	p.Sink, p.State, p.Before = choice(q, "sink", names), choice(q, "state", p.States), q.before()
	if q.err != nil {
		return nil, q.err
	}
	if p.SeesSinks = req.sees(access.ReadSystem); p.SeesSinks {
		if p.Sinks, err = s.sinkLines(req, names); err != nil {
			return nil, err
		}
	}
	list, more, err := s.DB.Emissions(req.Context(), tasker.EmissionFilter{Sink: p.Sink, State: p.State, Before: p.Before, Limit: pageRows})
	if err != nil {
		return nil, err
	}
	if p.List = list; more {
		p.Pager = req.pagerBefore(list[len(list)-1].Position)
	}
	return &view{page: "emissions", title: "Emissions", nav: "Emissions", live: true, body: p}, nil
}

// sinkLines says how these sinks are.
func (s *server) sinkLines(req *request, names []string) ([]sinkLine, error) {
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

// namespaceOf returns the namespace that an event is of.
func namespaceOf(e tasker.Event) string { return member[string](members(e.Data), "namespace") }

// emissionPage is one event, and what became of it at each sink.
type emissionPage struct {
	tasker.Event
	Namespace string
	Emissions []tasker.Emission
}

func (s *server) emission(req *request) (*view, error) {
	p, err := s.emitted(req)
	if err != nil {
		return nil, err
	}
	return &view{page: "emission", title: "Event " + p.Topic, nav: "Emissions", live: true, body: p}, nil
}

// emitted reads the event that the path names.
func (s *server) emitted(req *request) (p emissionPage, err error) {
	id, err := req.id("event")
	if err != nil {
		return p, err
	}
	if p.Event, err = s.DB.Event(req.Context(), id); err != nil {
		return p, err
	}
	p.Namespace = namespaceOf(p.Event)
	p.Emissions, err = s.DB.EmissionsOf(req.Context(), id)
	return p, err
}

// A reEmitForm sends an event again.
type reEmitForm struct {
	*server
	form
	emissionPage
	Sinks []chosenSink
}

// A chosenSink is a sink to choose.
type chosenSink struct {
	Name   string
	State  tasker.EmissionState // empty: the event was never meant for it
	Chosen bool
}

func (s *server) reEmitForm(req *request) (*reEmitForm, error) {
	e, err := s.emitted(req)
	if err != nil {
		return nil, err
	}
	names, err := emission.Sinks(req.Context(), s.DB)
	if err != nil && tasker.CodeOf(err) != tasker.Conflict {
		return nil, err
	}
	f := form{page: "re-emit", title: "Send event " + e.Topic + " again", nav: "Emissions", Button: "Send again", Back: Root + "/emissions/" + e.UUID.String()}
	p := &reEmitForm{server: s, form: req.formOf(f), emissionPage: e}
	if err != nil {
		p.Refused = sentence(err.Error()) + "."
	}
	actor, reason := p.placeholders()
	ctl := append([]string{"dlq", "re-emit", e.UUID.String(), "--reason", reason}, p.by("--actor", actor)...)
	body := apiv1.ReEmit{EventUUID: new(e.UUID.String()), Actor: actor, Reason: reason}
	for _, name := range names {
		c := newSinkOption(name, e.Emissions, req.Method == http.MethodPost, req.PostForm["sinks"])
		if p.Sinks = append(p.Sinks, c); c.Chosen {
			body.Sinks = append(body.Sinks, name)
			ctl = append(ctl, "--sink", name)
		}
	}
	p.Command = commandOf(req, ctl, http.MethodPost, "/v1/dlq/emissions/re-emit", body)
	return p, nil
}

// newSinkOption is a sink as somebody left it; at first those are chosen that have not
// got the event, or all that have.
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
	if err := p.check(req, maxReason); err != nil {
		return nil, err
	}
	if len(req.PostForm["sinks"]) == 0 { // which means all to a program, and was perhaps forgotten by a person
		return nil, tasker.Errorf(tasker.Invalid, "choose at least one sink")
	}
	sent, err := emission.ReEmit(req.Context(), p.DB, emission.ReEmission{
		Event: &p.UUID, Sinks: req.PostForm["sinks"], Actor: p.Actor, Reason: p.Reason,
	})
	return &view{next: p.Back, note: "The event will be sent again, to " + strings.Join(sent.Sinks, ", ") + "."}, err
}

// auditPage is what happened to Tasker itself, the newest first.
type auditPage struct {
	Action string // empty means any
	Events []tasker.AuditEvent
	Pager  pager
}

// maxAction bounds what is looked for; no action has a longer name.
const maxAction = 128

func (s *server) audit(req *request) (*view, error) {
	q := req.query()
	p := auditPage{Action: q.text("action", maxAction)}
	before := q.before()
	if q.err != nil {
		return nil, q.err
	}
	list, more, err := s.DB.AuditEvents(req.Context(), p.Action, before, pageRows)
	if err != nil {
		return nil, err
	}
	if p.Events = list; more {
		p.Pager = req.pagerBefore(list[len(list)-1].ID)
	}
	return &view{page: "audit", title: "Audit log", nav: "Emissions", body: p}, nil
}
