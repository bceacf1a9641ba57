package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/engine"
)

const newSchedulePath = "/new-schedule"

// newScheduleForm is the form to create a schedule. Options that it lacks have the same
// defaults as in tasker-ctl.
type newScheduleForm struct {
	form
	tasker.ScheduleSpec

	Fields []scheduleField
	faults []tasker.Fault // unreadable fields
}

// scheduleField is a field of the form. Its name is that of the API and of the flag.
type scheduleField struct {
	Name     string
	Label    string
	Hint     string
	Value    string // as typed
	Options  []string
	Most     int
	Required bool
	JSON     bool
	Problem  string
	path     string // path in the faults of a schedule
}

func newScheduleFields() []scheduleField {
	return []scheduleField{
		{Name: "namespace", Label: "Namespace", Hint: "of the schedule and of the template", Required: true, Most: 128},
		{Name: "name", Label: "Name", Required: true, Most: 128},
		{Name: "template", Label: "Template", Hint: "newest version at each firing time", Required: true, Most: 128},
		{Name: "cron", Label: "Cron", Hint: "minute, hour, day of month, month, day of week; such as 30 2 * * *", Most: 256},
		{Name: "day_match", Label: "Day fields", Hint: "if cron restricts both: match any of them or all", Options: []string{"any", "all"}},
		{Name: "zone", Label: "Time zone", Hint: "such as Europe/Berlin; default UTC", Most: 64},
		{Name: "every", path: "every_seconds", Label: "Fixed rate", Hint: "instead of cron, such as 90s or 6h", Most: 20},
		{Name: "after_end", path: "after_end_seconds", Label: "Fixed delay", Hint: "instead of cron: time after the previous task ends, such as 10m", Most: 20},
		{Name: "except", Label: "Excluded days", Hint: "such as sat, sun, 2026-12-25, 2026-12-24..2027-01-01", Most: 4000},
		{Name: "jitter", path: "jitter_seconds", Label: "Jitter", Hint: "maximum random delay, such as 5m", Most: 20},
		{Name: "overlap", Label: "If the previous task has not ended", Options: toStrings(tasker.Overlaps())},
		{Name: "catch_up", Label: "Missed firing times", Hint: "which of them create tasks; default: the last", Options: toStrings(tasker.CatchUps())},
		{Name: "catch_up_max", Label: "Maximum of missed firing times", Hint: "only with all", Most: 10},
		{Name: "context", Label: "Context of each task", Hint: "JSON; default {}", JSON: true},
		{Name: "nominal_key", Label: "Context key of the firing time", Hint: "optional", Most: 128},
	}
}

func (s *server) newCreateScheduleForm(req *request) *newScheduleForm {
	p := &newScheduleForm{Fields: newScheduleFields()}
	for i, f := range p.Fields {
		p.Fields[i].path = cmp.Or(f.path, f.Name)
		p.Fields[i].Value = req.trimmedValue(f.Name)
		if f.JSON {
			p.Fields[i].Value = req.rawField(f.Name)
		}
	}
	p.readSpec()
	p.form = req.newForm(form{page: "schedulenew", title: "Add a schedule", nav: navSchedules, Button: "Add", Back: schedulesPath})
	p.Command = p.command()
	return p
}

func (p *newScheduleForm) fieldText(name string) string {
	return p.Fields[slices.IndexFunc(p.Fields, func(f scheduleField) bool { return f.Name == name })].Value
}

// readSpec parses the fields and collects a fault for each unreadable one.
func (p *newScheduleForm) readSpec() {
	fault := func(path, format string, args ...any) {
		p.faults = append(p.faults, tasker.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	p.Namespace, p.Name, p.Template, p.NominalKey = p.fieldText("namespace"), p.fieldText("name"), p.fieldText("template"), p.fieldText("nominal_key")
	p.Cron, p.DayMatch, p.Zone = p.fieldText("cron"), p.fieldText("day_match"), p.fieldText("zone")
	p.Overlap, p.CatchUp = tasker.Overlap(p.fieldText("overlap")), tasker.CatchUp(p.fieldText("catch_up"))
	p.Except = strings.FieldsFunc(p.fieldText("except"), func(r rune) bool { return r == ',' || r == ' ' })
	for _, f := range []struct {
		name string
		into *time.Duration
	}{{"every", &p.Every}, {"after_end", &p.AfterEnd}, {"jitter", &p.Jitter}} {
		text := p.fieldText(f.name)
		if text == "" {
			continue
		}
		var err error
		if *f.into, err = time.ParseDuration(text); err != nil || *f.into <= 0 {
			fault(f.name, "%q must be a duration such as 90s or 6h", truncate(text, 40))
		}
	}
	if text := p.fieldText("catch_up_max"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			fault("catch_up_max", "%q must be a number from 1 to %d", truncate(text, 40), tasker.MaxCatchUp)
		}
		p.CatchUpMax = n
	}
	if p.Context = parseTypedJSON(p.fieldText("context")); len(p.Context) > 0 && !json.Valid(p.Context) {
		fault("context", "must be valid JSON")
	}
	if p.Namespace == "" {
		fault("namespace", "is missing")
	}
}

func (p *newScheduleForm) do(req *request) (*view, error) {
	if len(p.faults) > 0 {
		return p.attachFaults(tasker.Errorf(tasker.Invalid, "invalid schedule: %s", p.faults[0]).WithDetails(p.faults))
	}
	if err := req.caller.RequirePermission(access.WriteSchedules, p.Namespace); err != nil {
		return nil, asInputError(err)
	}
	s, err := p.Engine.CreateSchedule(req.Context(), p.ScheduleSpec, engine.ScheduleChange{Actor: p.Actor, Reason: p.Reason})
	if err != nil {
		return p.attachFaults(asInputError(err))
	}
	return &view{next: schedulesPath + "/" + s.UUID.String(), note: "Schedule " + s.Name + " was added."}, nil
}

// attachFaults shows the form again with each fault at its field.
func (p *newScheduleForm) attachFaults(err error) (*view, error) {
	var e *tasker.Error
	if !errors.As(err, &e) || e.Code != tasker.Invalid {
		return nil, err
	}
	list, _ := e.Details.([]tasker.Fault)
	for _, fault := range list {
		for i, f := range p.Fields {
			if fault.Path == f.path || fault.Path == f.Name || strings.HasPrefix(fault.Path, f.path+"[") {
				p.Fields[i].Problem = toSentence(fault.Message)
			}
		}
	}
	p.Problem = errorMessage(err)
	return p.view(p, apiv1.Status(tasker.Invalid)), nil
}

func (p *newScheduleForm) command() command {
	c := p.newCall(endpoint.CreateSchedule, "schedule add")
	for _, f := range p.Fields {
		value := f.Value
		if f.Name == "except" {
			value = strings.Join(p.Except, ",")
		}
		c.flag("--"+strings.ReplaceAll(f.Name, "_", "-"), value)
	}
	spec := p.ScheduleSpec
	spec.Context = validJSONOr(spec.Context, "{}")
	c.setMembers(apiv1.FromScheduleSpec(spec))
	c.member("reason", p.Reason)
	c.setActor("--by", "by")
	return c.format()
}
