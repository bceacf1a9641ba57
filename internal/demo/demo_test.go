package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/demo"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/worker"
	"tasker.example/tasker/workertest"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newWorker(f *demo.Faults) *worker.Worker {
	w := worker.New(nil, worker.Options{})
	demo.Handlers(w, f)
	return w
}

func TestHandlers(t *testing.T) {
	w := newWorker(demo.NewFaults())
	reservation := demo.Reservation{ID: "RES-000007"}
	for _, tt := range []struct {
		handler string
		results map[string]any
		want    string
		kind    string // of the permanent failure
	}{
		{"validate_order", nil, `{"order_number":7,"valid":true,"total_cents":11120}`, ""},
		{"reserve_stock", nil, `{"reservation_id":"RES-000007","warehouse":"","pieces":7}`, ""},
		{"charge_card", map[string]any{"validate_order": demo.Validated{TotalCents: 5}},
			`{"payment_id":"PAY-000007","amount_cents":5,"gateway":"demo-gateway"}`, ""},
		{"charge_card", map[string]any{"validate_order": nil},
			`{"payment_id":"PAY-000007","amount_cents":11120,"gateway":"demo-gateway"}`, ""},
		{"ship_order", map[string]any{"reserve_stock": reservation, "charge_card": `{"payment_id": "by hand"}`},
			`{"tracking_number":"TRK-000007","carrier":"","reservation_id":"RES-000007","payment_id":"by hand"}`, ""},
		{"ship_order", map[string]any{"reserve_stock": reservation, "charge_card": nil},
			`{"tracking_number":"TRK-000007","carrier":"","reservation_id":"RES-000007","payment_id":"",` +
				`"note":"shipped unpaid: an operator resolved charge_card without a result"}`, ""},
		{"ship_order", map[string]any{"reserve_stock": nil, "charge_card": `{"payment_id": "P"}`},
			`{"tracking_number":"TRK-000007","carrier":"","reservation_id":"","payment_id":"P",` +
				`"note":"shipped unreserved: an operator resolved reserve_stock without a result"}`, ""},
		{"ship_order", map[string]any{"reserve_stock": reservation, "charge_card": `{"paid": true}`}, "", worker.HandlerError},
		{"ship_order", map[string]any{"reserve_stock": reservation}, "", worker.InvalidInput},
		{"notify_customer", map[string]any{"ship_order": demo.Shipment{TrackingNumber: "T", Carrier: "C"}},
			`{"to":"customer-7@example.com","text":"Your order 7 is on its way: C, T."}`, ""},
		{"notify_customer", map[string]any{"ship_order": nil},
			`{"to":"customer-7@example.com","text":"Your order 7 is on its way."}`, ""},
	} {
		got, err := workertest.Run(t, w, tt.handler, workertest.Step{Context: demo.NewOrder(7), DependencyResults: tt.results})
		if tt.kind != "" {
			workertest.Permanent(t, err)
			workertest.Type(t, err, tt.kind)
			continue
		}
		if err != nil || string(got) != tt.want {
			t.Errorf("%s after %v: %s, %v; want %s", tt.handler, tt.results, got, err, tt.want)
		}
	}
}

