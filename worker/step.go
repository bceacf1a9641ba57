package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// A Step is what a handler sees of the step that it executes: the task's context
// as Input, and everything of [Call].
type Step[In any] struct {
	*Call

	Input In
}

// A Call is one attempt of one step. Among its fields are Attempt and
// MaxAttempts, the ids, CorrelationID, and Context, the input as it was sent.
// The time by which it must be done is the deadline of the handler's context.
type Call struct {
	tasker.Assignment

	// Log marks every line with the task, the step, the attempt and the
	// correlation id.
	Log *slog.Logger

	// Metadata is kept beside the result, for people; later steps do not see it. It
	// is an empty map when the handler is called.
	Metadata map[string]any

	ctx     context.Context //nolint:containedctx // the handler's, for Dependency
	backend Backend
	fetched fetched
	saved   saved
	save    func(ctx context.Context, value json.RawMessage) error // nil: there is no backend
}

func newCall(ctx context.Context, w *Worker, a tasker.Assignment) *Call {
	c := &Call{Assignment: a, Metadata: map[string]any{}, ctx: ctx, backend: w.backend}
	c.Log = slog.New(stepHandler{w.log.Handler(), &c.Assignment})
	return c
}

// A stepHandler marks lines with the step that they are about. It spells the mark
// when there is a line: most steps log nothing.
type stepHandler struct {
	slog.Handler
	about *tasker.Assignment
}

func (h stepHandler) marked() slog.Handler {
	return h.Handler.WithAttrs([]slog.Attr{
		slog.String("task", h.about.TaskUUID.String()), slog.String("step", h.about.StepUUID.String()),
		slog.String("step_name", h.about.Name), slog.Int("attempt", h.about.Attempt), slog.String("correlation_id", h.about.CorrelationID),
	})
}

func (h stepHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.marked().Handle(ctx, r)
}

func (h stepHandler) WithAttrs(attrs []slog.Attr) slog.Handler { return h.marked().WithAttrs(attrs) }

func (h stepHandler) WithGroup(name string) slog.Handler { return h.marked().WithGroup(name) }

// Init decodes what the template gives the handler for every task: its
// initialization. Nothing given leaves into as it is. Its errors are permanent.
func (c *Call) Init(into any) error {
	if err := decode(c.Initialization, into); err != nil {
		return invalidInput("initialization of step %s: %w", c.Name, err)
	}
	return nil
}

// Element decodes the element of the list that a step is for, or the elements: of an item of a
// step of type map. Index has its place in the list. Its errors are permanent.
func (c *Call) Element(into any) error {
	if len(c.Item) == 0 {
		return invalidInput("step %s is not for an element of a list", c.Name)
	}
	if err := json.Unmarshal(c.Item, into); err != nil {
		return invalidInput("element of step %s: %w", c.Name, err)
	}
	return nil
}

// metadata returns the metadata to report. It never fails a result: what cannot be stored
// is replaced by a note that says so.
func (c *Call) metadata() json.RawMessage {
	if len(c.Metadata) == 0 {
		return nil
	}
	doc, err := encode(c.Metadata)
	if err != nil {
		c.Log.Warn("metadata dropped: it cannot be encoded", "err", err)
		return nil
	}
	return payload.CleanJSON(doc, payload.Limits{})
}

func invalidInput(format string, args ...any) error {
	return &Error{Type: InvalidInput, Permanent: true, Err: fmt.Errorf(format, args...)}
}
