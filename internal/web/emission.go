package web

import (
	"net/http"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/endpoint"
)

// maxCounted is the number of events at which counting the backlog of a sink stops.
const maxCounted = 10_000

type emissionsPage struct {
	listPage[tasker.Emission]
	Sinks     []tasker.SinkState
	SeesSinks bool     // has permission to see their state
	Names     []string // of all sinks
	Filter    tasker.EmissionFilter
}

func (s *server) showEmissions(req *request) (*view, error) {
	q := req.query()
	p := emissionsPage{Names: loadAll(req, s.DB.Sinks), SeesSinks: req.canSee(access.ReadSystem)}
	p.Filter = tasker.EmissionFilter{
		Sink: readChoice(q, "sink", p.Names), State: readChoice(q, "state", tasker.EmissionStates()),
		Topic: readChoice(q, "topic", tasker.Topics()), Before: q.readBefore(), Limit: pageRows,
	}
	if p.SeesSinks {
		p.Sinks = s.listSinks(req, p.Names)
	}
	list, more := loadPage(req, s.DB.Emissions, p.Filter)
	p.listPage = newListPage(req, list, more, "before", func(e tasker.Emission) any { return e.Position })
	return &view{page: "emissions", title: "Emissions", nav: "Emissions", live: true, body: p}, nil
}

func (s *server) listSinks(req *request, names []string) []tasker.SinkState {
	states, err := s.DB.SinkStates(req.Context(), names, maxCounted)
	req.fail(err)
	return states
}

// emissionPage shows an event and its deliveries.
type emissionPage struct {
	tasker.Event
	Namespace string
	Emissions []tasker.Emission
}

func (s *server) showEmission(req *request) (*view, error) {
	p := s.loadEvent(req)
	return &view{page: "emission", title: "Event " + p.Topic, nav: "Emissions", live: true, body: p}, nil
}

func (s *server) loadEvent(req *request) (p emissionPage) {
	p.Event = loadByID(req, "event", s.DB.Event)
	p.Namespace = parseMember[string](parseMembers(p.Data), "namespace")
	p.Emissions = load(req, s.DB.EmissionsOf, p.UUID)
	return p
}

// reEmitForm is the form to redeliver an event.
type reEmitForm struct {
	form
	emissionPage
	Sinks []chosenSink
}

type chosenSink struct {
	Name   string
	State  tasker.EmissionState // empty if there is no delivery
	Chosen bool
}

func (s *server) newReEmitForm(req *request) *reEmitForm {
	p := &reEmitForm{emissionPage: s.loadEvent(req)}
	p.form = req.newForm(form{
		page: "re-emit", title: "Redeliver event " + p.Topic, nav: "Emissions", Button: "Redeliver",
		Back: Root + "/emissions/" + p.UUID.String(), maxReason: maxReason,
	})
	names, err := emission.ListSinks(req.Context(), s.DB)
	if tasker.CodeOf(err) == tasker.Conflict {
		p.Refused = toSentence(err.Error()) + "."
	} else {
		req.fail(err)
	}
	c := p.newCall(endpoint.ReEmit, "dlq re-emit")
	c.words = append(c.words, p.UUID.String())
	c.member("event_uuid", p.UUID)
	c.setReason()
	c.setNamedActor("--actor", "actor")
	var chosen []string
	for _, name := range names {
		option := newSinkOption(name, p.Emissions, req.Method == http.MethodPost, req.PostForm["sinks"])
		if p.Sinks = append(p.Sinks, option); option.Chosen {
			chosen = append(chosen, name)
		}
	}
	c.flag("--sink", chosen)
	c.member("sinks", chosen)
	p.Command = c.format()
	return p
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
	if len(req.PostForm["sinks"]) == 0 { // means all sinks in the API
		return nil, tasker.Errorf(tasker.Invalid, "select at least one sink")
	}
	sent, err := emission.ReEmit(req.Context(), p.DB, emission.ReEmission{
		Event: &p.UUID, Sinks: req.PostForm["sinks"], Actor: p.Actor, Reason: p.Reason,
	})
	return &view{next: p.Back, note: "The event will be redelivered to " + strings.Join(sent.Sinks, ", ") + "."}, err
}

// maxAction is longer than the name of any action, in bytes.
const maxAction = 128

// showAudit shows the audit log, newest first.
func (s *server) showAudit(req *request) (*view, error) {
	q := req.query()
	list, more, err := s.DB.AuditEvents(req.Context(), q.readText("action", maxAction), q.readBefore(), pageRows)
	req.fail(err)
	p := newListPage(req, list, more, "before", func(e tasker.AuditEvent) any { return e.ID })
	return &view{page: "audit", title: "Audit log", nav: "Emissions", body: p}, nil
}
