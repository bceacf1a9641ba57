package web

import (
	"fmt"
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (s *server) workerRoutes() []route {
	return []route{
		{http.MethodGet, "/workers", s.workers},
		{http.MethodGet, "/workers/{id}/drain", s.askDrain},
		{http.MethodPost, "/workers/{id}/drain", s.drain},
	}
}

// workersPage is who executes steps, and what waits for them.
type workersPage struct {
	Workers    []tasker.Worker
	Pager      pager
	Queues     []tasker.Queue
	MoreQueues bool // than are shown
	Unserved   int  // of those shown
}

// fewHandlers is how many handlers of a worker are shown without being asked for.
const fewHandlers = 4

// FewHandlers is how many handlers are shown at once.
func (workersPage) FewHandlers() int { return fewHandlers }

func (s *server) workers(x *exchange) (*view, error) {
	offset, err := x.number("offset", 0, 0, maxOffset)
	if err != nil {
		return nil, err
	}
	list, more, err := s.DB.Workers(x.Context(), pageRows, offset)
	if err != nil {
		return nil, err
	}
	queues, err := s.DB.Queues(x.Context(), "", pageRows+1)
	if err != nil {
		return nil, err
	}
	p := workersPage{Workers: list, Pager: pagerOf(x, offset, pageRows, len(list), more), Queues: queues, MoreQueues: len(queues) > pageRows}
	p.Queues = queues[:min(len(queues), pageRows)]
	p.Unserved = unserved(p.Queues)
	return &view{page: "workers", title: "Workers", nav: "Workers", live: true, body: p}, nil
}

// unserved counts the queues that no live worker takes from.
func unserved(queues []tasker.Queue) (n int) {
	for _, q := range queues {
		if q.Unserved {
			n++
		}
	}
	return n
}

// drainPage is the form that has a worker get no new work.
type drainPage struct {
	tasker.Worker
	Silent    bool // it has not been heard of for so long that it may be dead
	Problem   string
	Elsewhere command
}

func (s *server) askDrain(x *exchange) (*view, error) {
	if err := s.mayChange(); err != nil {
		return nil, err
	}
	return s.drainForm(x, nil)
}

// drainForm shows the form, with why it was refused.
func (s *server) drainForm(x *exchange, refused error) (*view, error) {
	id, err := x.id("id")
	if err != nil {
		return nil, err
	}
	w, err := s.DB.WorkerWithHealth(x.Context(), id)
	if err != nil {
		return nil, err
	}
	p := drainPage{
		Worker: w, Silent: w.Health == tasker.WorkerStale || w.Health == tasker.WorkerGone,
		Elsewhere: command{
			CLI:  commandLine([]string{"tasker-ctl", "--server", x.origin(), "worker", "drain", id.String()}),
			Curl: commandLine([]string{"curl", "--fail-with-body", "-X", http.MethodPost, x.origin() + "/v1/workers/" + id.String() + "/drain"}),
		},
	}
	v := &view{page: "drain", title: "Drain worker " + w.Name, nav: "Workers"}
	if refused != nil {
		p.Problem, v.status = messageOf(refused), apiv1.Status(tasker.CodeOf(refused))
	}
	v.body = p
	return v, nil
}

func (s *server) drain(x *exchange) (*view, error) {
	id, err := x.id("id")
	if err != nil {
		return nil, err
	}
	w, err := s.DB.WorkerWithHealth(x.Context(), id)
	if err != nil {
		return nil, err
	}
	err = s.Engine.DrainWorker(x.Context(), id)
	if tasker.CodeOf(err) == tasker.NotFound {
		err = tasker.Errorf(tasker.Conflict, "worker %s has left: there is nothing to drain", id)
		return s.drainForm(x, err)
	}
	if err != nil {
		return nil, err
	}
	return &view{next: Root + "/workers", note: fmt.Sprintf("Worker %s gets no new work. It finishes what it holds and leaves.", w.Name)}, nil
}
