// Package drill creates a practice incident in a sandbox namespace through the API: tasks that
// fail with shared and with individual causes until the operator repairs them.
package drill

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/worker"
)

// Limits and defaults of a drill.
const (
	DefaultNamespace = "drill"
	DefaultTasks     = 1000
	MaxTasks         = 10_000

	singletons = 10  // tasks with a cause of their own
	bulk       = 500 // tasks per request
	template   = "fulfil"
)

//go:embed drill.yaml
var source string

// Options configures a drill. Client and Say are required.
type Options struct {
	Client    *client.Client
	Namespace string // [DefaultNamespace] or one that begins with "drill-"
	Tasks     int    // with a shared cause
	Program   string // name of the command, for messages
	Every     time.Duration
	Say       func(format string, args ...any) // prints a line
}

// A Result is the result of a drill.
type Result struct {
	Namespace  string                `json:"namespace"`
	Tasks      int                   `json:"tasks"`
	Report     tasker.IncidentReport `json:"report"`
	Operations int                   `json:"operations"` // started during the drill
	Outside    []string              `json:"outside"`    // other namespaces that these have touched
}

// CheckNamespace rejects a namespace that is not a sandbox.
func CheckNamespace(name string) error {
	if name != DefaultNamespace && !strings.HasPrefix(name, DefaultNamespace+"-") {
		return tasker.Errorf(tasker.Invalid, "invalid namespace %q: must be %s or begin with %s-",
			name, DefaultNamespace, DefaultNamespace)
	}
	return nil
}

// drill is the state of a running drill.
type drill struct {
	Options
	began    time.Time
	repaired atomic.Bool // handlers succeed
}

// Run creates an incident and waits until it is repaired. If ctx ends, the incident remains; see
// [Clean].
func Run(ctx context.Context, o Options) (Result, error) {
	if err := CheckNamespace(o.Namespace); err != nil {
		return Result{}, err
	}
	d := &drill{Options: o, began: time.Now()}
	if err := d.registerTemplate(ctx); err != nil {
		return Result{}, err
	}
	work, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.newWorker().Run(work) }()
	r, err := d.run(ctx, ended)
	stop()
	if failed := <-ended; err == nil || errors.Is(err, errWorker) {
		err = failed
	}
	if ctx.Err() != nil {
		o.Say("Interrupted: what was planted is still there. To end it: %s drill clean --namespace %s", o.Program, o.Namespace)
		return r, ctx.Err()
	}
	return r, err
}

// errWorker is returned if the drill's worker has ended. The error of the worker contains the
// reason.
var errWorker = errors.New("the drill worker stopped")

// registerTemplate registers the template in the namespace, which must be a sandbox without an open
// incident.
func (d *drill) registerTemplate(ctx context.Context) error {
	// A caller without permission to list templates cannot register one either, so RegisterTemplate
	// returns the error.
	if err := d.checkSandbox(ctx); err != nil && tasker.CodeOf(err) != tasker.Forbidden {
		return err
	}
	doc := strings.Replace(source, "namespace_name: "+DefaultNamespace, "namespace_name: "+d.Namespace, 1)
	if _, err := d.Client.RegisterTemplate(ctx, []byte(doc), client.YAML); err != nil {
		return err
	}
	open, err := d.listOpenCases(ctx)
	if err == nil && open.TotalEntries+open.Unclassified > 0 {
		err = tasker.Errorf(tasker.Conflict, "namespace %s has %d open investigations from an earlier drill: "+
			"end them first with %s drill clean --namespace %s",
			d.Namespace, open.TotalEntries+open.Unclassified, d.Program, d.Namespace)
	}
	return err
}

// checkSandbox returns a Conflict if the namespace contains templates other than that of drills.
func (d *drill) checkSandbox(ctx context.Context) error {
	there, err := d.Client.Templates(ctx, d.Namespace, apiv1.Page{Limit: 10})
	if err != nil {
		return err
	}
	for _, t := range there.Templates {
		if t.Name != template {
			return tasker.Errorf(tasker.Conflict,
				"namespace %s has template %s, which does not belong to a drill: use another "+
					"--namespace", d.Namespace, t.Name)
		}
	}
	return nil
}

