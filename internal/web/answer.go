package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

// Limits of the form for a JSON Schema. If a schema exceeds them, the answer is typed as JSON.
const (
	maxFields  = 50
	maxButtons = 4
	maxOneLine = 200 // characters
	fieldName  = "f."
)

// The kinds of fields.
const (
	textField   = "text"
	areaField   = "area"
	numberField = "number"
	dateField   = "date"
	selectField = "select"
	jsonField   = "json"
	buttonField = "buttons"
)

// formField is the form field for a property of an answer.
type formField struct {
	Name     string // of the form field
	Property string
	Kind     string
	Label    string
	Hint     string
	Value    string // as typed or default
	Problem  string
	Whole    bool // an integer
	Required bool
	Options  []answerOption
	Most     int // maximum characters; 0 for any
}

// answerOption is an allowed value of a field.
type answerOption struct {
	Value string // JSON
	Label string
	Here  bool // selected
}

// formSchema is the supported part of a JSON Schema.
type formSchema struct {
	Type        json.RawMessage            `json:"type"`
	Title       string                     `json:"title"`
	Description string                     `json:"description"`
	Default     json.RawMessage            `json:"default"`
	Enum        []json.RawMessage          `json:"enum"`
	Format      string                     `json:"format"`
	MaxLength   int                        `json:"maxLength"`
	Required    []string                   `json:"required"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Ref         string                     `json:"$ref"`
}

// fieldKind returns the only type other than null that the schema allows, or "" if it does not
// allow exactly one.
func (s formSchema) fieldKind() string {
	var one string
	if json.Unmarshal(s.Type, &one) == nil {
		return one
	}
	var list []string
	_ = json.Unmarshal(s.Type, &list) // otherwise any type
	list = slices.DeleteFunc(list, func(t string) bool { return t == "null" })
	if len(list) == 1 {
		return list[0]
	}
	return ""
}

// parseFields returns the form fields for a schema. It returns none if the answer must be typed as
// JSON. Required properties come first, in the order of the schema; the others follow in
// alphabetical order.
func parseFields(doc json.RawMessage) (fields []formField, whole formSchema) {
	if json.Unmarshal(doc, &whole) != nil || whole.fieldKind() != "object" || whole.Ref != "" || len(whole.Properties) == 0 || len(whole.Properties) > maxFields {
		return nil, whole
	}
	names := make([]string, 0, len(whole.Properties))
	for name := range whole.Properties {
		if !slices.Contains(whole.Required, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	required := slices.DeleteFunc(slices.Clone(whole.Required), func(n string) bool { return whole.Properties[n] == nil })
	buttons := false
	for i, name := range append(required, names...) {
		var s formSchema
		if json.Unmarshal(whole.Properties[name], &s) != nil { // true or an unsupported type
			s = formSchema{}
		}
		f := newFormField(name, s)
		if f.Required = i < len(required); f.Required && !buttons && f.Kind == selectField && len(f.Options) <= maxButtons && s.Default == nil {
			f.Kind, buttons = buttonField, true
		}
		fields = append(fields, f)
	}
	return fields, whole
}

func newFormField(name string, s formSchema) formField {
	f := formField{Name: fieldName + name, Property: name, Label: cmp.Or(s.Title, name), Hint: s.Description, Most: s.MaxLength, Kind: jsonField}
	if json.Unmarshal(s.Default, &f.Value) != nil {
		f.Value = string(s.Default)
	}
	switch kind := s.fieldKind(); {
	case s.Ref != "":
	case len(s.Enum) > 0:
		f.setOptions(s.Enum, s.Default)
	case kind == "boolean":
		f.setOptions([]json.RawMessage{[]byte("true"), []byte("false")}, s.Default)
		f.Options[0].Label, f.Options[1].Label = "Yes", "No"
	case kind == "string" && s.Format == "date":
		f.Kind = dateField
	case kind == "string" && s.MaxLength > maxOneLine:
		f.Kind = areaField
	case kind == "string":
		f.Kind = textField
	case kind == "integer" || kind == "number":
		f.Kind, f.Whole = numberField, kind == "integer"
	}
	return f
}

func (f *formField) setOptions(values []json.RawMessage, standard json.RawMessage) {
	f.Kind, f.Value = selectField, ""
	for _, v := range values {
		o := answerOption{Value: string(v), Label: string(v), Here: standard != nil && string(v) == string(standard)}
		var text string
		if json.Unmarshal(v, &text) == nil {
			o.Label = toSentence(text)
		}
		if o.Here {
			f.Value = o.Value
		}
		f.Options = append(f.Options, o)
	}
}

// Labelled returns the label of a button, which names the field if the option is only Yes or No.
func (f formField) Labelled(o answerOption) string {
	if o.Label == "Yes" || o.Label == "No" {
		return f.Label + ": " + strings.ToLower(o.Label)
	}
	return o.Label
}

func (f *formField) fill(req *request) {
	f.Value = req.rawField(f.Name)
	for i := range f.Options {
		f.Options[i].Here = f.Options[i].Value == f.Value
	}
}

// toJSON returns the value of a field as JSON, or nil if it is empty. It encodes an invalid value
// as a string, which the schema rejects.
func (f formField) toJSON() json.RawMessage {
	value := f.Value
	if f.Kind != textField && f.Kind != areaField {
		value = strings.TrimSpace(value)
	}
	if value == "" {
		return nil
	}
	switch f.Kind {
	case textField, areaField, dateField:
	default:
		if json.Valid([]byte(value)) {
			return json.RawMessage(value)
		}
	}
	doc, err := json.Marshal(strings.ToValidUTF8(value, "\uFFFD"))
	if err != nil { // unreachable
		return nil
	}
	return doc
}

// answerSheet is the form for an answer, with the submitted values.
type answerSheet struct {
	Fields []formField
	About  formSchema
	Result string   // answer typed as JSON
	Others []string // errors that belong to no field
}

// newAnswerSheet returns the form for a schema, with the submitted values.
func newAnswerSheet(req *request, schema json.RawMessage) answerSheet {
	p := answerSheet{Result: "{\n  \n}"}
	p.Fields, p.About = parseFields(schema)
	if req.Method == http.MethodPost {
		p.Result = req.rawField("result")
		for i := range p.Fields {
			p.Fields[i].fill(req)
		}
	}
	return p
}

// Buttons returns the field whose options are shown as buttons, or nil.
func (p answerSheet) Buttons() *formField {
	if i := slices.IndexFunc(p.Fields, func(f formField) bool { return f.Kind == buttonField }); i >= 0 {
		return &p.Fields[i]
	}
	return nil
}

// encodeAnswer returns the submitted answer as JSON.
func (p answerSheet) encodeAnswer() (json.RawMessage, error) {
	if len(p.Fields) == 0 {
		doc := parseTypedJSON(p.Result)
		if len(doc) == 0 {
			return nil, tasker.Errorf(tasker.Invalid,
				"the answer is missing: dependent steps receive it; null is allowed")
		}
		return doc, nil
	}
	members := map[string]json.RawMessage{}
	for _, f := range p.Fields {
		if v := f.toJSON(); v != nil {
			members[f.Property] = v
		}
	}
	doc, err := json.Marshal(members)
	if err != nil { // unreachable: each value is JSON
		return nil, tasker.Errorf(tasker.Invalid, "invalid answer: %v", err)
	}
	return doc, nil
}

// attachErrors attaches the faults in err to the fields that they are about.
func (p *answerSheet) attachErrors(err error) {
	var e *tasker.Error
	if !errors.As(err, &e) {
		return
	}
	list, _ := e.Details.([]tasker.Fault)
	for _, fault := range list {
		if p.markMissing(fault) {
			continue
		}
		i := slices.IndexFunc(p.Fields, func(f formField) bool {
			return fault.Path == f.Property || strings.HasPrefix(fault.Path, f.Property+".") || strings.HasPrefix(fault.Path, f.Property+"[")
		})
		if i < 0 {
			p.Others = append(p.Others, fault.String())
			continue
		}
		p.Fields[i].Problem = toSentence(fault.Message)
	}
}

// markMissing attaches a fault about missing properties to their fields. It reports whether it
// found such a field.
func (p *answerSheet) markMissing(fault tasker.Fault) (found bool) {
	if fault.Path != "" || !strings.HasPrefix(fault.Message, "is missing") {
		return false
	}
	for i := range p.Fields {
		if strings.Contains(fault.Message, strconv.Quote(p.Fields[i].Property)) {
			p.Fields[i].Problem, found = "Is missing", true
		}
	}
	return found
}

// answerForm is the form to answer a human step.
type answerForm struct {
	humanForm
	answerSheet
	Context document
	Parents []parentResult
}

func (s *server) newAnswerForm(req *request) *answerForm {
	h := s.newHumanForm(req, form{page: "answer", title: "Answer step", Button: "Answer"})
	p := &answerForm{humanForm: h, answerSheet: newAnswerSheet(req, h.Form)}
	steps := load(req, s.DB.Steps, h.Task.UUID)
	p.Context, p.Parents = newDocument("Context", h.Task.Context, maxShown, ""), collectParentResults(steps, h.Step)
	doc, err := p.encodeAnswer()
	if err != nil || req.Method == http.MethodGet {
		doc = nil
	}
	c := p.newStepCall(endpoint.CompleteExternalStep, "answer-step")
	c.member("success", true)
	c.set("--result", "result", validJSONOr(doc, `{"approved":true}`))
	c.setActor("--source", "source")
	p.Command = c.format()
	return p
}

func (p *answerForm) do(req *request) (*view, error) {
	doc, err := p.encodeAnswer()
	if err != nil {
		return nil, err
	}
	if _, err := p.Engine.CompleteExternal(req.Context(), p.Task.UUID, p.Step.UUID, tasker.Outcome{Success: true, Result: doc}, p.Actor); err != nil {
		if tasker.CodeOf(err) != tasker.Invalid {
			return nil, err
		}
		p.attachErrors(err)
		p.Problem = errorMessage(err)
		return p.view(p, apiv1.Status(tasker.Invalid)), nil
	}
	return &view{next: p.Back, note: "Step " + p.Step.Name + " was answered."}, nil
}
