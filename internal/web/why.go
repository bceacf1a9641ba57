package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// explainTime bounds how long a page waits to say why something is where it is.
const explainTime = time.Second

// A whyLine is why something is where it is. Without a turn its sentence says why that is
// not known.
type whyLine struct{ tasker.Condition }

// why explains a task, a step, an investigation, a case or an operation on its page: nil for whoever may not ask.
func (s *server) why(req *request, id tasker.ID) (*whyLine, error) {
	e, err := s.explained(req.within(access.ReadTasks), "tasker-ctl explain "+id.String(), func(ctx context.Context) (tasker.Explanation, error) {
		return s.Explain.Explain(ctx, id)
	})
	switch tasker.CodeOf(err) {
	case tasker.NotFound, tasker.Forbidden: // the page itself needs another permission
		return nil, nil
	default:
		return &whyLine{e.Condition}, err
	}
}

// A stepWhy is why one step of a task is where it is.
type stepWhy struct {
	Step stepAnchor
	Why  *whyLine
}

// whyPart is the place on the page of a task that says why a step is where it is.
const whyPart = "why-step"

// whyStep explains the step that ?why= names, which is one of the task: nil when none is named.
func (s *server) whyStep(req *request, steps []tasker.Step) (*stepWhy, error) {
	q := req.query()
	id := q.id("why")
	if q.err != nil || id == nil {
		return nil, q.err
	}
	i := slices.IndexFunc(steps, func(st tasker.Step) bool { return st.UUID == *id })
	if i < 0 {
		return nil, tasker.Errorf(tasker.NotFound, "the task has no step %s", id)
	}
	why, err := s.why(req, *id)
	if why == nil || err != nil {
		return nil, err
	}
	return &stepWhy{stepAnchor{Name: steps[i].Name, Href: hrefOfStep(steps[i])}, why}, nil
}

// WhyPath is where the page of the task says why the step is where it is; empty of a step that has
// come to its end.
func (r stepRow) WhyPath() string {
	if r.State.Done() || r.State == tasker.StepCancelled {
		return ""
	}
	return taskPath(r.TaskUUID) + "?why=" + r.UUID.String() + "#" + whyPart
}

// explained asks for an explanation, for a short time only: the rest of the page is there
// without it. command says it later.
func (s *server) explained(req *request, command string, ask func(context.Context) (tasker.Explanation, error)) (tasker.Explanation, error) {
	within := cmp.Or(s.PartTimeout, explainTime)
	ctx, cancel := context.WithTimeout(req.Context(), within)
	defer cancel()
	e, err := ask(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && req.Context().Err() == nil {
		e.Condition = tasker.Condition{Message: fmt.Sprintf("The database did not say within %s. Ask again with %s.", within, command)}
		return e, nil
	}
	return e, err
}

// queuePath is the page of what waits for workers with a handler in a namespace.
func queuePath(namespace, handler string) string {
	return Root + "/queues/" + url.PathEscape(namespace) + "/" + url.PathEscape(handler)
}

// A waitingPage is one queue.
type waitingPage struct {
	Namespace, Handler string
	Why                *whyLine
	Facts              []queueFact
	Hold               string // the form that holds it
}

// A queueFact is what else is known of a queue.
type queueFact struct{ Title, Value string }

// onQueue says why steps wait in a queue.
func (s *server) onQueue(req *request) (*view, error) {
	p := waitingPage{Namespace: req.PathValue("namespace"), Handler: req.PathValue("handler")}
	if err := req.caller.MayUse(access.ReadWorkers, p.Namespace); err != nil {
		return nil, err
	}
	e, err := s.explained(req, fmt.Sprintf("tasker-ctl explain queue %s %s", p.Namespace, p.Handler), func(ctx context.Context) (tasker.Explanation, error) {
		return s.Explain.Queue(ctx, p.Namespace, p.Handler)
	})
	if err != nil {
		return nil, err
	}
	p.Why, p.Hold = &whyLine{e.Condition}, s.holdLink(req, p.Namespace, "namespace", p.Namespace, "handler", p.Handler)
	for _, f := range e.Facts {
		p.Facts = append(p.Facts, queueFact{sentence(f.Name), f.Value})
	}
	return &view{page: "waiting", title: "Queue " + p.Namespace + "/" + p.Handler, nav: "Workers", live: true, body: p}, nil
}
