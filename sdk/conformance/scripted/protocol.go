package scripted

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker/apiv1"
)

// Worker is a registered worker.
type Worker struct {
	UUID           string
	Name           string
	Namespaces     []string
	Handlers       []string
	MaxConcurrency int
	Protocol       int // that the worker requested; 0 if it did not
	Draining       bool
}

// registration is the body of a registration.
type registration struct {
	apiv1.RegisterWorker
	Protocol *int `json:"protocol"`
}

// Version is the version of the protocol that the server speaks.
const Version = 1

// Workers returns the registered workers.
func (s *Server) Workers() []Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Worker
	for _, w := range s.workers {
		list = append(list, *w)
	}
	return list
}

// DrainAll drains all workers, as an operator does.
func (s *Server) DrainAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		w.Draining = true
	}
	s.notify()
}

// Forget makes the server forget all workers, as after a restart with another database. Their
// leases are lost; their steps become claimable again if attempts remain.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.workers)
	for _, p := range s.steps {
		if p.state != leased {
			continue
		}
		p.token, p.holder, p.state = "", "", done
		if p.attempt < p.MaxAttempts {
			p.state = ready
		}
	}
	s.notify()
}

// apply answers a request by the protocol.
func (s *Server) apply(ctx context.Context, q *Request) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) > 0 && !slices.Contains(s.keys, q.Key) {
		a := refusal(http.StatusUnauthorized, "UNAUTHORIZED", "invalid API key: use a key that is valid")
		a.Header = map[string]string{"WWW-Authenticate": "Bearer"}
		return a
	}
	if len(q.Body) > 0 && !strings.HasPrefix(q.media, "application/json") {
		return refusal(http.StatusUnsupportedMediaType, "NOT_SUPPORTED", "the Content-Type must be application/json")
	}
	switch q.Route {
	case Register:
		return s.register(q)
	case Context, Result:
		return s.document(q)
	case Unknown:
		s.violate(fmt.Sprintf("%s %s is no request of the worker protocol", q.Method, q.Path))
		return refusal(http.StatusNotFound, "NOT_FOUND", "no such path: "+q.Path)
	default:
		return s.applyFor(ctx, q)
	}
}

// applyFor answers a request of a worker. The caller holds the mutex.
func (s *Server) applyFor(ctx context.Context, q *Request) Answer {
	w := s.workers[q.Worker]
	if w == nil {
		return refusal(http.StatusNotFound, "NOT_FOUND", "worker "+q.Worker+" is not registered: register again")
	}
	switch q.Route {
	case Claim:
		return s.claim(ctx, w, q)
	case Beat:
		return s.beat(w, q)
	case Report:
		return s.report(w, q)
	case Release:
		return s.release(w, q)
	case Drain:
		w.Draining = true
		return ok(map[string]any{
			"worker_uuid": w.UUID, "name": w.Name, "namespaces": w.Namespaces, "handlers": w.Handlers, "version": "",
			"max_concurrency": w.MaxConcurrency, "health": "draining", "in_flight": 0,
		})
	case Checkpoint:
		return s.saveCheckpoint(q)
	default:
		delete(s.workers, w.UUID)
		return Answer{Status: http.StatusNoContent}
	}
}

func ok(v any) Answer { return Answer{Status: http.StatusOK, Body: encode(v)} }

