package embedded_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/embedded"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/worker"
)

const sending = `
namespace: letters
name: send
version: 1.0.0
steps:
  - {name: send, handler: {callable: send}}
`

// A program with the engine inside holds steps back, tries one, and lets the others go.
func TestHolds(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	e, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: database.URL})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	defer e.Close()
	_, err = e.RegisterTemplate(t.Context(), []byte(sending))
	must(err)
	held, err := e.BeginHold(t.Context(), tasker.NewHold{HoldScope: tasker.HoldScope{Namespace: "letters", Handler: "send"}, For: time.Hour, Owner: "bo", Reason: "no ink"})
	must(err)
	sent := make(chan struct{}, 10)
	w := worker.New(e.Backend(), worker.Options{Namespaces: []string{"letters"}})
	worker.Handle(w, "send", func(context.Context, *worker.Step[struct{}]) (bool, error) {
		sent <- struct{}{}
		return true, nil
	})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{e.Run, w.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	defer wg.Wait()
	defer stop()
	for range 3 {
		_, err = e.CreateTask(ctx, tasker.NewTask{Namespace: "letters", Name: "send"})
		must(err)
	}
	until := func(what string, is func(tasker.HoldDetail) bool) {
		t.Helper()
		for {
			d, err := e.Hold(ctx, held.UUID)
			must(err)
			if is(d) {
				return
			}
			select {
			case <-ctx.Done():
				t.Fatalf("it is not so that %s: %+v", what, d)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	until("three are held", func(d tasker.HoldDetail) bool { return d.Held == 3 })
	_, err = e.ProbeHold(ctx, held.UUID, "bo", "is there ink?")
	must(err)
	until("a probe has succeeded", func(d tasker.HoldDetail) bool { return d.Probes == 1 && d.InFlight == 0 && d.FailedProbes == 0 })
	if len(sent) != 1 {
		t.Errorf("%d are sent", len(sent))
	}
	longer, err := e.ExtendHold(ctx, held.UUID, tasker.HoldExtension{For: 2 * time.Hour, Owner: "anna"}, "bo", "my shift ends")
	must(err)
	if longer.Owner != "anna" || !longer.EndsAt.After(held.EndsAt) {
		t.Errorf("%+v", longer)
	}
	_, err = e.ReleaseHold(ctx, held.UUID, []int{1}, "anna", "there is")
	must(err)
	until("it has ended", func(d tasker.HoldDetail) bool { return d.State == tasker.HoldEnded && d.Released == 3 })
	list, more, err := e.Holds(ctx, tasker.HoldFilter{Namespace: "letters"})
	must(err)
	if len(list) != 1 || more || list[0].UUID != held.UUID {
		t.Errorf("%d holds, %v", len(list), more)
	}
	if list, _, err = e.Holds(ctx, tasker.HoldFilter{Open: true}); err != nil || len(list) != 0 {
		t.Errorf("%d holds are open, %v", len(list), err)
	}
}

// A program with the engine inside sets the weights of namespaces, and from which age on what waits comes first.
func TestNamespaceWeightsEmbedded(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	e, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: database.URL, PriorityAge: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if w, err := e.SetNamespaceWeight(t.Context(), "letters", 2, "bo"); err != nil || w.Weight != 2 || w.SetBy != "bo" {
		t.Errorf("set %+v (%v)", w, err)
	}
	if _, err := e.SetNamespaceWeight(t.Context(), "letters", 0, "bo"); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("the weight 0: %v", err)
	}
	if list, err := e.NamespaceWeights(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("listed %+v (%v)", list, err)
	}
	if err := e.DeleteNamespaceWeight(t.Context(), "letters", "bo"); err != nil {
		t.Error(err)
	}
}

// A limit is set, shown and deleted.
func TestLimits(t *testing.T) {
	t.Parallel()
	e := open(t)
	ref := tasker.LimitRef{Kind: tasker.HandlerLimit, Namespace: "letters", Name: "send"}
	set, err := e.SetLimit(t.Context(), ref, tasker.LimitValue{PerSecond: 2.5}, "bo", "the provider asks")
	if err != nil {
		t.Fatal(err)
	}
	if set.Burst != 3 || set.ChangedBy != "bo" || set.LimitValue.String() != "2.5/s, burst 3" {
		t.Errorf("%+v", set)
	}
	list, more, err := e.Limits(t.Context(), tasker.LimitFilter{Namespace: "letters", Limit: 5})
	if err != nil || more || len(list) != 1 || list[0].LimitRef != ref {
		t.Errorf("%+v, %v: %v", list, more, err)
	}
	if d, err := e.Limit(t.Context(), ref); err != nil || d.LimitRef != ref {
		t.Errorf("%+v: %v", d, err)
	}
	if err := e.DeleteLimit(t.Context(), ref, "bo", "no more"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Limit(t.Context(), ref); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("%v, want NotFound", err)
	}
}
