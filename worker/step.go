package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// Step is the argument of a handler: the context of the task as Input, and the [Call].
type Step[In any] struct {
	*Call

	Input In
}

// Call is one attempt of a step. Its fields include Attempt and MaxAttempts, the ids,
// CorrelationID, and Context, the raw input. The deadline of the attempt is that of the handler's
// context.
type Call struct {
	tasker.Assignment

	Log *slog.Logger // adds the task, step, attempt and correlation id to each record

	Metadata map[string]any // stored with the result for people; not passed to dependents. Initially empty.

	ctx     context.Context //nolint:containedctx // the handler's, for Dependency
	backend Backend
	fetched documentCache
	saved   checkpointCache
	save    func(ctx context.Context, value json.RawMessage) error // nil without a backend
}

func newCall(ctx context.Context, w *Worker, a tasker.Assignment) *Call {
	c := &Call{Assignment: a, Metadata: map[string]any{}, ctx: ctx, backend: w.backend}
	c.Log = slog.New(stepHandler{w.log.Handler(), &c.Assignment})
	return c
}

// stepHandler adds the attributes of a step lazily, because most steps log nothing.
type stepHandler struct {
	slog.Handler
	assignment *tasker.Assignment
}

func (h stepHandler) withStepAttrs() slog.Handler {
	return h.Handler.WithAttrs([]slog.Attr{
		slog.String("task", h.assignment.TaskUUID.String()), slog.String("step", h.assignment.StepUUID.String()),
		slog.String("step_name", h.assignment.Name), slog.Int("attempt", h.assignment.Attempt), slog.String("correlation_id", h.assignment.CorrelationID),
	})
}

func (h stepHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.withStepAttrs().Handle(ctx, r)
}

func (h stepHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.withStepAttrs().WithAttrs(attrs)
}

func (h stepHandler) WithGroup(name string) slog.Handler { return h.withStepAttrs().WithGroup(name) }

// Init decodes the initialization that the template defines for the step. If it defines none, into
// is unchanged. Errors are permanent.
func (c *Call) Init(into any) error {
	if err := decode(c.Initialization, into); err != nil {
		return newInvalidInputError("initialization of step %s: %w", c.Name, err)
	}
	return nil
}

// Element decodes the element, or the elements, of an item of a map step. Index is its position
// in the list. Errors are permanent.
func (c *Call) Element(into any) error {
	if len(c.Item) == 0 {
		return newInvalidInputError("step %s does not run for a list element", c.Name)
	}
	if err := json.Unmarshal(c.Item, into); err != nil {
		return newInvalidInputError("element of step %s: %w", c.Name, err)
	}
	return nil
}

// attemptMetadata returns the metadata to report as JSON. Metadata that cannot be stored is dropped or
// replaced with a note; it never makes the step fail.
func (c *Call) attemptMetadata() json.RawMessage {
	if len(c.Metadata) == 0 {
		return nil
	}
	doc, err := encode(c.Metadata)
	if err != nil {
		c.Log.Warn("dropped metadata that cannot be encoded", "err", err)
		return nil
	}
	return payload.CleanJSON(doc, payload.Limits{})
}

func newInvalidInputError(format string, args ...any) error {
	return &Error{Type: InvalidInput, Permanent: true, Err: fmt.Errorf(format, args...)}
}