// read decodes the body of a request. A malformed body is a violation of the protocol.
func (s *Server) read(q *Request, into any) (refused *Answer) {
	d := json.NewDecoder(bytes.NewReader(q.Body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		s.violate(fmt.Sprintf("the body of %s %s is invalid: %v: %s", q.Method, q.Path, err, shorten(q.Body)))
		a := refusal(http.StatusBadRequest, "INVALID", "invalid body: "+err.Error())
		return &a
	}
	return nil
}

func (s *Server) register(q *Request) Answer {
	var r registration
	if refused := s.read(q, &r); refused != nil {
		return *refused
	}
	if r.Name == "" || len(r.Namespaces) == 0 || len(r.Handlers) == 0 {
		s.violate("a registration lacks name, namespaces or handlers: " + shorten(q.Body))
		return refusal(http.StatusBadRequest, "INVALID", "name, namespaces and handlers are required")
	}
	w := &Worker{UUID: newID(), Name: r.Name, Namespaces: r.Namespaces, Handlers: r.Handlers, MaxConcurrency: r.MaxConcurrency}
	if r.Protocol != nil {
		w.Protocol = *r.Protocol
	}
	s.workers[w.UUID] = w
	body := map[string]any{
		"worker_uuid": w.UUID, "heartbeat_interval_ms": s.Heartbeat.Milliseconds(), "lease_ms": s.Lease.Milliseconds(), "protocol": Version,
	}
	if s.ClaimIsHeartbeat {
		body["claim_is_heartbeat"] = true
	}
	return Answer{Status: http.StatusCreated, Body: encode(body)}
}

// drainedClaim limits the wait of a claim of a draining worker.
const drainedClaim = 200 * time.Millisecond

// claim waits for steps. It releases the mutex while it waits.
func (s *Server) claim(ctx context.Context, w *Worker, q *Request) Answer {
	var c apiv1.ClaimSteps
	if refused := s.read(q, &c); refused != nil {
		return *refused
	}
	wait := time.Duration(c.WaitMS) * time.Millisecond
	if c.Max < 1 || c.Max > 1000 || wait < 0 || wait > time.Minute {
		s.violate("a claim is out of range: " + shorten(q.Body))
		return refusal(http.StatusBadRequest, "INVALID", "max must be 1 to 1000 and wait_ms 0 to 60000")
	}
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		if w.Draining {
			s.pause(ctx, drainedClaim)
			return ok(map[string]any{"steps": []any{}})
		}
		steps := s.assign(w, c.Max)
		if len(steps) > 0 {
			return ok(map[string]any{"steps": steps})
		}
		changed, over := s.changed, false
		s.mu.Unlock()
		select {
		case <-changed:
		case <-end.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		s.mu.Lock()
		if over {
			return ok(map[string]any{"steps": []any{}})
		}
		if s.workers[w.UUID] == nil {
			return refusal(http.StatusNotFound, "NOT_FOUND", "worker "+w.UUID+" is not registered: register again")
		}
	}
}

// pause waits without the mutex.
func (s *Server) pause(ctx context.Context, d time.Duration) {
	s.mu.Unlock()
	rest(ctx, d)
	s.mu.Lock()
}

// assign leases up to limit ready steps to the worker.
func (s *Server) assign(w *Worker, limit int) []any {
	steps := []any{}
	for _, p := range s.steps {
		if len(steps) == limit {
			break
		}
		if p.state == ready && slices.Contains(w.Handlers, p.Handler) {
			steps = append(steps, s.grant(p, w.UUID))
		}
	}
	if len(steps) > 0 {
		s.notify()
	}
	return steps
}

// find returns the step of a lease, and whether the lease is valid for the worker.
func (s *Server) find(l apiv1.Lease, worker string) (*Step, bool) {
	for _, p := range s.steps {
		if p.UUID == l.StepUUID {
			return p, p.state == leased && p.token == l.LeaseToken && p.holder == worker
		}
	}
	return nil, false
}

func (s *Server) beat(w *Worker, q *Request) Answer {
	var leases apiv1.Leases
	if refused := s.read(q, &leases); refused != nil {
		return *refused
	}
	extended, lost := []any{}, []string{}
	for _, l := range leases.Leases {
		p, valid := s.find(l, w.UUID)
		if !valid {
			lost = append(lost, l.StepUUID)
			continue
		}
		p.expires = time.Now().Add(s.Lease)
		extended = append(extended, map[string]any{"step_uuid": p.UUID, "lease_expires_at": s.stamp(p.expires)})
	}
	return ok(map[string]any{"extended": extended, "lost": lost, "drain": w.Draining})
}

func (s *Server) report(w *Worker, q *Request) Answer {
	var r apiv1.ReportResults
	if refused := s.read(q, &r); refused != nil {
		return *refused
	}
	accepted, rejected := []string{}, []any{}
	for _, x := range r.Results {
		if code, message := s.conclude(w, x); code != "" {
			rejected = append(rejected, map[string]any{"step_uuid": x.StepUUID, "code": code, "message": message})
		} else {
			accepted = append(accepted, x.StepUUID)
		}
	}
	s.notify()
	steps := []any{}
	if r.Claim != nil && !w.Draining {
		steps = s.assign(w, r.Claim.Max)
	}
	return ok(map[string]any{"accepted": accepted, "rejected": rejected, "steps": steps})
}

// conclude applies an outcome. It returns the code and the message of a rejection.
func (s *Server) conclude(w *Worker, r apiv1.Result) (code, message string) {
	p, valid := s.find(apiv1.Lease{StepUUID: r.StepUUID, LeaseToken: r.LeaseToken}, w.UUID)
	switch {
	case p == nil:
		return "NOT_FOUND", "no step " + r.StepUUID
	case p.accepted != nil && p.accepted.LeaseToken == r.LeaseToken:
		if same(p.accepted.Result, r) {
			return "", ""
		}
		s.violate("two different outcomes were reported for one attempt of step " + p.UUID)
		return "STALE_LEASE", "lease lost: another outcome of this attempt was accepted"
	case !valid:
		return "STALE_LEASE", "lease lost: this attempt no longer counts"
	case !r.Success && r.Error == nil:
		s.violate("a failure has no error: " + shorten(encode(r)))
		return "INVALID", "error: is required for a failure"
	}
	p.accepted, p.state = &Outcome{Result: r, At: time.Since(s.began)}, done
	if r.Success {
		p.completed++
		return "", ""
	}
	retryable := r.Error.Retryable == nil || *r.Error.Retryable
	if retryable && p.attempt < p.MaxAttempts {
		p.state = waiting
		s.later(time.Duration(r.Error.RetryAfterMS)*time.Millisecond, func() { p.state = ready })
	}
	return "", ""
}

// same reports whether two outcomes are equal by the rules of the protocol.
func same(a, b apiv1.Result) bool {
	if a.Success != b.Success {
		return false
	}
	if a.Success {
		return bytes.Equal(normal(a.Result), normal(b.Result))
	}
	return b.Error != nil && a.Error.Message == b.Error.Message && a.Error.Type == b.Error.Type
}

// normal returns a document with sorted keys and without spaces.
func normal(doc json.RawMessage) []byte {
	var v any
	if json.Unmarshal([]byte(cmp.Or(string(doc), "null")), &v) != nil {
		return doc
	}
	return encode(v)
}

func (s *Server) release(w *Worker, q *Request) Answer {
	var leases apiv1.Leases
	if refused := s.read(q, &leases); refused != nil {
		return *refused
	}
	released, lost := []string{}, []string{}
	for _, l := range leases.Leases {
		p, valid := s.find(l, w.UUID)
		if !valid {
			lost = append(lost, l.StepUUID)
			continue
		}
		p.released++
		p.attempt--
		p.token, p.holder, p.state = "", "", ready
		released = append(released, p.UUID)
	}
	s.notify()
	return ok(map[string]any{"released": released, "lost": lost})
}

func (s *Server) saveCheckpoint(q *Request) Answer {
	var c apiv1.SaveCheckpoint
	if refused := s.read(q, &c); refused != nil {
		return *refused
	}
	p, valid := s.find(c.Lease, q.Worker)
	if !valid {
		return refusal(http.StatusConflict, "STALE_LEASE", "lease lost: nothing was saved")
	}
	p.checkpoint = c.Checkpoint
	return Answer{Status: http.StatusNoContent}
}

// document answers with a context or a result.
func (s *Server) document(q *Request) Answer {
	parts := strings.Split(strings.Trim(q.Path, "/"), "/")
	for _, p := range s.steps {
		if p.Task != parts[2] {
			continue
		}
		if q.Route == Context {
			return bare(encode(cmp.Or(p.Whole, p.Context)))
		}
		for name, id := range p.refs {
			if parts[4] == id || parts[4] == name {
				return bare([]byte(p.Refs[name]))
			}
		}
		return refusal(http.StatusNotFound, "NOT_FOUND", "task "+p.Task+" has no result of step "+parts[4])
	}
	return refusal(http.StatusNotFound, "NOT_FOUND", "task "+parts[2]+" does not exist")
}

// bare returns the answer with a bare document.
func bare(doc []byte) Answer {
	return Answer{Status: http.StatusOK, Header: map[string]string{"ETag": `"` + apiv1.DocumentTag(doc) + `"`}, Body: doc}
}
