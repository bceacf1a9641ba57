package app_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/worker"
)

const chargeTemplate = `
namespace_name: orders
name: one
version: 1.0.0
steps:
  - name: charge
    handler: {callable: charge}
    retry: {max_attempts: 1}
`

// An operation that one server was told to start is gone on with by another when that one ends. Who
// has called it may be gone as well.
func TestServersGoOnWithOperations(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t).URL
	first, second := start(t, options(database)), start(t, options(database))
	api := func(s *server) *client.Client {
		c, err := client.New(s.url)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := api(second).RegisterTemplate(ctx, []byte(chargeTemplate), "application/yaml")
	must(err)
	var works atomic.Bool
	w := worker.New(api(second).Backend(), worker.Options{Namespaces: []string{"orders"}})
	worker.Handle(w, "charge", func(context.Context, *worker.Step[struct{}]) (any, error) {
		if works.Load() {
			return struct{}{}, nil
		}
		return nil, errors.New("HTTP 503")
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	_, err = api(second).CreateTasks(ctx, slices.Repeat([]apiv1.CreateTask{{Namespace: "orders", Name: "one"}}, 30))
	must(err)
	second.until("all tasks are stuck", func() bool {
		l, err := api(second).InvestigationQueue(ctx, tasker.InvestigationFilter{Limit: 100})
		return err == nil && len(l) == 30
	})
	works.Store(true)
	o, err := api(first).PlanOperation(ctx, apiv1.PlanOperation{
		Act: apiv1.OperationAct{Type: "reset_for_retry"}, Select: apiv1.OperationSelection{Namespace: "orders"}, Reason: "gateway is back", PlannedBy: "ann",
	}, "")
	must(err)
	var id tasker.ID
	must(id.UnmarshalText([]byte(o.OperationUUID)))
	_, err = api(first).StartOperation(ctx, id, apiv1.StartOperation{PlanDigest: o.PlanDigest, By: "ann"})
	must(err)
	first.stop()
	must(first.wait())
	second.until("the operation is done", func() bool {
		o, err = api(second).Operation(ctx, id)
		return err == nil && o.State == string(tasker.OperationDone)
	})
	if o.Counts["verified"] != 30 || o.Wave != 3 {
		t.Errorf("in wave %d it ended with %v", o.Wave, o.Counts)
	}
	if n := second.scraped(`tasker_operation_items{state="verified"}`); n != 0 {
		t.Errorf("%v items of operations are counted that have come to their end", n)
	}
	if n := second.scraped(`tasker_operation_paused_total{guard="same_cause"}`); n != 0 {
		t.Errorf("%v pauses", n)
	}
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("worker stopped with %v", err)
	}
}
