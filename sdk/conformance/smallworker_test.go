package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/httpclient"
	"tasker.example/tasker/sdk/conformance/cases"
)

// A smallWorker follows the rules of some cases, except the one that it breaks on purpose.
type smallWorker struct {
	breaks   string
	interval time.Duration
	slots    chan struct{}

	mu   sync.Mutex
	id   string
	held map[string]heldStep // by UUID
}

type heldStep struct {
	lease apiv1.Lease
	stop  context.CancelFunc
}

// An apiError is an error of the API, or of a proxy if the code is empty.
type apiError struct {
	status        int
	code, message string
	after         time.Duration
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s %s", e.status, e.code, e.message) }

var smallClient = httpclient.New(nil)

func misbehave(rule string) {
	slots, _ := strconv.Atoi(cmp.Or(os.Getenv("CONFORMANCE_CONCURRENCY"), "4"))
	w := &smallWorker{breaks: rule, slots: make(chan struct{}, slots), held: map[string]heldStep{}}
	if err := w.register(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go w.beat()
	w.claim()
}

func (w *smallWorker) register() error {
	for {
		var answer apiv1.RegisteredWorker
		spec := apiv1.RegisterWorker{Name: "small", Namespaces: []string{"conformance"}, Handlers: cases.Handlers}
		err := w.post("/v1/workers", spec, &answer)
		if err == nil && answer.WorkerUUID != "" {
			w.mu.Lock()
			w.id, w.interval = answer.WorkerUUID, time.Duration(answer.HeartbeatIntervalMS)*time.Millisecond
			w.mu.Unlock()
			return nil
		}
		var refused *apiError
		if errors.As(err, &refused) && (refused.code == "FORBIDDEN" || refused.code == "INVALID") && w.breaks != "retries a refused start" {
			return err
		}
		w.rest(err)
	}
}

func (w *smallWorker) path(action string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return "/v1/workers/" + w.id + "/" + action
}

func (w *smallWorker) claim() {
	for {
		w.slots <- struct{}{}
		limit := 1
		if w.breaks == "claims more than its free slots" {
			limit = 10
		}
		var answer apiv1.ClaimedSteps
		err := w.post(w.path("claims"), apiv1.ClaimSteps{Max: limit, WaitMS: 5000}, &answer)
		if err == nil && answer.Steps == nil {
			err = errors.New("no steps")
		}
		for _, s := range answer.Steps {
			go w.run(s)
		}
		if len(answer.Steps) == 0 {
			<-w.slots
		}
		if err != nil {
			var unknown *apiError
			foreign := w.breaks == "registers again after each 404"
			if errors.As(err, &unknown) && unknown.status == 404 && (foreign || unknown.code == "NOT_FOUND") {
				_ = w.register()
			}
			w.rest(err)
		}
	}
}

func (w *smallWorker) beat() {
	for {
		pause(w.interval)
		leases := []apiv1.Lease{}
		w.mu.Lock()
		for _, h := range w.held {
			leases = append(leases, h.lease)
		}
		w.mu.Unlock()
		if w.breaks == "sends no heartbeats" {
			continue
		}
		var answer apiv1.HeartbeatAnswer
		if err := w.post(w.path("heartbeat"), apiv1.Leases{Leases: leases}, &answer); err != nil {
			w.rest(err)
		}
		for _, step := range answer.Lost {
			w.mu.Lock()
			if h, ok := w.held[step]; ok && w.breaks != "ignores lost leases" {
				h.stop()
			}
			w.mu.Unlock()
		}
	}
}

func (w *smallWorker) run(s apiv1.ClaimedStep) {
	defer func() {
		w.mu.Lock()
		delete(w.held, s.StepUUID)
		w.mu.Unlock()
		select {
		case <-w.slots:
		default:
		}
	}()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	lease := apiv1.Lease{StepUUID: s.StepUUID, LeaseToken: s.LeaseToken}
	if w.breaks == "changes the lease token" {
		lease.LeaseToken = strings.ToLower(lease.LeaseToken) + " "
	}
	w.mu.Lock()
	w.held[s.StepUUID] = heldStep{lease, stop}
	w.mu.Unlock()
	outcome := handle(ctx, s)
	outcome["step_uuid"], outcome["lease_token"] = lease.StepUUID, lease.LeaseToken
	if ctx.Err() == nil {
		w.report(outcome)
	}
}

func handle(ctx context.Context, s apiv1.ClaimedStep) map[string]any {
	var in struct {
		MS      int
		Message string
		Type    string
	}
	_ = json.Unmarshal(s.Context, &in)
	switch s.Handler {
	case "sleep":
		select {
		case <-time.After(time.Duration(in.MS) * time.Millisecond):
		case <-ctx.Done():
		}
	case "fail":
		return map[string]any{"success": false, "error": map[string]any{"message": in.Message, "type": cmp.Or(in.Type, "Boom")}}
	}
	return map[string]any{"success": true, "result": map[string]any{"context": s.Context}}
}

func (w *smallWorker) report(outcome map[string]any) {
	if w.breaks == "sends unknown fields" {
		outcome["took"] = 5
	}
	for {
		var answer apiv1.ReportAnswer
		err := w.post(w.path("results"), map[string]any{"results": []any{outcome}}, &answer)
		var refused *apiError
		switch {
		case w.breaks == "does not repeat reports", w.breaks == "believes each status 200" && err == nil:
			return
		case errors.As(err, &refused) && refused.status == 413 && w.breaks == "turns 413 pages into failures":
			outcome = map[string]any{
				"step_uuid": outcome["step_uuid"], "lease_token": outcome["lease_token"], "success": false, "error": map[string]any{"message": "too large", "retryable": false},
			}
		case err == nil && len(answer.Accepted)+len(answer.Rejected) > 0:
			return
		}
		w.rest(err)
	}
}

// rest waits after a failed request.
func (w *smallWorker) rest(err error) {
	var refused *apiError
	if errors.As(err, &refused) && w.breaks != "ignores Retry-After" {
		pause(refused.after)
	}
	if w.breaks != "retries at once" {
		pause(150 * time.Millisecond)
	}
}

// pause is not conditional: the test ends the worker by a signal.
func pause(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // a worker in its own process waits by the clock
}

func (w *smallWorker) post(path string, body, answer any) error {
	doc, err := json.Marshal(body)
	if err != nil {
		return err
	}
	res, err := smallClient.Post(os.Getenv("TASKER_URL")+path, "application/json", bytes.NewReader(doc))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	doc, err = io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode > 299 {
		var e apiv1.Error
		_ = json.Unmarshal(doc, &e)
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return &apiError{res.StatusCode, e.Error.Code, e.Error.Message, time.Duration(seconds) * time.Second}
	}
	if w.breaks == "believes each status 200" {
		_ = json.Unmarshal(doc, answer)
		return nil
	}
	return json.Unmarshal(doc, answer)
}
