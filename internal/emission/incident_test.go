package emission_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/sink"
)

// wholeIncident is the figure of docs/concepts/messages.md: -incident=10000.
var wholeIncident = flag.Int("incident", 0, "investigations of TestIncidentFromStartToEnd, in real time; 0: a few hundred, by a clock that is moved")

// An incident of three causes and of 200 steps that failed for a reason of their own, all of which
// operations repair, is five messages at most, for a pager and for a chat, and one within the
// first half minute.
func TestIncidentFromStartToEnd(t *testing.T) {
	v := newVoice(t, "topic=case.* -> pager, chat", "-> chat")
	v.routes.Takes = map[string][]string{"pager": sink.PagerDuty.DefaultTopics(), "chat": sink.Slack.DefaultTopics()}
	v.teller = v.server()
	entries, single := 300, 20
	if *wholeIncident > 0 {
		entries, single = *wholeIncident, 200
	}
	pager, chat := newPagerDuty(t), newReceiver(t)
	chat.answer.Store(func(http.ResponseWriter, received) bool { return false })
	v.relay(v.DB, func(o *emission.Options) {
		for _, s := range []sink.WebhookOptions{
			{Name: "pager", Form: sink.PagerDuty, URL: pager.URL, Key: "key"}, {Name: "chat", URL: chat.URL},
		} {
			s.AllowPrivate, s.Source = true, "prod"
			one, err := sink.NewWebhook(s)
			v.Must(err)
			o.Named = append(o.Named, one)
		}
	})

	began := time.Now()
	stop := v.loops()
	for i, share := range []int{60, 25, 15} {
		v.failFast((entries-single)*share/100, []string{"HTTP 503 from https://pay.example", "connection refused", "no such bucket"}[i])
	}
	for i := range single {
		v.failFast(1, fmt.Sprintf("field %c%c%c is missing", 'a'+i/26, 'a'+i%26, 'q'))
	}
	failed := time.Since(began)
	v.pass(15 * time.Second)
	v.Eventually("the first message", func() bool { return len(pager.all()) > 0 && len(chat.all()) > 0 })
	first := time.Since(began)
	t.Logf("%d investigations in %s, the first message after %s", entries, failed, first)
	if *wholeIncident > 0 {
		time.Sleep(time.Until(began.Add(30 * time.Second))) //nolint:forbidigo // the figure is about the first 30 seconds
		if first > 30*time.Second {
			t.Errorf("the first message came after %s", first)
		}
	}
	if p, c := pager.all(), chat.all(); len(p) != 1 || len(c) != 1 {
		t.Errorf("%d and %d messages within the first half minute", len(p), len(c))
	}
	stop()

	v.ownThree()
	v.later(5 * time.Minute)
	v.tell() // owned
	v.later(15 * time.Minute)
	v.tell() // the digest
	v.repairAll()
	v.later(5 * time.Minute)
	v.tell()
	v.Eventually("the last message", func() bool { return len(pager.all()) >= 3 && len(chat.all()) >= 4 })
	var actions, topics []string
	keys := map[string]bool{}
	for _, p := range pager.all() {
		actions, keys[p.DedupKey] = append(actions, p.EventAction), true
	}
	for _, c := range chat.all() {
		topics = append(topics, c.Type)
	}
	t.Logf("pager %v, chat %v", actions, topics)
	if len(keys) != 1 || len(actions) > 5 || len(topics) > 5 || actions[len(actions)-1] != "resolve" {
		t.Errorf("pager: %v under %d keys, chat %v", actions, len(keys), topics)
	}
	slices.Sort(topics)     // those about different things are sent at once
	if *wholeIncident > 0 { // cases join while the first message is sent
		return
	}
	if fmt.Sprint(actions, topics) != "[trigger acknowledge resolve] [tasker.case.opened tasker.case.owned tasker.case.resolved tasker.digest.cases]" {
		t.Errorf("pager: %v, chat: %v", actions, topics)
	}
}

