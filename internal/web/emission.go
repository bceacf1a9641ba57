package web

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/postgres"
)

func (s *server) emissionRoutes() []route {
	return []route{
		{http.MethodGet, "/emissions", s.emissions},
		{http.MethodGet, "/emissions/{event}", s.emission},
		{http.MethodGet, "/emissions/{event}/re-emit", s.askReEmit},
		{http.MethodPost, "/emissions/{event}/re-emit", s.reEmit},
	}
}

// maxCounted is how many events of a sink are counted.
const maxCounted = 10_000

// emissionsPage is how the sinks are, and what became of the newest events.
type emissionsPage struct {
	Sinks  []sinkLine
	Names  []string // of all sinks
	States []tasker.EmissionState
	Sink   string
	State  tasker.EmissionState
	Before int64
	List   []tasker.Emission
	Pager  pager
}

// A sinkLine is one sink, with what its numbers mean.
type sinkLine struct {
	tasker.SinkState
	Status string
	Ours   bool // this server sends to it
}

// MaxCounted is where counting ends.
func (sinkLine) MaxCounted() int64 { return maxCounted }

func (s *server) emissions(x *exchange) (*view, error) {
	p := emissionsPage{States: tasker.EmissionStates()}
	var err error
	if p.Names, err = s.DB.Sinks(x.Context()); err != nil {
		return nil, err
	}
	if p.Sink, err = choice(x, "sink", p.Names); err != nil {
		return nil, err
	}
	if p.State, err = choice(x, "state", p.States); err != nil {
		return nil, err
	}
	if p.Before, err = x.position("before"); err != nil {
		return nil, err
	}
	if p.Sinks, err = s.sinkLines(x, p.Names); err != nil {
		return nil, err
	}
	list, more, err := s.DB.Emissions(x.Context(), tasker.EmissionFilter{Sink: p.Sink, State: p.State, Before: p.Before, Limit: pageRows})
	if err != nil {
		return nil, err
	}
	p.List = list
	if more {
		p.Pager = x.goesOn(list[len(list)-1].Position)
	}
	return &view{page: "emissions", title: "Emissions", nav: "Emissions", live: true, body: p}, nil
}

// sinkLines says how these sinks are.
func (s *server) sinkLines(x *exchange, names []string) ([]sinkLine, error) {
	states, err := s.DB.SinkStates(x.Context(), names, maxCounted)
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

// emissionPage is one event, and what became of it at each sink.
type emissionPage struct {
	tasker.Event
	Emissions []tasker.Emission
}

func (s *server) emission(x *exchange) (*view, error) {
	p, err := s.emitted(x)
	if err != nil {
		return nil, err
	}
	return &view{page: "emission", title: "Event " + p.Topic, nav: "Emissions", live: true, body: p}, nil
}

// emitted reads the event that the path names.
func (s *server) emitted(x *exchange) (p emissionPage, err error) {
	id, err := x.id("event")
	if err != nil {
		return p, err
	}
	if p.Event, err = s.DB.Event(x.Context(), id); err != nil {
		return p, err
	}
	p.Emissions, err = s.DB.EmissionsOf(x.Context(), id)
	return p, err
}

// reEmitPage is the form that has an event sent again.
type reEmitPage struct {
	emissionPage
	Sinks     []chosenSink
	Reason    string
	Problem   string
	Elsewhere command
}

// A chosenSink is one that can be chosen.
type chosenSink struct {
	Name   string
	State  tasker.EmissionState // empty: the event was never meant for it
	Chosen bool
}

func (s *server) askReEmit(x *exchange) (*view, error) {
	if err := s.mayChange(); err != nil {
		return nil, err
	}
	e, err := s.emitted(x)
	if err != nil {
		return nil, err
	}
	return s.reEmitForm(x, e, nil)
}

// reEmitForm shows the form with what was typed, and why it was refused.
func (s *server) reEmitForm(x *exchange, e emissionPage, refused error) (*view, error) {
	names, err := s.DB.Sinks(x.Context())
	if err != nil {
		return nil, err
	}
	p := reEmitPage{emissionPage: e, Reason: x.PostFormValue("reason")}
	v := &view{page: "re-emit", title: "Send an event again", nav: "Emissions"}
	if refused != nil {
		p.Problem, v.status = messageOf(refused), apiv1.Status(tasker.CodeOf(refused))
	}
	for _, name := range names {
		p.Sinks = append(p.Sinks, chooseSink(name, e.Emissions, refused != nil, x.PostForm["sinks"]))
	}
	p.Elsewhere = reEmitCommand(x, e.UUID.String(), p)
	v.body = p
	return v, nil
}

// chooseSink is a sink as somebody left it; at first those are chosen that have not
// got the event, or all that have.
func chooseSink(name string, list []tasker.Emission, sent bool, chosen []string) chosenSink {
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

// reEmitCommand is the same from a terminal, to the sinks that are chosen.
func reEmitCommand(x *exchange, event string, p reEmitPage) command {
	reason, actor := cmp.Or(strings.TrimSpace(p.Reason), "the receiver takes it now"), cmp.Or(x.actor, "your name")
	words := []string{"dlq", "re-emit", event, "--reason", reason, "--actor", actor}
	req := apiv1.ReEmit{EventUUID: &event, Actor: actor, Reason: reason}
	for _, c := range p.Sinks {
		if c.Chosen {
			req.Sinks = append(req.Sinks, c.Name)
			words = append(words, "--sink", c.Name)
		}
	}
	return commandOf(x, words, http.MethodPost, "/v1/dlq/emissions/re-emit", req)
}

func (s *server) reEmit(x *exchange) (*view, error) {
	e, err := s.emitted(x)
	if err != nil {
		return nil, err
	}
	sinks, err := s.sendAgain(x, e.Event)
	if err != nil && tasker.CodeOf(err) != tasker.Internal {
		return s.reEmitForm(x, e, err)
	}
	if err != nil {
		return nil, err
	}
	return &view{next: Root + "/emissions/" + e.UUID.String(), note: "The event will be sent again, to " + strings.Join(sinks, ", ") + "."}, nil
}

// sendAgain has an event sent again to the sinks that the form names.
func (s *server) sendAgain(x *exchange, e tasker.Event) ([]string, error) {
	actor, err := x.actorOf()
	if err != nil {
		return nil, err
	}
	reason := strings.TrimSpace(x.PostFormValue("reason"))
	if reason == "" || utf8.RuneCountInString(reason) > maxReason || !utf8.ValidString(reason) || strings.ContainsRune(reason, 0) {
		return nil, tasker.Errorf(tasker.Invalid, "say why, in up to %d characters: it is kept in the audit log", maxReason)
	}
	known, err := s.DB.Sinks(x.Context())
	if err != nil {
		return nil, err
	}
	if len(known) == 0 {
		return nil, tasker.Errorf(tasker.Conflict, "events are sent nowhere: no server was configured with a sink yet (emission.sinks)")
	}
	sinks := slices.Compact(slices.Sorted(slices.Values(x.PostForm["sinks"])))
	if len(sinks) == 0 {
		return nil, tasker.Errorf(tasker.Invalid, "choose at least one sink")
	}
	for _, name := range sinks {
		if !slices.Contains(known, name) {
			return nil, tasker.Errorf(tasker.Invalid, "there is no sink %q", clip(name, 40))
		}
	}
	_, err = s.DB.ReEmit(x.Context(), postgres.ReEmission{Sinks: sinks, Of: postgres.Span{From: e.Position, To: e.Position}, By: postgres.Operator{Actor: actor, Reason: reason}}, 1)
	return sinks, err
}