func TestFaults(t *testing.T) {
	set := func(handler string, f demo.Fault) func(*demo.Faults) {
		return func(all *demo.Faults) {
			if err := all.Set(handler, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name     string
		set      func(*demo.Faults)
		order    int
		simulate map[string]string
		kind     string // of the failure of charge_card; "" for none
		perm     bool
	}{
		{"as it starts, a fourth order", func(*demo.Faults) {}, 1004, nil, "gateway_timeout", false},
		{"as it starts, another order", func(*demo.Faults) {}, 1005, nil, "", false},
		{"all off", (*demo.Faults).Clear, 1004, nil, "", false},
		{"this one off", set("charge_card", demo.Fault{}), 1004, nil, "", false},
		{"all orders, for good", set("charge_card", demo.Fault{Every: 1, Permanent: true, Type: "t"}), 1005, nil, "t", true},
		{"another handler", set("ship_order", demo.Fault{Every: 1, Type: "t"}), 1005, nil, "", false},
		{"simulated by the order", (*demo.Faults).Clear, 1005, map[string]string{"charge_card": "card_declined"}, "card_declined", true},
		{"simulated elsewhere", (*demo.Faults).Clear, 1005, map[string]string{"ship_order": "lost"}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := demo.NewFaults()
			tt.set(f)
			o := demo.NewOrder(tt.order)
			o.Simulate = tt.simulate
			_, err := workertest.Run(t, newWorker(f), "charge_card", workertest.Step{
				Context: o, DependencyResults: map[string]any{"validate_order": demo.Validated{}},
			})
			switch {
			case tt.kind == "":
				if err != nil {
					t.Errorf("failed: %v", err)
				}
				return
			case tt.perm:
				workertest.Permanent(t, err)
			default:
				workertest.Retryable(t, err)
			}
			workertest.Type(t, err, tt.kind)
		})
	}
	f := demo.NewFaults()
	if code := tasker.CodeOf(f.Set("nobody", demo.Fault{})); code != tasker.NotFound {
		t.Errorf("a handler that is not there: %s", code)
	}
	if code := tasker.CodeOf(f.Set("charge_card", demo.Fault{Every: -1})); code != tasker.Invalid {
		t.Errorf("every -1: %s", code)
	}
}

func TestSwitchOverHTTP(t *testing.T) {
	f := demo.NewFaults()
	h := f.Handler("/demo/faults")
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "", "", 200, `{"charge_card":{"every":4,"calls":3,"type":"gateway_timeout"`},
		{"PUT", "/ship_order", `{"every": 2, "calls": 0, "type": "strike", "message": "no driver"}`, 200,
			`"ship_order":{"every":2,"type":"strike","message":"no driver"}`},
		{"DELETE", "/charge_card", "", 200, `{"ship_order":`},
		{"DELETE", "/nobody", "", 404, `unknown demo handler \"nobody\"`},
		{"PUT", "/ship_order", `{"evry": 2}`, 400, `unknown field \"evry\"`},
		{"PUT", "/ship_order", `{"every": -2}`, 400, `must not be negative`},
		{"DELETE", "", "", 200, `{}`},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tt.method, "/demo/faults"+tt.path, strings.NewReader(tt.body)))
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s: %d %s; want %d %s", tt.method, tt.path, w.Code, w.Body, tt.status, tt.want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/demo/faults", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestGenerate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		gone := tasker.Errorf(tasker.Unavailable, "starting")
		answers := []error{nil, gone, gone, nil, nil}
		var seen []string
		submit := func(_ context.Context, n tasker.NewTask) (tasker.ID, error) {
			var o demo.Order
			if err := json.Unmarshal(n.Context, &o); err != nil {
				t.Error(err)
			}
			seen = append(seen, fmt.Sprintf("%v %d", time.Since(begin), o.Number))
			err := answers[0]
			answers = answers[1:]
			return tasker.NewID(), err
		}
		if err := demo.Generate(t.Context(), submit, time.Second, 3); err != nil {
			t.Error(err)
		}
		want := []string{"0s 1001", "1s 1002", "2s 1002", "3s 1002", "4s 1003"}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("orders (-want +got):\n%s", diff)
		}

		refuse := func(context.Context, tasker.NewTask) (tasker.ID, error) {
			return tasker.ID{}, errors.New("no such template")
		}
		if err := demo.Generate(t.Context(), refuse, time.Second, 0); err == nil || !strings.Contains(err.Error(), "submit order 1001") {
			t.Errorf("got %v", err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		n := 0
		count := func(context.Context, tasker.NewTask) (tasker.ID, error) { n++; return tasker.ID{}, nil }
		if err := demo.Generate(ctx, count, time.Second, 0); err != nil || n < 60 {
			t.Errorf("%d orders in a minute without an end, then %v", n, err)
		}
	})
}

func TestGuideNamesTheServer(t *testing.T) {
	if g := demo.FormatGuide("http://127.0.0.1:9"); !strings.Contains(g, "TASKER_URL=http://127.0.0.1:9\n") || strings.Contains(g, "{url}") {
		t.Error(g)
	}
}

// A shop is the demo on an engine of its own.
type shop struct {
	*testing.T
	engine *engine.Engine
	db     *postgres.DB
}

