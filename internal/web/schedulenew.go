package web

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
)

const newSchedulePath = "/new-schedule"

// A newScheduleForm adds a schedule: what the form does not ask for is as tasker-ctl leaves it.
type newScheduleForm struct {
	*server
	form
	tasker.ScheduleSpec

	Often, Doc string // as typed: the fixed rate, and the context
}

// Choices are the values of overlap.
func (*newScheduleForm) Choices() []tasker.Overlap { return tasker.Overlaps() }

func (s *server) newScheduleForm(req *request) (*newScheduleForm, error) {
	field := func(name string) string { return strings.TrimSpace(req.FormValue(name)) }
	p := &newScheduleForm{server: s, Often: field("every"), Doc: req.typed("context")}
	p.Namespace, p.Name, p.Template, p.Cron, p.Zone = field("namespace"), field("name"), field("template"), field("cron"), field("zone")
	p.NominalKey, p.Overlap = field("nominal_key"), tasker.Overlap(field("overlap"))
	p.form = req.formOf(form{page: "schedulenew", title: "Add a schedule", nav: navSchedules, Button: "Add", Back: schedulesPath})
	p.Command = p.command(req)
	return p, nil
}

func (p *newScheduleForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	if p.Namespace == "" {
		return nil, tasker.Errorf(tasker.Invalid, "the namespace is missing")
	}
	if err := req.caller.MayUse(access.WriteSchedules, p.Namespace); err != nil {
		return nil, err
	}
	spec := p.ScheduleSpec
	if p.Often != "" {
		every, err := time.ParseDuration(p.Often)
		if err != nil || every <= 0 {
			return nil, tasker.Errorf(tasker.Invalid, "invalid rate %q: must be a duration such as 90s or 6h", clip(p.Often, 40))
		}
		spec.Every = every
	}
	if spec.Context = typedJSON(p.Doc); len(spec.Context) > 0 && !json.Valid(spec.Context) {
		return nil, tasker.Errorf(tasker.Invalid, "the context is not JSON")
	}
	s, err := p.Engine.CreateSchedule(req.Context(), spec, engine.ScheduleChange{Actor: p.Actor, Reason: p.Reason})
	if err != nil {
		return nil, asTyped(err)
	}
	return &view{next: schedulesPath + "/" + s.UUID.String(), note: "Schedule " + s.Name + " is added."}, nil
}

// command adds the same schedule from a terminal.
func (p *newScheduleForm) command(req *request) command {
	actor, _ := p.placeholders()
	body := apiv1.CreateSchedule{By: p.byInBody(actor), Reason: p.Reason, ScheduleSpec: apiv1.ScheduleSpec{
		Namespace: p.Namespace, Name: p.Name, Template: p.Template, Cron: p.Cron, Zone: p.Zone, Overlap: string(p.Overlap), NominalKey: p.NominalKey,
	}}
	ctl := []string{"schedule", "add"}
	for _, f := range []struct{ flag, value string }{
		{"--namespace", p.Namespace}, {"--name", p.Name}, {"--template", p.Template}, {"--cron", p.Cron}, {"--every", p.Often}, {"--zone", p.Zone},
		{"--overlap", string(p.Overlap)}, {"--nominal-key", p.NominalKey}, {"--context", p.Doc},
	} {
		if f.value != "" {
			ctl = append(ctl, f.flag, f.value)
		}
	}
	if every, err := time.ParseDuration(p.Often); err == nil {
		body.EverySeconds = int64(every / time.Second)
	}
	body.Context = validOr(typedJSON(p.Doc), "{}")
	return commandOf(req, append(ctl, p.by("--by", actor)...), http.MethodPost, "/v1/schedules", body)
}