// loops finds cases and tells people as a server does, until it is stopped.
func (v *voice) loops() (stop func()) {
	v.Helper()
	if *wholeIncident == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(v.Context())
	var running sync.WaitGroup
	all := slices.Concat(cases.New(v.DB, cases.Options{}).Loops(), v.teller.Loops())
	for _, l := range all {
		running.Go(func() {
			if err := l.Run(ctx); err != nil {
				v.Error(err)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	v.Cleanup(stop)
	return stop
}

// pass has the time go by until a message is due; in real time it does so by itself.
func (v *voice) pass(d time.Duration) {
	v.Helper()
	if *wholeIncident == 0 {
		v.later(d)
		v.tell()
	}
}

// failFast is fail for many, a hundred at once, whose cases others find.
func (v *voice) failFast(n int, message string) {
	v.Helper()
	for n > 0 {
		some := min(n, 100)
		list := make([]tasker.NewTask, some)
		for i := range list {
			list[i] = tasker.NewTask{Namespace: "shop", Name: "order"}
		}
		_, err := v.Engine.CreateTasks(v.Context(), list)
		v.Must(err)
		for left := some; left > 0; {
			claimed, err := v.Engine.Claim(v.Context(), v.worker, left, 0)
			v.Must(err)
			var outcomes []tasker.Outcome
			for _, a := range claimed {
				outcomes = append(outcomes, tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Type: "GatewayError", Message: message}})
			}
			_, err = v.Engine.Report(v.Context(), v.worker, outcomes, 0)
			v.Must(err)
			left -= len(claimed)
		}
		n -= some
	}
}

// ownThree takes the three large cases.
func (v *voice) ownThree() {
	v.Helper()
	list, _, err := v.DB.Cases(v.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 3}})
	v.Must(err)
	who := "anna"
	for _, c := range list {
		_, err := v.DB.UpdateCase(v.Context(), c.ID, tasker.CaseUpdate{Owner: &who, Actor: "test"})
		v.Must(err)
	}
}

// repairAll has operations run every step again: one for each large case, one for the rest. A
// worker completes them.
func (v *voice) repairAll() {
	v.Helper()
	ctx, cancel := context.WithCancel(v.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	ops := operation.New(v.DB, v.Engine, v.DLQ, operation.Options{})
	for _, l := range ops.Loops() {
		running.Go(func() { _ = l.Run(ctx) })
	}
	running.Go(func() {
		for ctx.Err() == nil {
			list, err := v.Engine.Claim(ctx, v.worker, 100, 200*time.Millisecond)
			var outcomes []tasker.Outcome
			for _, a := range list {
				outcomes = append(outcomes, tasker.Outcome{Lease: a.Lease(), Success: true, Result: []byte(`{}`)})
			}
			if err == nil && len(outcomes) > 0 {
				_, err = v.Engine.Report(ctx, v.worker, outcomes, 0)
			}
			if err != nil && ctx.Err() == nil {
				v.Error(err)
			}
		}
	})
	large, _, err := v.DB.Cases(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 3}})
	v.Must(err)
	filters := []tasker.InvestigationFilter{{Namespace: "shop"}}
	for _, c := range large {
		filters = append([]tasker.InvestigationFilter{{Case: &c.ID}}, filters...)
	}
	for _, f := range filters {
		o, _, err := ops.Plan(ctx, tasker.OperationPlan{
			Act: tasker.ActReset, Actor: "anna", Reason: "it is back", Selection: tasker.OperationSelection{Filter: f}, SkipOverlap: true,
		})
		v.Must(err)
		_, err = ops.Start(ctx, o.UUID, o.PlanDigest, "anna")
		v.Must(err)
		v.Eventually("the operation to be done", func() bool {
			o, err := v.DB.Operation(ctx, o.UUID)
			v.Must(err)
			return o.State == tasker.OperationDone
		})
	}
}

// A pagerDuty is a receiver of Events v2.
type pagerDuty struct {
	*httptest.Server

	mu  sync.Mutex
	got []page
}

type page struct {
	EventAction string `json:"event_action"`
	DedupKey    string `json:"dedup_key"`
}

func newPagerDuty(t *testing.T) *pagerDuty {
	t.Helper()
	p := &pagerDuty{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var one page
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.got = append(p.got, one)
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *pagerDuty) all() []page {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}
