package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/childproc"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/worker"
)

// OutageOptions configures a run of RunOutage.
type OutageOptions struct {
	Tasks   int           // created during the outage
	For     time.Duration // duration of the outage
	Workers int           // concurrent steps of the workers
	Out     io.Writer
}

const chargeTemplate = `
namespace_name: bulk
name: order
version: 1.0.0
steps:
  - name: charge
    handler: {callable: charge}
  - name: ship
    depends_on: [charge]
    handler: {callable: ship}
`

// A gateway is the HTTP server that the handlers call; it can be stopped.
type gateway struct {
	address string
	client  *http.Client
	server  *http.Server
}

func newGateway() (*gateway, error) {
	ports, err := childproc.FreePorts(1)
	if err != nil {
		return nil, err
	}
	return &gateway{address: fmt.Sprintf("127.0.0.1:%d", ports[0]), client: &http.Client{Timeout: 2 * time.Second}}, nil
}

func (g *gateway) up(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", g.address)
	if err != nil {
		return err
	}
	g.server = &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	go func() { _ = g.server.Serve(l) }() // ends with down
	return nil
}

func (g *gateway) down() {
	if g.server != nil {
		_ = g.server.Close()
		g.server = nil
	}
}

// charge is a handler that calls the gateway.
func (g *gateway) charge(ctx context.Context, _ *worker.Step[struct{}]) (any, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.address+"/charge", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := g.client.Do(request)
	if err != nil {
		return nil, err
	}
	return struct{}{}, answer.Body.Close()
}

// RunOutage measures the cost of an outage of a dependency with circuit breakers.
func RunOutage(ctx context.Context, o OutageOptions) (_ Report, err error) {
	in, err := install(ctx, 2, "[breaker]\nenabled = true\n")
	if err != nil {
		return Report{}, err
	}
	r := &run{Options: Options{Items: o.Tasks, Workers: o.Workers, Out: o.Out}, installation: in, report: Report{Items: o.Tasks}}
	defer func() { err = errors.Join(err, in.stop(ctx)) }()
	if _, err := r.servers[0].api.RegisterTemplate(ctx, []byte(chargeTemplate), "application/yaml"); err != nil {
		return r.report, err
	}
	g, err := newGateway()
	if err != nil {
		return r.report, err
	}
	stop := r.charge(ctx, g)
	defer stop()
	begun := time.Now()
	for left := o.Tasks; left > 0; left -= 50 {
		if _, err := r.servers[left/50%2].api.CreateTasks(ctx, slices.Repeat([]apiv1.CreateTask{{Namespace: space, Name: "order"}}, min(left, 50))); err != nil {
			return r.report, err
		}
		loop.Sleep(ctx, 500*time.Millisecond)
	}
	fmt.Fprintf(o.Out, "%d tasks came within %s\n", o.Tasks, time.Since(begun).Round(time.Second))
	for ctx.Err() == nil && time.Since(begun) < o.For {
		loop.Sleep(ctx, min(time.Minute, o.For-time.Since(begun)))
		fmt.Fprintf(o.Out, "  after %s: %.0f held, %.0f probes, %.0f investigations\n", time.Since(begun).Round(time.Second),
			r.number(ctx, `SELECT count(*)::float8 FROM tasker.held_steps`), r.number(ctx, probes), r.number(ctx, investigations))
	}
	r.add("probes during the outage", r.number(ctx, probes), "", 60)
	if err := g.up(ctx); err != nil {
		return r.report, err
	}
	defer g.down()
	back := time.Now()
	if err := r.until(ctx, float64(o.Tasks), `SELECT count(*)::float8 FROM tasker.tasks WHERE state = 'complete'`); err != nil {
		return r.report, err
	}
	r.add("from the return of the gateway to the last task", time.Since(back).Seconds(), "s", 120)
	r.add("investigations", r.number(ctx, investigations), "", 50)
	r.add("breakers that opened", r.number(ctx, `SELECT count(*)::float8 FROM tasker.holds`), "", 2)
	r.add("most attempts of a step", r.number(ctx, `SELECT max(attempts)::float8 FROM tasker.workflow_steps`), "", 3)
	return r.report, ctx.Err()
}

const (
	probes         = `SELECT coalesce(sum(probes), 0)::float8 FROM tasker.holds`
	investigations = `SELECT count(*)::float8 FROM tasker.tasks_dlq`
)

// charge runs workers. The returned function stops them and waits.
func (r *run) charge(ctx context.Context, g *gateway) (stop func()) {
	w := worker.New(r.servers[1].api.Backend(), worker.Options{Namespaces: []string{space}, Concurrency: r.Workers, DrainTimeout: time.Second})
	worker.Handle(w, "charge", g.charge)
	worker.Handle(w, "ship", func(context.Context, *worker.Step[struct{}]) (any, error) { return struct{}{}, nil })
	return keep(ctx, w)
}
