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

// explainTime limits how long a page waits for an explanation.
const explainTime = time.Second

// findCondition returns the condition that keeps an object from progressing. It returns nil if the
// object is not found or the caller lacks the permission.
func (s *server) findCondition(req *request, id tasker.ID) *tasker.Condition {
	e, err := s.runExplain(req.withPermission(access.ReadTasks), "tasker-ctl explain "+id.String(), func(ctx context.Context) (tasker.Explanation, error) {
		return s.Explain.Explain(ctx, id)
	})
	switch tasker.CodeOf(err) {
	case tasker.NotFound, tasker.Forbidden: // the page itself needs another permission
		return nil
	default:
		req.fail(err)
		return &e.Condition
	}
}

// stepWhy is a step and the explanation of its state.
type stepWhy struct {
	Step stepAnchor
	Why  *tasker.Condition
}

// findStepWhy explains the step selected with ?why=, if there is one.
func (s *server) findStepWhy(req *request, steps []tasker.Step) *stepWhy {
	id := req.query().readID("why")
	if req.err() != nil || id == nil {
		return nil
	}
	i := slices.IndexFunc(steps, func(st tasker.Step) bool { return st.UUID == *id })
	if i < 0 {
		req.fail(tasker.Errorf(tasker.NotFound, "the task has no step %s", id))
		return nil
	}
	why := s.findCondition(req, *id)
	if why == nil {
		return nil
	}
	return &stepWhy{stepAnchor{Name: steps[i].Name, Href: stepHref(steps[i])}, why}
}

// runExplain calls ask with a timeout, because a page is useful without the explanation. If the
// timeout is exceeded, the returned message suggests a command instead.
func (s *server) runExplain(req *request, command string, ask func(context.Context) (tasker.Explanation, error)) (tasker.Explanation, error) {
	within := cmp.Or(s.PartTimeout, explainTime)
	ctx, cancel := context.WithTimeout(req.Context(), within)
	defer cancel()
	e, err := ask(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && req.Context().Err() == nil {
		e.Condition = tasker.Condition{Message: fmt.Sprintf("The database did not answer within %s. Run %s.", within, command)}
		return e, nil
	}
	return e, err
}

func queuePath(namespace, handler string) string {
	return Root + "/queues/" + url.PathEscape(namespace) + "/" + url.PathEscape(handler)
}

type waitingPage struct {
	Namespace, Handler string
	Why                *tasker.Condition
	Facts              []tasker.ExplainedFact
	Hold               string // form to hold it
}

// showQueueExplanation explains why steps wait in a queue.
func (s *server) showQueueExplanation(req *request) (*view, error) {
	p := waitingPage{Namespace: req.PathValue("namespace"), Handler: req.PathValue("handler")}
	if err := req.caller.RequirePermission(access.ReadWorkers, p.Namespace); err != nil {
		return nil, err
	}
	e, err := s.runExplain(req, fmt.Sprintf("tasker-ctl explain queue %s %s", p.Namespace, p.Handler), func(ctx context.Context) (tasker.Explanation, error) {
		return s.Explain.ExplainQueue(ctx, p.Namespace, p.Handler)
	})
	if err != nil {
		return nil, err
	}
	p.Why, p.Facts, p.Hold = &e.Condition, e.Facts, s.buildHoldLink(req, p.Namespace, "namespace", p.Namespace,
		"handler", p.Handler)

	return &view{page: "waiting", title: "Queue " + p.Namespace + "/" + p.Handler, nav: "Workers", live: true, body: p}, nil
}
