// Package evidencefile exports an investigation as a file that contains the failed step, its inputs
// and its errors, so that a developer can rerun the handler locally.
//
// The inputs of a step never change after it has run, so the file contains the stored ones. They
// are redacted by the rules for snapshots, at the places that the documents have in a snapshot. The
// file lists the redacted values, which differ from those that the handler received.
package evidencefile

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/redact"
)

// A Service exports investigations. It is safe for concurrent use.
type Service struct {
	db     *postgres.DB
	engine *engine.Engine
}

// New returns a service on a database with a current schema.
func New(db *postgres.DB, e *engine.Engine) *Service { return &Service{db: db, engine: e} }

// Export returns an investigation as a file. The step is the currently failed one, or the one for
// which the investigation was opened. It returns NotFound if the investigation does not exist.
func (s *Service) Export(ctx context.Context, entry tasker.ID) (tasker.EvidenceFile, error) {
	e, err := s.db.Entry(ctx, entry)
	if err != nil {
		return tasker.EvidenceFile{}, err
	}
	task, err := s.db.Task(ctx, e.TaskUUID)
	if err != nil {
		return tasker.EvidenceFile{}, err
	}
	f := newFile(e, task)
	if f.ExportedAt, err = s.db.Now(ctx); err != nil {
		return tasker.EvidenceFile{}, err
	}
	step := e.StepUUID
	if e.FailedStep != nil {
		step = &e.FailedStep.UUID
	}
	if step == nil {
		return f, nil
	}
	err = s.addStep(ctx, &f, e, capturedInputs{task: task, step: *step})
	return f, err
}

// newFile returns the file without the step and its inputs.
func newFile(e tasker.Entry, t tasker.Task) tasker.EvidenceFile {
	f := tasker.EvidenceFile{
		Format: tasker.EvidenceFormat, Version: tasker.EvidenceVersion,
		Investigation: tasker.EvidenceEntry{
			EntryUUID: e.UUID, Reason: e.Reason, DetailCode: e.DetailCode, DetectedBy: e.DetectedBy, At: e.At.UTC(),
			Status: e.ResolutionStatus,
		},
		Task: tasker.EvidenceTask{
			TaskUUID: t.UUID, Namespace: t.Namespace, Name: t.Name, Version: t.Version, State: t.State,
			CorrelationID: t.CorrelationID, CreatedAt: t.CreatedAt.UTC(),
		},
		Redacted: []string{}, Omitted: []tasker.EvidenceOmission{}, Attempts: []tasker.EvidenceAttempt{}, History: []tasker.EvidenceChange{},
		MoreHistory: e.MoreHistory,
	}
	for _, c := range e.History {
		f.History = append(f.History, tasker.EvidenceChange{
			At: c.At.UTC(), Actor: c.Actor, Event: c.Event, Notes: c.Notes, Metadata: c.Metadata,
		})
	}
	return f
}

// capturedInputs contains the inputs that a step received.
type capturedInputs struct {
	task      tasker.Task
	step      tasker.ID
	documents []document
}

// document is a part of the input, with its place in a snapshot.
type document struct {
	at    []string // path in the input
	place []any    // path in a snapshot: keys and indexes
	doc   json.RawMessage
}

func (s *Service) addStep(ctx context.Context, f *tasker.EvidenceFile, e tasker.Entry, g capturedInputs) error {
	in, err := s.db.FailedInput(ctx, e, g.step)
	if err != nil {
		return err
	}
	template, place, err := s.engine.StepTemplate(ctx, g.task.TemplateUUID, in.Name)
	if err != nil {
		return err
	}
	f.Step, f.Error = &in.EvidenceStep, in.Error
	f.Input = &tasker.EvidenceInput{
		Attempt: max(in.Attempts, 1), DependencyResults: map[string]json.RawMessage{}, Item: in.Item, Index: in.Index,
	}
	if len(in.Tries) > 0 {
		f.Attempts, f.Input.Attempt = in.Tries, in.Tries[0].Attempt
	}
	taskContext := g.task.Context
	if in.Context != nil {
		taskContext = in.Context
	}
	g.add([]string{"context"}, []any{"task", "context"}, taskContext)
	g.add([]string{"initialization"}, []any{"template", "steps", place, "handler", "initialization"},
		template.Handler.Initialization)
	g.add([]string{"item"}, []any{"steps", in.Place, "item", "value"}, in.Item)
	for _, p := range in.Parents {
		at := []string{"dependency_results", p.Name}
		f.Input.DependencyResults[p.Name] = json.RawMessage("null")
		if p.Large {
			f.Omitted = append(f.Omitted, tasker.EvidenceOmission{
				Place: formatPointer(at...), Bytes: p.Bytes, ReadAt: tasker.ResultPath(g.task.UUID, p.StepUUID.String()),
			})
			continue
		}
		g.add(at, []any{"steps", p.Place, "results", "result"}, p.Result)
	}
	return s.redact(ctx, f, g)
}

// add adds a document to the inputs unless it is empty or null.
func (g *capturedInputs) add(at []string, place []any, doc json.RawMessage) {
	if len(doc) > 0 && string(doc) != "null" {
		g.documents = append(g.documents, document{at: at, place: place, doc: doc})
	}
}

// redact adds the redacted documents to the file.
func (s *Service) redact(ctx context.Context, f *tasker.EvidenceFile, g capturedInputs) error {
	whole := make([]string, len(g.documents))
	for i, d := range g.documents {
		whole[i] = string(wrapValue(d.place, d.doc))
	}
	shown, err := s.db.RedactSnapshots(ctx, whole)
	if err != nil {
		return err
	}
	for i, d := range g.documents {
		doc, ok := findValue(shown[i], d.place)
		if !ok {
			doc = hidden
		}
		f.Redacted = append(f.Redacted, findDifferences(d.doc, doc, formatPointer(d.at...))...)
		switch d.at[0] {
		case "context":
			f.Input.Context = doc
		case "initialization":
			f.Input.Initialization = doc
		case "item":
			f.Input.Item = doc
		default:
			f.Input.DependencyResults[d.at[1]] = doc
		}
	}
	return nil
}

var hidden = json.RawMessage(strconv.Quote(redact.Hidden))

// wrapValue returns a document that contains only doc, at a place.
func wrapValue(place []any, doc json.RawMessage) json.RawMessage {
	for _, p := range slices.Backward(place) {
		switch p := p.(type) {
		case string:
			doc = slices.Concat([]byte(`{`+strconv.Quote(p)+`:`), doc, []byte(`}`))
		case int:
			doc = slices.Concat([]byte(`[`+strings.Repeat("{},", p)), doc, []byte(`]`))
		}
	}
	return doc
}

// findValue returns the value at a place in a document, or false if there is none.
func findValue(doc json.RawMessage, place []any) (json.RawMessage, bool) {
	for _, p := range place {
		switch p := p.(type) {
		case string:
			var m map[string]json.RawMessage
			if json.Unmarshal(doc, &m) != nil || m[p] == nil {
				return nil, false
			}
			doc = m[p]
		case int:
			var l []json.RawMessage
			if json.Unmarshal(doc, &l) != nil || len(l) <= p {
				return nil, false
			}
			doc = l[p]
		}
	}
	return doc, true
}