func (d *drill) listOpenCases(ctx context.Context) (apiv1.CaseList, error) {
	return d.Client.Cases(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{
		Namespace: d.Namespace, Limit: 100,
	}})
}

// order is the context of a task.
type order struct {
	Order int `json:"order"`
	Plan  int `json:"plan"` // number of an individual cause; 0 for a shared one
}

func (d *drill) newWorker() *worker.Worker {
	w := worker.New(d.Client.Backend(), worker.Options{
		Name: "drill", Version: "1.0.0", Namespaces: []string{d.Namespace}, Concurrency: 50,
	})
	worker.Handle(w, "drill_charge", func(_ context.Context, s *worker.Step[order]) (string, error) {
		if !d.repaired.Load() {
			return "", newFailure(s.Input)
		}
		return fmt.Sprintf("PAY-%06d", s.Input.Order), nil
	})
	worker.Handle(w, "drill_ship", func(_ context.Context, s *worker.Step[order]) (string, error) {
		return fmt.Sprintf("TRK-%06d", s.Input.Order), nil
	})
	return w
}

// newFailure returns the error of an order. Half of the orders with a shared cause have the first
// one, 30 % the second and 20 % the third.
func newFailure(o order) error {
	switch {
	case o.Plan > 0:
		words := []string{
			"alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett",
		}
		word := words[(o.Plan-1)%len(words)]
		return &worker.Error{Type: "LedgerError", Err: fmt.Errorf("account %q is closed in ledger %s", word, word)}
	case o.Order%10 < 5:
		return &worker.Error{Type: "GatewayError", Err: fmt.Errorf(
			"HTTP 503 from https://pay.example/charge/ORDER-%06d: Service Unavailable", o.Order)}
	case o.Order%10 < 8:
		return &worker.Error{Type: "ConnectionError", Err: fmt.Errorf(
			"dial tcp 10.0.%d.%d:5432: connect: connection refused", o.Order/250%250, o.Order%250)}
	default:
		return &worker.Error{Type: "KeyError", Err: fmt.Errorf("KeyError: 'currency' of order %d", o.Order)}
	}
}

// countTasks returns the number of tasks.
func (d *drill) countTasks() int { return d.Tasks + singletons }

// createTasks creates the tasks. Their idempotency keys prevent duplicates.
func (d *drill) createTasks(ctx context.Context) error {
	run := tasker.NewID().String()
	var list []apiv1.CreateTask
	for i := range d.countTasks() {
		o := order{Order: 399_000 + i, Plan: max(0, i-d.Tasks+1)}
		doc, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("encode an order: %w", err)
		}
		list = append(list, apiv1.CreateTask{
			Namespace: d.Namespace, Name: template, Context: bytes.Clone(doc), Initiator: "drill", SourceSystem: "drill",
			Tags: []string{"drill"}, CorrelationID: fmt.Sprintf("ORDER-%06d", o.Order),
			IdempotencyKey: fmt.Sprintf("drill-%s-%d", run, i),
		})
		if len(list) < bulk && i < d.countTasks()-1 {
			continue
		}
		if _, err := d.Client.CreateTasks(ctx, list); err != nil {
			return err
		}
		list = list[:0]
		d.Say("Planted %d of %d tasks.", i+1, d.countTasks())
	}
	return nil
}