func newShop(t *testing.T) *shop {
	t.Helper()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	db, err := postgres.Open(t.Context(), d.URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s := &shop{T: t, db: db, engine: engine.New(db, engine.Options{Environment: "test"})}
	tmpl, err := demo.LoadTemplate()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.engine.RegisterTemplate(t.Context(), tmpl, demo.Source); err != nil {
		t.Fatal(err)
	}
	w := worker.New(s.engine, worker.Options{Namespaces: []string{demo.Namespace}})
	demo.Handlers(w, demo.NewFaults())
	g := loop.NewGroup(t.Context())
	g.Go("worker", w.Run)
	for _, l := range s.engine.Loops() {
		g.Go(l.Name, l.Run)
	}
	t.Cleanup(func() {
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *shop) submit(ctx context.Context, n tasker.NewTask) (tasker.ID, error) {
	created, err := s.engine.CreateTasks(ctx, []tasker.NewTask{n})
	if err != nil {
		return tasker.ID{}, err
	}
	return created[0].TaskUUID, nil
}

func (s *shop) waitFor(id tasker.ID, want tasker.TaskState) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	for {
		task, err := s.db.Task(ctx, id)
		if err != nil {
			s.Fatalf("task %s is not yet %s: %v", id, want, err)
		}
		if task.State == want {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *shop) step(task tasker.ID, name string) tasker.Step {
	s.Helper()
	steps, err := s.db.Steps(s.Context(), task)
	if err != nil {
		s.Fatal(err)
	}
	for _, x := range steps {
		if x.Name == name {
			return x
		}
	}
	s.Fatalf("task %s has no step %s", task, name)
	return tasker.Step{}
}

func (s *shop) shipment(task tasker.ID) demo.Shipment {
	s.Helper()
	var r tasker.StepResult
	var out demo.Shipment
	if err := errors.Join(json.Unmarshal(s.step(task, "ship_order").Results, &r), json.Unmarshal(r.Result, &out)); err != nil {
		s.Fatal(err)
	}
	return out
}

// TestTheShop: twelve orders, of which every fourth becomes an investigation and
// is fixed, each in another way.
func TestTheShop(t *testing.T) {
	s := newShop(t)
	var tasks []tasker.ID
	err := demo.Generate(t.Context(), func(ctx context.Context, n tasker.NewTask) (tasker.ID, error) {
		id, err := s.submit(ctx, n)
		tasks = append(tasks, id)
		return id, err
	}, time.Millisecond, 12)
	if err != nil {
		t.Fatal(err)
	}
	fix := []struct {
		operation tasker.ActionRequest
		payment   string
		noted     bool
	}{
		{tasker.ActionRequest{Action: tasker.ResetForRetry}, "PAY-001004", false},
		{tasker.ActionRequest{Action: tasker.ResolveManually}, "", true},
		{tasker.ActionRequest{Action: tasker.CompleteManually, Result: json.RawMessage(`{"payment_id": "PAY-BY-HAND"}`)}, "PAY-BY-HAND", false},
	}
	for i, id := range tasks {
		number := demo.FirstOrder + i
		if number%4 != 0 {
			s.waitFor(id, tasker.TaskComplete)
			if got, want := s.shipment(id).PaymentID, fmt.Sprintf("PAY-%06d", number); got != want {
				t.Errorf("order %d was shipped for payment %q, want %q", number, got, want)
			}
			continue
		}
		s.waitFor(id, tasker.TaskError)
		entry, err := s.db.EntryOfTask(t.Context(), id)
		if err != nil || entry.Reason != tasker.MaxRetriesExceeded {
			t.Fatalf("entry of order %d: %+v, %v", number, entry, err)
		}
		failed := s.step(id, "charge_card")
		if failed.State != tasker.StepError || failed.Attempts != 3 || !strings.Contains(string(failed.Error), "payment gateway timeout") {
			t.Errorf("charge_card of order %d: %s after %d attempts: %s", number, failed.State, failed.Attempts, failed.Error)
		}
		m := fix[(number-1004)/4]
		m.operation.Actor, m.operation.Reason = "operator@example.com", "fixed"
		if _, err := s.engine.OperateStep(t.Context(), id, failed.UUID, m.operation); err != nil {
			t.Fatal(err)
		}
		s.waitFor(id, tasker.TaskComplete)
		if got := s.shipment(id); got.PaymentID != m.payment || (got.Note != "") != m.noted {
			t.Errorf("order %d after %s: %+v", number, m.operation.Action, got)
		}
	}
}

func TestTheTemplateRefusesWhatIsNoOrder(t *testing.T) {
	s := newShop(t)
	bad := demo.NewTask(demo.NewOrder(7))
	bad.Context = json.RawMessage(`{"order_number": 0, "customer": {}, "items": []}`)
	if _, err := s.submit(t.Context(), bad); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("got %v", err)
	}
}
