package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
)

// checkBounds returns a Conflict if a template that was just stored exceeds a bound. Concurrent
// registrations wait for each other.
func (tx *Tx) checkBounds(ctx context.Context, t tasker.Template, id tasker.ID, most tasker.Bounds) error {
	most = most.Complete()
	if _, err := tx.Exec(ctx, statement("lockTemplates")); err != nil {
		return fmt.Errorf("wait for other templates: %w", err)
	}
	type counts struct {
		Namespaces, Templates, Versions int
		NewNamespace, NewTemplate       bool
	}
	have, err := queryOne[counts](ctx, tx, statement("countTemplates"), t.Namespace, t.Name, id, most.Namespaces, most.Templates, most.Versions)
	switch {
	case err != nil:
		return fmt.Errorf("count templates: %w", err)
	case have.NewNamespace && have.Namespaces > most.Namespaces:
		return tasker.Errorf(tasker.Conflict,
			"namespace %q exceeds the limit (limits.namespaces = %d): use an existing namespace, or raise the limit",
			t.Namespace, most.Namespaces)
	case have.NewTemplate && have.Templates > most.Templates:
		return tasker.Errorf(tasker.Conflict, "template %q exceeds the limit of namespace %q (limits.templates = "+
			"%d): register it as a version of an existing template, or raise the limit",
			t.Name, t.Namespace, most.Templates)
	case have.Versions > most.Versions:
		return tasker.Errorf(tasker.Conflict, "version %s exceeds the limit of template %s/%s "+
			"(limits.template_versions = %d): use another template name, or raise the limit",
			t.Version, t.Namespace, t.Name, most.Versions)
	}
	return tx.checkHandlerQuota(ctx, t, most.Handlers)
}

func (tx *Tx) checkHandlerQuota(ctx context.Context, t tasker.Template, most int) error {
	var names []string
	for _, s := range t.Steps {
		if s.Handler.Callable != "" {
			names = append(names, s.Handler.Callable)
		}
		if undo, ok := s.Undo(); ok {
			names = append(names, undo.Handler.Callable)
		}
	}
	added, err := queryValue[int](ctx, tx, statement("addHandlers"), t.Namespace, names)
	if err != nil || added == 0 {
		return wrapError(err, "store the handlers of a template")
	}
	have, err := queryValue[int](ctx, tx, statement("countHandlers"), t.Namespace, most)
	if err == nil && have > most { // templates may have stopped using some of them
		if _, err = tx.Exec(ctx, statement("forgetHandlers"), t.Namespace); err == nil {
			have, err = queryValue[int](ctx, tx, statement("countHandlers"), t.Namespace, most)
		}
	}
	if err != nil || have <= most {
		return wrapError(err, "count handlers")
	}
	return tasker.Errorf(tasker.Conflict, "the template's handlers exceed the limit of namespace %q "+
		"(limits.handlers = %d): use existing handlers with different "+
		"initialization, or raise the limit", t.Namespace, most)
}