func (d *drill) run(ctx context.Context, ended chan error) (Result, error) {
	r := Result{Namespace: d.Namespace, Tasks: d.countTasks()}
	if err := d.createTasks(ctx); err != nil {
		return r, err
	}
	if err := d.watchCases(ctx, ended, func(l apiv1.CaseList) bool { return l.TotalEntries >= int64(d.countTasks()) }); err != nil {
		return r, err
	}
	d.repaired.Store(true)
	d.Say(`
Everything has failed, and the causes are repaired: what is run again succeeds. It is your turn.

  1. %[1]s case list --namespace %[2]s
  2. %[1]s case show CASE            # the first of the list
  3. %[1]s case own CASE
  4. %[1]s operation run --namespace %[2]s --reset --reason "the gateway is back" --watch
  5. %[1]s report --namespace %[2]s --from %[3]s
  6. %[1]s drill clean --namespace %[2]s

Or on the pages: the first case, "Take it", "Run again". This goes on until all is proved.
`, d.Program, d.Namespace, d.began.UTC().Format(time.RFC3339))
	if err := d.watchCases(ctx, ended, func(l apiv1.CaseList) bool { return l.TotalEntries+l.Unclassified == 0 }); err != nil {
		return r, err
	}
	return d.buildResult(ctx, r)
}

// watchCases prints the progress whenever it changes, until done returns true.
func (d *drill) watchCases(ctx context.Context, ended chan error, done func(apiv1.CaseList) bool) error {
	last := ""
	for {
		l, err := d.listOpenCases(ctx)
		if err != nil && tasker.CodeOf(err) != tasker.Unavailable {
			return err
		}
		if line := formatProgress(l); err == nil && line != last {
			d.Say("%s", line)
			last = line
		}
		if err == nil && done(l) {
			return nil
		}
		select {
		case failed := <-ended:
			ended <- failed
			return errWorker
		default:
		}
		if !loop.Sleep(ctx, d.Every) {
			return ctx.Err()
		}
	}
}

func formatProgress(l apiv1.CaseList) string {
	var waiting, proving, again int64
	owned := 0
	for _, c := range l.Cases {
		waiting, proving, again = waiting+c.Waiting, proving+c.Proving, again+c.FailedAgain
		if c.Owner != "" {
			owned++
		}
	}
	return fmt.Sprintf("%d open in %d cases, %d of them taken: %d wait for somebody, %d are being proved, %d failed again.",
		l.TotalEntries+l.Unclassified, l.TotalCases, owned, waiting+l.Unclassified, proving, again)
}

// buildResult reads and prints the outcome of the drill.
func (d *drill) buildResult(ctx context.Context, r Result) (Result, error) {
	var err error
	query := tasker.IncidentReportQuery{Namespace: d.Namespace, From: d.began.Add(-time.Minute)}
	if r.Report, err = d.Client.IncidentReport(ctx, query); err != nil {
		return r, err
	}
	r.Outside = []string{}
	for _, o := range r.Report.Operations {
		seen, err := d.Client.Operation(ctx, o.OperationUUID)
		if err != nil {
			return r, err
		}
		r.Operations++
		for _, n := range seen.Namespaces {
			if n != d.Namespace {
				r.Outside = append(r.Outside, n)
			}
		}
	}
	n, p := r.Report.Counts, r.Report.Phases
	d.Say("\nAll has come to its end: %d of %d proved, in %s.", n.Proved, n.Entries, time.Since(d.began).Round(time.Second))
	for _, line := range []struct {
		what string
		tasker.ReportPhase
	}{
		{"to notice", p.TimeToDetect}, {"to own", p.TimeToOwn}, {"to repair", p.TimeToRepair}, {"to prove", p.TimeToVerify},
	} {
		d.Say("  %-10s half of the tasks within %s, 95 %% within %s; %.1f task-minutes",
			line.what, secondsToDuration(line.P50Seconds), secondsToDuration(line.P95Seconds), line.TaskMinutes)
	}
	if len(r.Outside) == 0 {
		d.Say("Operations: %d, all of them in %s only. The drill itself writes nowhere else.", r.Operations, d.Namespace)
	} else {
		d.Say("Outside of %s, operations have touched: %s.", d.Namespace, strings.Join(r.Outside, ", "))
	}
	return r, nil
}

func secondsToDuration(f float64) time.Duration {
	return time.Duration(f * float64(time.Second)).Round(100 * time.Millisecond)
}
