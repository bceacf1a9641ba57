package overload

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/worker"
)

// Parameters of the steady load.
const (
	holders     = 40                    // workers that each execute a long step and send a heartbeat per second
	createEvery = 50 * time.Millisecond // interval of created tasks
	lookEvery   = 200 * time.Millisecond
	stepTime    = 50 * time.Millisecond
	floodTime   = 100 * time.Millisecond // duration of a step of the flood
	floodAtOnce = 20
)

// A kind is the purpose of a request.
type kind string

const (
	heartbeats kind = "heartbeat"
	reports    kind = "report of a result"
	creates    kind = "create by another caller"
	operations kind = "operator: cancel a task"
	reads      kind = "operator: investigation queue"
)

// A sample is a measured request.
type sample struct {
	kind   kind
	at     time.Time // start
	took   time.Duration
	failed bool
}

// A steady is the steady load with its measurements.
type steady struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	list   []sample
}

func (st *steady) note(k kind, at time.Time, failed bool) {
	took := time.Since(at)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.list = append(st.list, sample{k, at, took, failed})
}

func (st *steady) stop() {
	st.cancel()
	st.done.Wait()
}

// A timed transport measures heartbeats and reports of workers.
type timed struct {
	http.RoundTripper
	of *steady
}

// RoundTrip sends a request.
func (t timed) RoundTrip(r *http.Request) (*http.Response, error) {
	at := time.Now()
	resp, err := t.RoundTripper.RoundTrip(r)
	failed := err != nil || resp.StatusCode >= http.StatusMultipleChoices
	switch {
	case strings.HasSuffix(r.URL.Path, "/heartbeat"):
		t.of.note(heartbeats, at, failed)
	case strings.HasSuffix(r.URL.Path, "/results"):
		t.of.note(reports, at, failed)
	}
	return resp, err
}

// startSteady starts workers and callers, which run until stop.
func (s *server) startSteady(ctx context.Context) (*steady, error) {
	ctx, cancel := context.WithCancel(ctx)
	st := &steady{cancel: cancel}
	fleet, err := s.key(ctx, "fleet", "worker@*")
	if err != nil {
		return nil, err
	}
	creator, err := s.key(ctx, "steady", "developer@"+steadySpace)
	if err != nil {
		return nil, err
	}
	operator, err := s.key(ctx, "operator", "operator@*")
	if err != nil {
		return nil, err
	}
	if err := s.startHolders(ctx, st, fleet, creator); err != nil {
		return nil, err
	}
	if err := s.run(ctx, st, fleet, worker.Options{Name: "steady", Namespaces: []string{steadySpace}, Concurrency: 20}, pause(stepTime)); err != nil {
		return nil, err
	}
	flooded := worker.Options{Name: "flood", Namespaces: []string{floodSpace}, Concurrency: floodAtOnce}
	if err := s.run(ctx, st, fleet, flooded, pause(floodTime)); err != nil {
		return nil, err
	}
	return st, s.startCallers(ctx, st, creator, operator)
}

func pause(d time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
}

// run runs a worker that calls work for each step. If st is set, its requests are measured.
func (s *server) run(ctx context.Context, st *steady, token string, o worker.Options, work func(context.Context)) error {
	h := &http.Client{Transport: newTransport()}
	if o.Namespaces[0] == steadySpace {
		h.Transport = timed{h.Transport, st}
	}
	c, err := client.New(s.url, client.WithToken(token), client.WithHTTPClient(h))
	if err != nil {
		return err
	}
	o.DrainTimeout = time.Second
	w := worker.New(c.Backend(), o)
	worker.Handle(w, "work", func(ctx context.Context, _ *worker.Step[struct{}]) (struct{}, error) {
		work(ctx)
		return struct{}{}, ctx.Err()
	})
	st.done.Go(func() { _ = w.Run(ctx) })
	return nil
}

// startHolders starts workers that each execute one step until the end.
func (s *server) startHolders(ctx context.Context, st *steady, fleet, creator string) error {
	c, err := s.client(creator)
	if err != nil {
		return err
	}
	var held sync.WaitGroup
	for n := range holders {
		if err := rest(ctx, heartbeatSeconds*time.Second/holders); err != nil { // distributes the heartbeats
			return err
		}
		held.Add(1)
		once := sync.OnceFunc(held.Done)
		o := worker.Options{Name: fmt.Sprint("holder-", n), Namespaces: []string{steadySpace}, Concurrency: 1}
		hold := func(ctx context.Context) { once(); <-ctx.Done() }
		if err := s.run(ctx, st, fleet, o, hold); err != nil {
			return err
		}
		if _, err := c.CreateTask(ctx, apiv1.CreateTask{Namespace: steadySpace, Name: "one"}); err != nil {
			return err
		}
	}
	held.Wait()
	return nil
}

// startCallers starts a caller that creates tasks, and an operator.
func (s *server) startCallers(ctx context.Context, st *steady, creator, operator string) error {
	c, err := s.client(creator)
	if err != nil {
		return err
	}
	o, err := s.client(operator)
	if err != nil {
		return err
	}
	again := func(every time.Duration, do func()) {
		st.done.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					st.done.Go(do)
				}
			}
		})
	}
	again(createEvery, func() {
		at := time.Now()
		_, err := c.CreateTask(ctx, apiv1.CreateTask{Namespace: steadySpace, Name: "one"})
		st.note(creates, at, err != nil)
	})
	again(lookEvery, func() {
		at := time.Now()
		_, err := o.InvestigationQueue(ctx, tasker.InvestigationFilter{})
		st.note(reads, at, err != nil)
	})
	again(lookEvery, func() {
		t, err := s.admin.CreateTask(ctx, apiv1.CreateTask{Namespace: "steady", Name: "one", StartAt: later()})
		if err != nil {
			return // counted elsewhere
		}
		at := time.Now()
		_, err = o.CancelTask(ctx, t.UUID, "measured", "")
		st.note(operations, at, err != nil)
	})
	return nil
}

func later() *time.Time {
	at := time.Now().Add(time.Hour)
	return &at
}
